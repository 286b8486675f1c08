"""Statistics by topic, queue and group, for tools (broker:16.2).

Stored messages are derived from the queues every ten seconds, pulled messages come from the counters of the
pull path, and rare events are counted by `count`.
"""

from __future__ import annotations

import sys
from array import array
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import StoreBusyError
from sparrowmq.core.figures.histogram import Histogram
from sparrowmq.core.names import is_system_topic
from sparrowmq.protocol.bodies.stats import BrokerStatsData, BrokerStatsItem
from sparrowmq.store.base.settings import ENTRY_BYTES
from sparrowmq.transport.slices import shared

if TYPE_CHECKING:
    from sparrowmq.broker.pull.pull_path import PullPath
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

SAMPLE_SECONDS: Final = 10.0
MINUTE_SAMPLES: Final = 7
HOUR_SAMPLES: Final = 7
DAY_SAMPLES: Final = 25
SAMPLES_AN_HOUR_STEP: Final = 60
"""One sample in this many (10 minutes) is kept for the hour, and one in six of those for the day."""

HOUR_STEPS_A_DAY_STEP: Final = 6
ITEMS_MAX: Final = 50_000
"""Maximum number of counted names and keys: clients can create topics and groups. Deleted ones are
removed."""

PULLED_MAX: Final = 50_000
"""Maximum number of pairs of a queue and a group whose next offset to send is known."""
SIZE_BOUNDS: Final = (1024, 4096, 512 * 1024, 1024 * 1024, 2 * 1024 * 1024, 4 * 1024 * 1024)
"""Upper bounds of the counts of message sizes, as in RocketMQ."""
PIECE_ENTRIES: Final = 4096
"""Number of queue entries in one step of counting sizes."""
PIECE_PULLS: Final = 20
"""Number of queues in one step of counting pulls."""

_ENTRY_INTS: Final = ENTRY_BYTES // 4
_SIZE_INT: Final = 2
_NUMBERS: Final = 3
"""Numbers of one sample."""


def _no_samples() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Item:
    """A counted item: number of events and total amount."""

    times: int = 0
    value: int = 0
    minute: array[int] = field(default_factory=_no_samples)
    """Samples of the last minute, the oldest first: the time (epoch ms), `times` and `value` of each. There
    may be 100,000 items, and arrays take much less memory than objects."""
    hour: array[int] = field(default_factory=_no_samples)
    day: array[int] = field(default_factory=_no_samples)

    def add(self, value: int, times: int) -> None:
        """Add to the counters."""
        self.value += value
        self.times += times


def keep(samples: array[int], sample: tuple[int, int, int], most: int) -> None:
    """Add a sample to those of an item, and drop the oldest if there are more than `most`."""
    samples.extend(sample)
    if len(samples) > most * _NUMBERS:
        del samples[:_NUMBERS]


def rates(samples: array[int]) -> BrokerStatsItem:
    """Sum, rate and average between the first and the last of the samples."""
    if not samples:
        return BrokerStatsItem()
    (begin_ms, begin_times, begin), (end_ms, end_times, end) = samples[:_NUMBERS], samples[-_NUMBERS:]
    total, times, passed = end - begin, end_times - begin_times, end_ms - begin_ms
    return BrokerStatsItem(
        sum=total,
        tps=total * 1000 / passed if passed > 0 else 0.0,
        avgpt=total / times if times > 0 else 0.0,
    )


def sizes_of(queue: ConsumeQueue, start: int, end: int) -> Iterator[array[int]]:
    """The sizes of the records of a queue's entries from `start` up to `end`, in pieces."""
    while start < end:
        entries = queue.entries(start, min(end, start + PIECE_ENTRIES))
        if not entries:
            return
        numbers = array("i")
        numbers.frombytes(entries)
        sizes = numbers[_SIZE_INT::_ENTRY_INTS]
        if sys.byteorder == "little":
            sizes.byteswap()
        yield sizes
        start += len(sizes)


class BrokerStats:
    """Counts of one broker. Belongs to its loop; `tick` about once a second."""

    def __init__(self, cluster: str, store: MessageStore, pulling: PullPath, clock: Clock) -> None:
        self._cluster = cluster
        self._store = store
        self._pulling = pulling
        self._clock = clock
        self._items: dict[tuple[str, str], Item] = {}
        self._of_queues: dict[tuple[str, str], Item] = {}
        """Those of single queues, apart: they are many, and only tools ask for them."""
        self._put = {queue: queue.committed for queue in store.all_queues()}
        self._pulled: dict[tuple[ConsumeQueue, str], int] = {}
        self._uncounted: deque[tuple[tuple[ConsumeQueue, str], tuple[int, int, int, int]]] = deque()
        """Taken from the pull path, but not counted yet: passes may overlap, or end before they are done."""
        self.sizes = Histogram(SIZE_BOUNDS)
        """Sizes of the records stored since the start."""
        self._gone: set[str] = set()
        """Topics and groups that were deleted since the last sample."""
        self._samples = 0
        self._due = clock.monotonic() + SAMPLE_SECONDS
        self._today = self._date()
        self.put_total = self.get_total = 0
        self.put_today = self.put_yesterday = self.get_today = self.get_yesterday = 0
        for name in ("BROKER_PUT_NUMS", "BROKER_GET_NUMS"):
            for suffix in ("", "_WITHOUT_SYSTEM_TOPIC"):
                self._items[name + suffix, cluster] = Item()

    def count(self, name: str, key: str, value: int = 1, times: int = 1) -> None:
        """Count a rare event, for example `SNDBCK_PUT_NUMS` of `topic@group`."""
        items = self._with(name)
        item = items.get((name, key))
        if item is None:
            if len(items) >= ITEMS_MAX:
                return
            item = items[name, key] = Item()
        item.add(value, times)

    def _with(self, name: str) -> dict[tuple[str, str], Item]:
        return self._of_queues if name.startswith("QUEUE_") else self._items

    def items(self) -> dict[tuple[str, str], Item]:
        """All items except those of single queues, by name and key; in any thread. The items still count."""
        return self._items.copy()

    def pulled(self, queue: ConsumeQueue, group: str) -> int | None:
        """The offset after the last message of a queue that was sent to a group; None when it is unknown, as
        after a restart.
        """
        return self._pulled.get((queue, group))

    def forget(self, *names: str) -> None:
        """Topics or groups were deleted: the next sample removes their counters."""
        self._gone.update(names)

    def _drop_gone(self) -> Iterator[None]:
        """Process many deletions in one pass over all items. A key has names and a queue id with `@`
        between."""
        gone, self._gone = self._gone, set()
        if gone:
            for items in (self._items, self._of_queues):
                for item in list(items):
                    if not gone.isdisjoint(item[1].split("@")):
                        items.pop(item, None)
                    yield
            for queue, group in list(self._pulled):
                if queue.deleted or group in gone:
                    self._pulled.pop((queue, group), None)
                yield

    def view(self, name: str, key: str) -> BrokerStatsData | None:
        """The rates of the last minute, hour and day; None when that name and key were never counted.

        Run `collecting` first to include the latest counts.
        """
        item = self._with(name).get((name, key))
        if item is None:
            return None
        return BrokerStatsData(
            stats_minute=rates(item.minute), stats_hour=rates(item.hour), stats_day=rates(item.day)
        )

    def minute_rate(self, name: str, key: str) -> float:
        """Per second over the last minute; 0 when nothing was counted."""
        item = self._with(name).get((name, key))
        return 0.0 if item is None else rates(item.minute).tps

    def tick(self) -> None:
        """Take samples that are due, in steps."""
        now = self._clock.monotonic()
        self._store.stats.tick(now)
        if now >= self._due:
            self._due = now + SAMPLE_SECONDS
            shared().run(self._sampling())

    def _sampling(self) -> Iterator[None]:
        yield from self.collecting()
        yield from self._drop_gone()
        yield from self._sample()
        self._turn_day()

    def collecting(self) -> Generator[None, None, None]:
        """Collect the messages stored and pulled since the last time, in steps."""
        grown: list[ConsumeQueue] = []
        found = yield from self.finding(grown)
        yield from self.counting(grown)
        if len(self._put) > found:
            self._put = {queue: offset for queue, offset in self._put.items() if not queue.deleted}

    def finding(self, grown: list[ConsumeQueue]) -> Generator[None, None, int]:
        """Find the queues that have messages to be counted, in steps; returns how many queues there are.

        In any thread: of a queue it reads only the end.
        """
        known, found = self._put, 0
        for queues in self._store.each_topic():
            found += len(queues)
            grown += [queue for queue in queues if queue.committed > known.get(queue, 0)]
            yield
        return found

    def counting(self, grown: Iterable[ConsumeQueue]) -> Iterator[None]:
        """Count the new messages of these queues, and what was pulled, in steps."""
        yield from self._collect_puts(grown)
        yield from self._collect_gets()

    def _collect_puts(self, grown: Iterable[ConsumeQueue]) -> Iterator[None]:
        for queue in grown:
            yield
            end = queue.committed
            while self._count_piece(queue, end):
                yield

    def _count_piece(self, queue: ConsumeQueue, end: int) -> bool:
        """Count the next messages of a queue before `end`; returns whether there were any. Each is taken and
        counted at once: another pass may begin meanwhile, and this one may not be finished."""
        start = self._put.get(queue, 0)
        if end <= start or queue.deleted:
            return False
        try:
            sizes = next(sizes_of(queue, start, end), None)
        except StoreBusyError:
            return False  # the next pass counts them
        number, size = end - start, 0
        if sizes is not None:
            number, size = len(sizes), sum(sizes)
            self.sizes.add_all(sizes)
        self._put[queue] = start + number
        topic = queue.topic
        self.count("TOPIC_PUT_NUMS", topic, number, number)
        self.count("TOPIC_PUT_SIZE", topic, size, number)
        self.count("QUEUE_PUT_NUMS", f"{topic}@{queue.queue_id}", number, number)
        self.count("QUEUE_PUT_SIZE", f"{topic}@{queue.queue_id}", size, number)
        self.count("BROKER_PUT_NUMS", self._cluster, number, number)
        if not is_system_topic(topic):
            self.put_total += number
            self.count("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", self._cluster, number, number)
        return True

    def _collect_gets(self) -> Iterator[None]:
        self._uncounted.extend(self._pulling.take_counts())
        counted = 0
        while self._uncounted:
            (queue, group), (number, size, times, end) = self._uncounted.popleft()
            topic = queue.topic
            if (queue, group) in self._pulled or len(self._pulled) < PULLED_MAX:
                self._pulled[queue, group] = end
            self.count("GROUP_GET_NUMS", f"{topic}@{group}", number, times)
            self.count("GROUP_GET_SIZE", f"{topic}@{group}", size, times)
            self.count("QUEUE_GET_NUMS", f"{topic}@{queue.queue_id}@{group}", number, times)
            self.count("QUEUE_GET_SIZE", f"{topic}@{queue.queue_id}@{group}", size, times)
            self.count("BROKER_GET_NUMS", self._cluster, number, times)
            if not is_system_topic(topic):
                self.get_total += number
                self.count("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", self._cluster, number, times)
            counted += 1
            if counted % PIECE_PULLS == 0:
                yield

    def _sample(self) -> Iterator[None]:
        now_ms = self._clock.now_ms()
        number, self._samples = self._samples, self._samples + 1
        steps, rest = divmod(number, SAMPLES_AN_HOUR_STEP)
        for item in [*self._items.values(), *self._of_queues.values()]:
            yield
            sample = now_ms, item.times, item.value
            if not item.minute:
                item.minute.extend((now_ms - int(SAMPLE_SECONDS * 1000), 0, 0))
            keep(item.minute, sample, MINUTE_SAMPLES)
            if rest == 0 or not item.hour:
                keep(item.hour, sample, HOUR_SAMPLES)
            if (rest == 0 and steps % HOUR_STEPS_A_DAY_STEP == 0) or not item.day:
                keep(item.day, sample, DAY_SAMPLES)

    def _date(self) -> date:
        return date.fromtimestamp(self._clock.now_ms() / 1000)

    def _turn_day(self) -> None:
        """At midnight, local time: record the totals so far."""
        today = self._date()
        if today != self._today:
            self._today = today
            self.put_yesterday, self.put_today = self.put_today, self.put_total
            self.get_yesterday, self.get_today = self.get_today, self.get_total
