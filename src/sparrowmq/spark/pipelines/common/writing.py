"""Writes to topics by pipelines: the target, checked in advance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.cluster.clients import producer
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write import finished_jobs
from sparrowmq.spark.write.guarantees import broker_without_states


@dataclass(frozen=True, slots=True)
class Target:
    """A topic that can be written to."""

    queues: tuple[MessageQueue, ...]
    """Its writable queues, sorted."""
    forgetful: str
    """A broker that stores repeated messages again, as Apache's do; empty if none is known."""

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.queues[0].topic


def target(options: Mapping[str, str]) -> Target:
    """The target of a write with these options (one of them `topic`).

    Raises `SettingsError` for a topic without a broker, `TransportError`, …
    """
    parsed = WriteOptions.parse(options)

    async def queues() -> tuple[MessageQueue, ...]:
        return tuple(sorted(await (await producer(parsed)).queues(parsed.topic)))

    try:
        found = loop_thread().run(queues())
    except NoRouteError as error:
        raise SettingsError(
            f"{error}; make the topic first: sparrow topic create {parsed.topic} --namesrv "
            f"{parsed.name_server}",
            "topic",
            parsed.topic,
        ) from None
    return Target(found, broker_without_states(parsed))


def body_bytes_max(options: Mapping[str, str]) -> int:
    """The largest body that a write with these options (one of them `topic`) may send.

    Raises as the write itself would.
    """
    from sparrowmq.spark.write.body_limit import body_limit

    parsed = WriteOptions.parse(options)

    async def limit() -> int:
        queues = await (await producer(parsed)).queues(parsed.topic)
        brokers = {queue.broker_name for queue in queues} - parsed.lost_brokers
        return (await body_limit(parsed, parsed.topic, brokers)).bytes_max

    return loop_thread().run(limit())


def rows_if_done(options: Mapping[str, str]) -> int | None:
    """The rows of a batch write with these options (one of them `jobId`) if it is finished, otherwise None.

    Raises as the write itself would.
    """
    done = finished_jobs.find(WriteOptions.parse(options))
    return None if done is None else done.rows
