"""Statistics by topic, queue and group, as tools ask for them (broker:16.2).

What was put is read off the queues every ten seconds, what was pulled comes from the counters of the pull
path, and what is rare is counted by `count`.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.core.names import is_system_topic
from sparrowmq.protocol.bodies.stats import BrokerStatsData, BrokerStatsItem
from sparrowmq.store.settings import ENTRY_BYTES

if TYPE_CHECKING:
    from sparrowmq.broker.pulling import PullPath
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore

SAMPLE_SECONDS: Final = 10.0
MINUTE_SAMPLES: Final = 7
HOUR_SAMPLES: Final = 7
DAY_SAMPLES: Final = 25
SAMPLES_AN_HOUR_STEP: Final = 60
"""One sample in so many (10 minutes) is kept for the hour, one in six of those for the day."""

HOUR_STEPS_A_DAY_STEP: Final = 6
ITEMS_MAX: Final = 50_000
"""Names and keys that are counted; a stranger can make topics and groups."""

_ENTRY_INTS: Final = ENTRY_BYTES // 4
_SIZE_INT: Final = 2


class Snapshot(NamedTuple):
    """The counters of an item at a time, epoch ms."""

    at_ms: int
    times: int
    value: int


@dataclass(slots=True)
class Item:
    """One thing that is counted: how often, and how much in all."""

    times: int = 0
    value: int = 0
    minute: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=MINUTE_SAMPLES))
    hour: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=HOUR_SAMPLES))
    day: deque[Snapshot] = field(default_factory=lambda: deque(maxlen=DAY_SAMPLES))

    def add(self, value: int, times: int) -> None:
        """Count."""
        self.value += value
        self.times += times


def rates(samples: deque[Snapshot]) -> BrokerStatsItem:
    """Sum, rate and average between the first and the last of the samples."""
    if not samples:
        return BrokerStatsItem()
    first, last = samples[0], samples[-1]
    total, times, passed = last.value - first.value, last.times - first.times, last.at_ms - first.at_ms
    return BrokerStatsItem(
        sum=total,
        tps=total * 1000 / passed if passed > 0 else 0.0,
        avgpt=total / times if times > 0 else 0.0,
    )


def bytes_of(queue: ConsumeQueue, start: int, end: int) -> int:
    """The sizes of the records of a queue's entries from `start` up to `end`, added up."""
    total = 0
    while start < end:
        entries = queue.entries(start, end)
        if entries is None:
            return total
        numbers = array("i")
        numbers.frombytes(entries)
        sizes = numbers[_SIZE_INT::_ENTRY_INTS]
        if sys.byteorder == "little":
            sizes.byteswap()
        total += sum(sizes)
        start += len(entries) // ENTRY_BYTES
    return total


class BrokerStats:
    """Counts of one broker. Belongs to its loop; `tick` about once a second."""

    def __init__(self, cluster: str, store: MessageStore, pulling: PullPath, clock: Clock) -> None:
        self._cluster = cluster
        self._store = store
        self._pulling = pulling
        self._clock = clock
        self._items: dict[tuple[str, str], Item] = {}
        self._put = {queue: queue.committed for queue in store.all_queues()}
        self._got: dict[tuple[ConsumeQueue, str], tuple[int, int, int]] = {}
        self._samples = 0
        self._due = clock.monotonic() + SAMPLE_SECONDS
        self._today = self._date()
        self.put_total = self.get_total = 0
        self.put_today = self.put_yesterday = self.get_today = self.get_yesterday = 0
        for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            for suffix in ("", "_WITHOUT_SYSTEM_TOPIC"):
                self._items[name + suffix, cluster] = Item()

    def count(self, name: str, key: str, value: int = 1, times: int = 1) -> None:
        """Count something rare, for example `SNDBCK_PUT_NUMS` of `topic@group`."""
        item = self._items.get((name, key))
        if item is None:
            if len(self._items) >= ITEMS_MAX:
                return
            item = self._items[name, key] = Item()
        item.add(value, times)

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """The rates of the last minute, hour and day; None when nothing of that name and key was counted."""
        self.collect()
        item = self._items.get((name, key))
        if item is None:
            return None
        return BrokerStatsData(
            stats_minute=rates(item.minute), stats_hour=rates(item.hour), stats_day=rates(item.day)
        )

    def minute_rate(self, name: str, key: str) -> float:
        """Per second over the last minute; 0 when nothing was counted."""
        item = self._items.get((name, key))
        return 0.0 if item is None else rates(item.minute).tps

    def tick(self) -> None:
        """Take samples that are due."""
        now = self._clock.monotonic()
        self._store.stats.tick(now)
        if now >= self._due:
            self._due = now + SAMPLE_SECONDS
            self.collect()
            self._sample()
            self._turn_day()

    def collect(self) -> None:
        """Take over what was put and pulled since the last time."""
        self._collect_puts()
        self._collect_gets()

    def _collect_puts(self) -> None:
        known = self._put
        for queue in self._store.all_queues():
            end = queue.committed
            start = known.get(queue, 0)
            if end <= start:
                continue
            known[queue] = end
            number, size = end - start, bytes_of(queue, start, end)
            topic = queue.topic
            self.count("TOPIC_PUT_NUMS", topic, number, number)
            self.count("TOPIC_PUT_SIZE", topic, size, number)
            self.count("QUEUE_PUT_NUMS", f"{topic}@{queue.queue_id}", number, number)
            self.count("QUEUE_PUT_SIZE", f"{topic}@{queue.queue_id}", size, number)
            self.count("BROKER_PUT_NUMS", self._cluster, number, number)
            if not is_system_topic(topic):
                self.put_total += number
                self.count("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", self._cluster, number, number)
        if len(known) > 2 * len(self._store.all_queues()):
            self._put = {queue: offset for queue, offset in known.items() if not queue.deleted}

    def _collect_gets(self) -> None:
        for (queue, group), (number, size, times) in self._pulling.take_counts():
            topic = queue.topic
            self.count("GROUP_GET_NUMS", f"{topic}@{group}", number, times)
            self.count("GROUP_GET_SIZE", f"{topic}@{group}", size, times)
            self.count("QUEUE_GET_NUMS", f"{topic}@{queue.queue_id}@{group}", number, times)
            self.count("QUEUE_GET_SIZE", f"{topic}@{queue.queue_id}@{group}", size, times)
            self.count("BROKER_GET_NUMS", self._cluster, number, times)
            if not is_system_topic(topic):
                self.get_total += number
                self.count("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", self._cluster, number, times)

    def _sample(self) -> None:
        now_ms = self._clock.now_ms()
        number, self._samples = self._samples, self._samples + 1
        steps, rest = divmod(number, SAMPLES_AN_HOUR_STEP)
        for item in self._items.values():
            snapshot = Snapshot(now_ms, item.times, item.value)
            if not item.minute:
                item.minute.append(Snapshot(now_ms - int(SAMPLE_SECONDS * 1000), 0, 0))
            item.minute.append(snapshot)
            if rest == 0 or not item.hour:
                item.hour.append(snapshot)
            if (rest == 0 and steps % HOUR_STEPS_A_DAY_STEP == 0) or not item.day:
                item.day.append(snapshot)

    def _date(self) -> date:
        return date.fromtimestamp(self._clock.now_ms() / 1000)

    def _turn_day(self) -> None:
        """At midnight, local time: what was counted until then."""
        today = self._date()
        if today != self._today:
            self._today = today
            self.put_yesterday, self.put_today = self.put_today, self.put_total
            self.get_yesterday, self.get_today = self.get_today, self.get_total
