"""Recent statistics of a consumer: rates and times by topic, as reported in running info (client:D.17)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final

from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.failing import FailingQueue

if TYPE_CHECKING:
    from sparrowmq.protocol.bodies import ConsumeStatus

log = logging.getLogger("sparrowmq.client")

SAMPLE_SECONDS: Final = 10.0
FAILING_SECONDS: Final = 60.0
"""A queue whose last failure is older does not count as failing."""
MINUTE_SAMPLES: Final = 7
"""Samples that span one minute."""
HOUR_SECONDS: Final = 600.0
HOUR_SAMPLES: Final = 7
DAY_SECONDS: Final = 3600.0
DAY_SAMPLES: Final = 25


@dataclass(slots=True)
class Totals:
    """Totals since the start. Times are in milliseconds; `calls` and `pulls` are the numbers of measured
    calls and pulls.
    """

    ok: int = 0
    failed: int = 0
    consume_ms: float = 0.0
    calls: int = 0
    pulled: int = 0
    pull_ms: float = 0.0
    pulls: int = 0

    def copy(self) -> Totals:
        """The current totals."""
        return Totals(*(getattr(self, field.name) for field in fields(self)))

    def since(self, before: Totals) -> Totals:
        """The difference to the totals `before`."""
        return Totals(*(getattr(self, f.name) - getattr(before, f.name) for f in fields(self)))


class _Window:
    """Samples of the totals; the oldest is as old as the window is long."""

    def __init__(self, samples: int, now: float) -> None:
        self._samples: deque[tuple[float, Totals]] = deque([(now, Totals())], maxlen=samples)

    def sample(self, now: float, totals: Totals) -> None:
        self._samples.append((now, totals.copy()))

    def last(self) -> tuple[float, Totals]:
        """(seconds, totals) between the oldest and the newest sample."""
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return end - begin, after.since(before)


@dataclass(slots=True)
class _Failing:
    """A queue in which every message fails: since when, how many, and the time of the last failure."""

    since: float
    failed: int = 0
    last: float = 0.0


class _Topic:
    def __init__(self, now: float) -> None:
        self.totals = Totals()
        self.minute = _Window(MINUTE_SAMPLES, now)
        self.hour = _Window(HOUR_SAMPLES, now)
        self.day = _Window(DAY_SAMPLES, now)


class ConsumeStatistics:
    """The totals of one consumer by topic, and samples of them. `monotonic` returns seconds."""

    def __init__(self, group: str, monotonic: Callable[[], float]) -> None:
        self._group = group
        self._monotonic = monotonic
        self._topics: dict[str, _Topic] = {}
        self._failing: dict[MessageQueue, _Failing] = {}
        self._hour_due = self._day_due = monotonic()
        self._hour_due += HOUR_SECONDS
        self._day_due += DAY_SECONDS

    def totals(self, topic: str) -> Totals:
        """The totals of `topic`, for adding to them."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = _Topic(self._monotonic())
        return found.totals

    def consumed(self, topic: str, ok: int, failed: int, seconds: float, queue: MessageQueue) -> None:
        """Record that handlers took `seconds` for `ok` and `failed` messages of a queue."""
        totals = self.totals(topic)
        totals.ok += ok
        totals.failed += failed
        totals.consume_ms += seconds * 1000
        totals.calls += 1
        if failed or self._failing:
            self._judge(queue, ok, failed)

    def _judge(self, queue: MessageQueue, ok: int, failed: int) -> None:
        if ok:
            self._failing.pop(queue, None)
        elif failed:
            now = self._monotonic()
            known = self._failing.setdefault(queue, _Failing(now))
            known.failed += failed
            known.last = now

    def failing(self) -> list[FailingQueue]:
        """Queues that had failures in the last minute, and no success since the first of them."""
        now = self._monotonic()
        for queue in [one for one, known in self._failing.items() if now - known.last > FAILING_SECONDS]:
            del self._failing[queue]
        return [
            FailingQueue(queue, known.failed, int(now - known.since))
            for queue, known in self._failing.items()
        ]

    def pulled(self, topic: str, count: int, seconds: float) -> None:
        """Record that a pull took `seconds` and returned `count` messages."""
        totals = self.totals(topic)
        totals.pulled += count
        totals.pull_ms += seconds * 1000
        totals.pulls += 1

    def sample(self) -> None:
        """Take a sample. Called every `SAMPLE_SECONDS`."""
        now = self._monotonic()
        self.failing()  # forget queues without recent failures
        hour, day = now >= self._hour_due, now >= self._day_due
        for name, topic in self._topics.items():
            topic.minute.sample(now, topic.totals)
            if hour:
                topic.hour.sample(now, topic.totals)
            if day:
                topic.day.sample(now, topic.totals)
                seconds, sums = topic.day.last()
                log.debug("%s@%s: %s in the last %.0f s", name, self._group, sums, seconds)
        if hour:
            self._hour_due = now + HOUR_SECONDS
        if day:
            self._day_due = now + DAY_SECONDS

    def status(self, topic: str) -> ConsumeStatus:
        """The last minute of `topic`: milliseconds per call, messages per second; failures of the last hour.

        If no call ended in that minute, the time per call is that of the last hour.
        """
        from sparrowmq.protocol.bodies import ConsumeStatus  # most consumers are never asked

        found = self._topics.get(topic)
        if found is None:
            return ConsumeStatus()
        seconds, minute = found.minute.last()
        _, hour = found.hour.last()
        rate = 1 / seconds if seconds else 0.0
        calls = minute if minute.calls else hour
        return ConsumeStatus(
            pull_rt=minute.pull_ms / minute.pulls if minute.pulls else 0.0,
            pull_tps=minute.pulled * rate,
            consume_rt=calls.consume_ms / calls.calls if calls.calls else 0.0,
            consume_ok_tps=minute.ok * rate,
            consume_failed_tps=minute.failed * rate,
            consume_failed_msgs=hour.failed if hour.failed else minute.failed,
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics with totals."""
        return tuple(self._topics)
