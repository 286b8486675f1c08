"""What a running consumer goes by: its own settings and, over them, the live knobs a coordinator tells it.

Its parts ask here each time they need a value, so what changes counts from the next message, pull or try on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.core import knobs
from sparrowmq.core.knobs import Setting
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import RETRY_PREFIX

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PullKnobs:
    """How the queues of a topic are pulled.

    `batch` messages at a time, `behind` while the queue is far behind; seconds to rest in between; and how
    old messages are, in seconds, before they are handed out.
    """

    batch: int
    behind: int
    interval: float
    delay: float = 0.0


class LiveKnobs:
    """The knobs of one consumer. `now_ms` is the wall clock, by which pauses end.

    `batch` is heeded by handlers that take lists: one whose consumer was made with a batch of 1 takes single
    messages.
    """

    def __init__(self, settings: ConsumerSettings, now_ms: Callable[[], int]) -> None:
        self._own = settings
        self._now_ms = now_ms
        self._told: list[Setting] = []
        self._pull: dict[str, PullKnobs] = {}
        self._pauses: list[Setting] = []
        self.revision = 0
        """The number of what the coordinator told last; 0 for nothing."""
        self.takes_lists = settings.batch > 1
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
        found: Any = knobs.value_for(self._told, name, topic)
        return own if found is None else type(own)(found)  # type: ignore[call-arg]

    def take(self, revision: int, told: Sequence[Setting]) -> Changed:
        """Go by what a coordinator told; what that changes."""
        before, pulls = self._told, dict(self._pull)
        tags_before, threads = self.tags, self.threads
        self._told, self.revision = list(told), revision
        self._pauses = [one for one in told if one.name == "pause"]
        self._pull.clear()
        self._work_out()
        tags = self.tags
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
            if knobs.value_for(self._told, "pull_batch", topic) is not None:
                behind = batch
            interval = self._value("pull_interval", own.pull_interval, topic)
            delay = 0.0 if topic.startswith(RETRY_PREFIX) else self._value("delay", 0.0, topic)
            found = self._pull[topic] = PullKnobs(batch, behind, interval, delay)
        return found

    @property
    def text(self) -> str:
        """What a coordinator set, for people."""
        return ", ".join(f"{one.name}={one.text} ({one.place})" for one in self._told)

    @property
    def tags(self) -> dict[str, str]:
        """Expressions in place of those subscribed, by topic."""
        return {one.place.topic: str(one.value) for one in self._told if one.name == "tags"}

    def is_paused(self, queue: MessageQueue) -> bool:
        """Whether a queue rests."""
        return bool(self._pauses) and knobs.is_paused(self._pauses, queue, self._now_ms())

    def retry_seconds(self, tries: int) -> float | None:
        """Until a message that was tried `tries` times before is tried again; None: as usual."""
        if not self._retry_delay:
            return None
        return knobs.retry_seconds(self._retry_delay, self._retry_growth, tries)


@dataclass(frozen=True, slots=True)
class Changed:
    """What new knobs change of what runs already: topics whose pulls or tags changed, pauses that began."""

    threads: bool
    pulls: frozenset[str]
    tags: frozenset[str]
    pauses: Sequence[Setting]
