"""What a running consumer goes by: its own settings and, over them, the live knobs a coordinator tells it.

Its parts ask here each time they need a value, so what changes counts from the next message, pull or try on.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from sparrowmq.client.settings import ConsumerSettings, PullSettings
from sparrowmq.core import knobs
from sparrowmq.core.knobs import KNOBS, Kind, Setting, Unable
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX

T = TypeVar("T")

log = logging.getLogger("sparrowmq.client")


@dataclass(frozen=True, slots=True)
class PullKnobs:
    """How the queues of a topic are pulled.

    `batch` messages at a time, `behind` while the queue is far behind; seconds to rest in between; and how
    old messages are, in seconds, before they are handed out. `told`: the batch is not the consumer's own.
    """

    batch: int
    behind: int
    interval: float
    delay: float = 0.0
    told: bool = False


@dataclass(frozen=True, slots=True)
class Own:
    """What a consumer goes by while it is told nothing. Pull consumers have no handlers."""

    pull_batch: int
    pull_batch_behind: int
    max_reconsume_times: int
    pull_interval: float = 0.0
    threads: int = 0
    batch: int = 1
    consume_timeout: float = 0.0

    @classmethod
    def of(cls, settings: ConsumerSettings | PullSettings) -> Self:
        """The part of settings that knobs can replace."""
        if isinstance(settings, PullSettings):
            return cls(settings.pull_batch, settings.pull_batch, settings.max_reconsume_times)
        return cls(
            settings.pull_batch,
            settings.pull_batch_behind,
            settings.max_reconsume_times,
            settings.pull_interval,
            settings.threads,
            settings.batch,
            settings.consume_timeout,
        )


class LiveKnobs:
    """The knobs of one consumer. Pauses end by the coordinator's clock, counted on by `monotonic` from when
    it was told, or by `now_ms`, the own wall clock, when it does not say what time it has.

    `batch` is heeded by handlers that take lists: one whose consumer was made with a batch of 1 takes single
    messages.
    """

    def __init__(
        self,
        settings: ConsumerSettings | PullSettings,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = own = Own.of(settings)
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._began_ms: float | None = None
        self._told: list[Setting] = []
        self._pull: dict[str, PullKnobs] = {}
        self._pauses: list[Setting] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self.revision = 0
        """The number of what the coordinator told last; 0 for nothing."""
        self.unknown: Sequence[str] = ()
        """Knobs it was told that this release does not know."""
        self.takes_lists = own.batch > 1
        self._work_out()

    def __repr__(self) -> str:
        return f"<LiveKnobs {self.revision}: {self.text}>"

    def _work_out(self) -> None:
        own, told = self._own, self._value
        self.threads = told("threads", own.threads)
        self.batch = told("batch", own.batch) if self.takes_lists else 1
        self.consume_timeout = told("consume_timeout", own.consume_timeout)
        self.max_reconsume_times = told("retries", own.max_reconsume_times)
        self._retry_delay = told("retry_delay", 0.0)
        self._retry_growth = told("retry_growth", 1.0)

    def _value(self, name: str, own: T, topic: str = "") -> T:
        found = knobs.value_for(self._told, name, topic)
        if found is None:
            return own
        return (int if KNOBS[name].kind is Kind.COUNT else float)(found)  # type: ignore[arg-type, return-value]

    def take(
        self, revision: int, told: Sequence[Setting], now_ms: int = 0, unknown: Sequence[str] = ()
    ) -> Changed:
        """Go by what a coordinator told when its clock said `now_ms`; what that changes."""
        before, pulls = self._told, dict(self._pull)
        tags_before, threads = self.tags, self.threads
        self._told, self.revision, self.unknown = list(told), revision, unknown
        self._began_ms = now_ms - self._monotonic() * 1000 if now_ms else None
        self._pauses = [one for one in told if one.name == "pause"]
        self._pull.clear()
        self._work_out()
        tags, waiting = self.tags, self._waiting
        while waiting:
            waiting.pop().set_result(None)
        return Changed(
            threads=self.threads != threads,
            pulls=frozenset(topic for topic, known in pulls.items() if self.pull(topic) != known),
            tags=frozenset(topic for topic, _ in tags.items() ^ tags_before.items()),
            pauses=[one for one in self._pauses if one not in before],
        )

    def pull(self, topic: str) -> PullKnobs:
        """How the queues of a topic are pulled."""
        found = self._pull.get(topic)
        if found is None:
            own, behind = self._own, self._own.pull_batch_behind
            batch = self._value("pull_batch", own.pull_batch, topic)
            told = knobs.value_for(self._told, "pull_batch", topic) is not None
            if told:
                behind = batch
            interval = self._value("pull_interval", own.pull_interval, topic)
            delay = 0.0 if topic.startswith(RETRY_PREFIX) else self._value("delay", 0.0, topic)
            found = self._pull[topic] = PullKnobs(batch, behind, interval, delay, told)
        return found

    @property
    def text(self) -> str:
        """What a coordinator set, for people."""
        return ", ".join(f"{one.name}={one.text} ({one.place})" for one in self._told)

    @property
    def tags(self) -> dict[str, str]:
        """Expressions in place of those subscribed, by topic."""
        return {one.place.topic: str(one.value) for one in self._told if one.name == "tags"}

    @property
    def names(self) -> frozenset[str]:
        """The knobs that are set."""
        return frozenset(one.name for one in self._told)

    @property
    def batch_max(self) -> int:
        """The most messages that a pull of any topic asks for."""
        told = [int(one.value) for one in self._told if one.name == "pull_batch"]  # type: ignore[arg-type]
        return max(told, default=self._own.pull_batch)

    def unable(self, cannot: Mapping[str, Unable]) -> dict[str, Unable]:
        """Of what is set the knobs that count for nothing here, of which the consumer says that it `cannot`
        go by them, and why.
        """
        found = {name: why for name, why in cannot.items() if name in self.names}
        return found | dict.fromkeys(self.unknown, Unable.UNKNOWN)

    def is_paused(self, queue: MessageQueue) -> bool:
        """Whether a queue rests."""
        if not self._pauses:
            return False
        began = self._began_ms
        now = self._now_ms() if began is None else began + self._monotonic() * 1000
        return knobs.is_paused(self._pauses, queue, int(now))

    async def sleep(self, seconds: float) -> None:
        """Wait so long, but not longer than until other knobs are told."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting], timeout=None if seconds == math.inf else seconds)
        finally:
            self._waiting.discard(waiting)

    def retry_seconds(self, tries: int) -> float | None:
        """Until a message that was tried `tries` times before is tried again; None: as usual."""
        if not self._retry_delay:
            return None
        return knobs.retry_seconds(self._retry_delay, self._retry_growth, tries)


def knob_properties(known: LiveKnobs, unable: Mapping[str, Unable]) -> dict[str, str]:
    """What a member's running info says of its live knobs."""
    found = {"liveKnobs": known.text}
    return found | ({"liveKnobsNotFollowed": _because(unable)} if unable else {})


def log_knobs(group: str, known: LiveKnobs, unable: Mapping[str, Unable]) -> None:
    """Note that a member goes by other knobs."""
    log.info("group %s goes by other knobs: %r", group, known)
    if unable:
        log.warning("a member of group %s cannot go by knobs that are set: %s", group, _because(unable))


def _because(unable: Mapping[str, Unable]) -> str:
    return "; ".join(f"{name}: {why.text}" for name, why in sorted(unable.items()))


@dataclass(frozen=True, slots=True)
class Changed:
    """What new knobs change of what runs already: topics whose pulls or tags changed, pauses that began."""

    threads: bool
    pulls: frozenset[str]
    tags: frozenset[str]
    pauses: Sequence[Setting]
