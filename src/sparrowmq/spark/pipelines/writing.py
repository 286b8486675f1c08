"""Writes to topics as pipelines make them: what a target is, asked beforehand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.connections import producer
from sparrowmq.spark.delivery import broker_without_states
from sparrowmq.spark.loop import loop_thread
from sparrowmq.spark.options import ConnectionOptions, WriteOptions, known_options


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that can be written to."""

    queues: tuple[MessageQueue, ...]
    """Its writable queues, sorted."""
    forgetful: str
    """A broker of it that stores repeated messages again, as Apache's do; empty when none is known to."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.queues[0].topic


def target(options: Mapping[str, str]) -> Target:
    """What a write with these options (one of them `topic`) goes to.

    Raises `SettingsError` for a topic that nobody serves, `TransportError`, …
    """
    parsed = WriteOptions.parse(options)

    async def queues() -> tuple[MessageQueue, ...]:
        return tuple(sorted(await (await producer(parsed)).queues(parsed.topic)))

    try:
        found = loop_thread().run(queues())
    except NoRouteError as error:
        raise SettingsError(
            f"{error}; make the topic first: sparrow topic create {parsed.topic} --namesrv "
            f"{parsed.name_server}"
        ) from None
    return Target(found, broker_without_states(parsed))


def connection(options: Mapping[str, str]) -> dict[str, str]:
    """Those of a read's options that say how to reach its cluster."""
    names = {option.name.lower() for option in known_options(ConnectionOptions).values()}
    return {name: value for name, value in options.items() if name.lower() in names}
