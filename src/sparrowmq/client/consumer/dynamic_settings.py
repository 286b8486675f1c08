"""The effective settings of a running consumer: its own settings, overridden by the coordinator's dynamic
settings.

The parts of a consumer read each value here when they need it, so a change takes effect with the next
message, pull or retry.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

from sparrowmq.client.base.settings import ConsumerSettings, PullSettings
from sparrowmq.core import dynamic_settings
from sparrowmq.core.dynamic_settings import DYNAMIC_SETTINGS, SettingKind, SettingValue, Unable
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX

T = TypeVar("T")

log = logging.getLogger("sparrowmq.client")


@dataclass(frozen=True, slots=True)
class PullPace:
    """How the queues of a topic are pulled.

    `batch` messages at a time, or `behind` while the queue is far behind; the interval between pulls in
    seconds; and the minimum age of messages in seconds before they are handed out. `told`: the coordinator
    set the batch.
    """

    batch: int
    behind: int
    interval: float
    delay: float = 0.0
    told: bool = False


@dataclass(frozen=True, slots=True)
class StaticSettings:
    """The consumer's settings without dynamic settings. Pull consumers have no handlers."""

    pull_batch: int
    pull_batch_behind: int
    max_reconsume_times: int
    pull_interval: float = 0.0
    threads: int = 0
    batch: int = 1
    consume_timeout: float = 0.0

    @classmethod
    def of(cls, settings: ConsumerSettings | PullSettings) -> Self:
        """The settings of pulls that dynamic settings can replace."""
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


class DynamicSettings:
    """The dynamic settings of one consumer. Pauses end by the coordinator's clock, extrapolated with
    `monotonic`, or by the local wall clock `now_ms` if the coordinator does not send its time.

    `batch` applies to handlers that take lists; if the consumer was created with a batch of 1, its handlers
    take single messages.
    """

    def __init__(
        self,
        settings: ConsumerSettings | PullSettings,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = own = StaticSettings.of(settings)
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._began_ms: float | None = None
        self._told: list[SettingValue] = []
        self._pull: dict[str, PullPace] = {}
        self._pauses: list[SettingValue] = []
        self._waiting: set[asyncio.Future[None]] = set()
        self.revision = 0
        """Revision of the last settings received; 0 for none."""
        self.unknown: Sequence[str] = ()
        """Names of settings that this release does not know."""
        self.takes_lists = own.batch > 1
        self._work_out()

    def __repr__(self) -> str:
        return f"<DynamicSettings {self.revision}: {self.text}>"

    def _work_out(self) -> None:
        own, told = self._own, self._value
        self.threads = told("threads", own.threads)
        self.batch = told("batch", own.batch) if self.takes_lists else 1
        self.consume_timeout = told("consume_timeout", own.consume_timeout)
        self.max_reconsume_times = told("retries", own.max_reconsume_times)
        self._retry_delay = told("retry_delay", 0.0)
        self._retry_growth = told("retry_growth", 1.0)

    def _value(self, name: str, own: T, topic: str = "") -> T:
        found = dynamic_settings.value_for(self._told, name, topic)
        if found is None:
            return own
        return (int if DYNAMIC_SETTINGS[name].kind is SettingKind.COUNT else float)(found)  # type: ignore[arg-type, return-value]

    def take(
        self, revision: int, told: Sequence[SettingValue], now_ms: int = 0, unknown: Sequence[str] = ()
    ) -> Changed:
        """Apply the settings that a coordinator sent at its time `now_ms`. Returns the changes."""
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

    def pull(self, topic: str) -> PullPace:
        """How the queues of a topic are pulled."""
        found = self._pull.get(topic)
        if found is None:
            own, behind = self._own, self._own.pull_batch_behind
            batch = self._value("pull_batch", own.pull_batch, topic)
            told = dynamic_settings.value_for(self._told, "pull_batch", topic) is not None
            if told:
                behind = batch
            interval = self._value("pull_interval", own.pull_interval, topic)
            delay = 0.0 if topic.startswith(RETRY_PREFIX) else self._value("delay", 0.0, topic)
            found = self._pull[topic] = PullPace(batch, behind, interval, delay, told)
        return found

    @property
    def text(self) -> str:
        """The coordinator's settings as readable text."""
        return ", ".join(f"{one.name}={one.text} ({one.place})" for one in self._told)

    @property
    def tags(self) -> dict[str, str]:
        """Expressions that replace the subscribed ones, by topic."""
        return {one.place.topic: str(one.value) for one in self._told if one.name == "tags"}

    @property
    def names(self) -> frozenset[str]:
        """The names of the current settings, as text."""
        return frozenset(one.name for one in self._told)

    @property
    def batch_max(self) -> int:
        """The largest batch that a pull of any topic requests."""
        told = [int(one.value) for one in self._told if one.name == "pull_batch"]  # type: ignore[arg-type]
        return max(told, default=self._own.pull_batch)

    def unable(self, cannot: Mapping[str, Unable]) -> dict[str, Unable]:
        """The current settings without effect here, because the consumer `cannot` apply them, and why."""
        found = {name: why for name, why in cannot.items() if name in self.names}
        return found | dict.fromkeys(self.unknown, Unable.UNKNOWN)

    def is_paused(self, queue: MessageQueue) -> bool:
        """Whether a queue is paused."""
        if not self._pauses:
            return False
        began = self._began_ms
        now = self._now_ms() if began is None else began + self._monotonic() * 1000
        return dynamic_settings.is_paused(self._pauses, queue, int(now))

    async def sleep(self, seconds: float) -> None:
        """Wait `seconds`, or until the dynamic settings change."""
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(waiting)
        try:
            await asyncio.wait([waiting], timeout=None if seconds == math.inf else seconds)
        finally:
            self._waiting.discard(waiting)

    def retry_seconds(self, tries: int) -> float | None:
        """Seconds until the next retry of a message that was retried `tries` times; None: the default."""
        if not self._retry_delay:
            return None
        return dynamic_settings.retry_seconds(self._retry_delay, self._retry_growth, tries)


def dynamic_properties(known: DynamicSettings, unable: Mapping[str, Unable]) -> dict[str, str]:
    """The dynamic settings in a member's running info, until the release after 0.1 also under their old
    names.
    """
    found = dict.fromkeys(("dynamicSettings", "liveKnobs"), known.text)
    if unable:
        found |= dict.fromkeys(("dynamicSettingsNotApplied", "liveKnobsNotFollowed"), _because(unable))
    return found


def log_dynamic_settings(group: str, known: DynamicSettings, unable: Mapping[str, Unable]) -> None:
    """Log the new dynamic settings."""
    log.info("group %s applies other dynamic settings: %r", group, known)
    if unable:
        log.warning("a member of group %s cannot apply dynamic settings: %s", group, _because(unable))


def _because(unable: Mapping[str, Unable]) -> str:
    return "; ".join(f"{name}: {why.text}" for name, why in sorted(unable.items()))


@dataclass(frozen=True, slots=True)
class Changed:
    """Effects of new settings on running work: topics whose pulls or tags changed, pauses that began."""

    threads: bool
    pulls: frozenset[str]
    tags: frozenset[str]
    pauses: Sequence[SettingValue]
