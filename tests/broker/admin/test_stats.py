from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.rig import ManualClock, append, open_store

from sparrowmq.broker.admin import stats as module
from sparrowmq.broker.admin.stats import BrokerStats, Item, rates, sizes_of
from sparrowmq.core.errors import StoreBusyError
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue

DAY_MS = 86_400_000


class Pulling:
    """The counts of a pull path."""

    def __init__(self) -> None:
        self.counts: list[Any] = []

    def take_counts(self) -> list[Any]:
        counts, self.counts = self.counts, []
        return counts


class Rig:
    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.store: MessageStore = open_store(root, clock=self.clock)
        self.pulling = Pulling()
        self.stats = BrokerStats("C", self.store, self.pulling, self.clock)

    def put(self, topic: str, count: int, queue_id: int = 0, size: int = 10) -> None:
        queue = self.store.queue(topic, queue_id)
        for _ in range(count):
            append(self.store, queue, b"x" * size)
        self.store.commit_chunk()

    def wait(self, seconds: float) -> None:
        """Advance the clock, with a tick every ten seconds."""
        for _ in range(int(seconds / 10)):
            self.clock.ms += 10_000
            self.stats.tick()

    def minute(self, name: str, key: str) -> tuple[int, float, float]:
        found = self.stats.view(name, key)
        assert found is not None, (name, key)
        item = found.stats_minute
        return item.sum, item.tps, item.avgpt


def take_over(stats: BrokerStats) -> int:
    """Let it sample what was put and pulled; returns the number of steps."""
    return sum(1 for _ in stats.collecting())


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.store.close()


@pytest.mark.proves("broker:16.2")
def test_puts_are_counted_by_topic_and_queue(rig: Rig) -> None:
    rig.put("T", 30)
    rig.put("T", 15, queue_id=2, size=20)
    rig.put("U", 5)
    rig.wait(10)
    assert rig.minute("TOPIC_PUT_NUMS", "T") == (45, 4.5, 1.0)
    assert rig.minute("QUEUE_PUT_NUMS", "T@0") == (30, 3.0, 1.0)
    assert rig.minute("QUEUE_PUT_NUMS", "T@2")[0] == 15
    total, _, average = rig.minute("TOPIC_PUT_SIZE", "T")
    record = 91 + len("T")
    assert total == 30 * (record + 10) + 15 * (record + 20)
    assert average == pytest.approx(total / 45)
    assert rig.minute("QUEUE_PUT_SIZE", "U@0")[0] == 5 * (record + 10)
    assert rig.minute("BROKER_PUT_NUMS", "C")[0] == 50


@pytest.mark.proves("broker:16.2")
def test_gets_are_counted_by_group(rig: Rig) -> None:
    queue = rig.store.queue("T", 1)
    rig.pulling.counts = [((queue, "g"), (64, 6400, 2, 64)), ((queue, "h"), (1, 100, 1, 1))]
    rig.wait(10)
    assert rig.minute("GROUP_GET_NUMS", "T@g") == (64, 6.4, 32.0)
    assert rig.minute("GROUP_GET_SIZE", "T@g") == (6400, 640.0, 3200.0)
    assert rig.minute("QUEUE_GET_NUMS", "T@1@h")[0] == 1
    assert rig.minute("BROKER_GET_NUMS", "C")[0] == 65
    assert rig.stats.minute_rate("GROUP_GET_NUMS", "T@g") == 6.4
    assert rig.stats.minute_rate("GROUP_GET_NUMS", "T@nobody") == 0.0


@pytest.mark.proves("broker:16.2")
def test_never_counted_statistics_do_not_exist(rig: Rig) -> None:
    assert rig.stats.view("TOPIC_PUT_NUMS", "T") is None
    assert rig.minute("BROKER_PUT_NUMS", "C") == (0, 0.0, 0.0)
    rig.stats.count("SNDBCK_PUT_NUMS", "T@g")
    assert rig.minute("SNDBCK_PUT_NUMS", "T@g") == (0, 0.0, 0.0)  # not sampled yet
    rig.wait(10)
    assert rig.minute("SNDBCK_PUT_NUMS", "T@g") == (1, 0.1, 1.0)


@pytest.mark.proves("broker:16.2")
def test_minute_hour_and_day_statistics_cover_their_periods(rig: Rig) -> None:
    for _ in range(6 * 60 * 30):  # thirty hours
        rig.put("T", 1)
        rig.wait(10)
    found = rig.stats.view("TOPIC_PUT_NUMS", "T")
    assert found is not None
    assert found.stats_minute.sum == 6
    assert found.stats_hour.sum == 360
    assert found.stats_day.sum == 6 * 60 * 24
    for item in (found.stats_minute, found.stats_hour, found.stats_day):
        assert item.tps == pytest.approx(0.1)
    kept = rig.stats._items["TOPIC_PUT_NUMS", "T"]
    assert [len(each) // 3 for each in (kept.minute, kept.hour, kept.day)] == [7, 7, 25]


def test_messages_from_before_the_start_are_not_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.put("T", 5)
    again = BrokerStats("C", rig.store, rig.pulling, rig.clock)
    assert again.view("TOPIC_PUT_NUMS", "T") is None
    rig.put("T", 2)
    take_over(again)
    assert again.put_total == 2
    rig.store.close()


def test_recreated_topic_is_counted_from_zero(rig: Rig) -> None:
    rig.put("T", 5)
    rig.wait(10)
    rig.store.delete_topic("T")
    rig.put("T", 3)
    rig.wait(10)
    assert rig.stats.put_total == 8
    for number in range(5):
        rig.put(f"Gone{number}", 1)
        rig.wait(10)
        rig.store.delete_topic(f"Gone{number}")
    rig.wait(10)
    assert all(not queue.deleted for queue in rig.stats._put)


@pytest.mark.proves("broker:16.1")
def test_totals_of_yesterday_and_today_are_kept(rig: Rig) -> None:
    rig.put("T", 3)
    rig.put("SCHEDULE_TOPIC_XXXX", 4)
    rig.clock.ms += DAY_MS
    rig.wait(10)
    assert (rig.stats.put_yesterday, rig.stats.put_today, rig.stats.put_total) == (0, 3, 3)
    rig.put("T", 2)
    rig.clock.ms += DAY_MS
    rig.wait(10)
    rig.put("T", 1)
    take_over(rig.stats)
    assert (rig.stats.put_yesterday, rig.stats.put_today, rig.stats.put_total) == (3, 5, 6)
    assert rig.minute("BROKER_PUT_NUMS", "C")[0] >= 0
    assert rig.stats.get_total == 0


def test_number_of_statistics_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ITEMS_MAX", 6)
    for number in range(50):
        rig.stats.count("X", str(number))
    assert len(rig.stats._items) == 6
    assert rig.stats.view("X", "40") is None


def test_sizes_over_several_files_are_counted(rig: Rig) -> None:
    for number in range(35):
        rig.put("T", 1, size=number)
    queue = rig.store.queue("T", 0)
    for start, end in ((0, 35), (3, 4), (9, 21), (35, 35)):
        found = [size for piece in sizes_of(queue, start, end) for size in piece]
        assert found == [92 + size for size in range(start, end)]
    assert not list(sizes_of(queue, 40, 50))


def test_rates_without_data_are_zero() -> None:
    item = Item()
    assert rates(item.minute).sum == 0
    item.minute.extend((5, 1, 1))
    item.minute.extend((5, 1, 1))
    assert (rates(item.minute).tps, rates(item.minute).avgpt) == (0.0, 0.0)


def test_statistics_of_an_item_take_little_memory(rig: Rig) -> None:
    """There may be 100,000 items, each with the samples of a day."""
    rig.stats.count("SNDBCK_PUT_NUMS", "T@g")
    rig.wait(86_400 + 3_600)
    item = rig.stats.items()["SNDBCK_PUT_NUMS", "T@g"]
    spans = (item.minute, item.hour, item.day)
    assert [len(span) for span in spans] == [3 * 7, 3 * 7, 3 * 25]
    assert sum(map(sys.getsizeof, (item, *spans))) < 2000


def test_statistics_of_deleted_topics_are_removed_and_make_room(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.put("T", 5)
    rig.put("U", 5)
    rig.stats.count("SNDBCK_PUT_NUMS", "U@g")
    rig.stats.count("SNDBCK_PUT_NUMS", "U@other")
    rig.wait(20)
    assert rig.stats.view("TOPIC_PUT_NUMS", "T") is not None
    rig.store.delete_topic("T")
    rig.stats.forget("T")
    rig.stats.forget("g", "%RETRY%g")
    rig.wait(10)
    for name, key in (("TOPIC_PUT_NUMS", "T"), ("QUEUE_PUT_SIZE", "T@0"), ("SNDBCK_PUT_NUMS", "U@g")):
        assert rig.stats.view(name, key) is None
    for name, key in (("TOPIC_PUT_NUMS", "U"), ("SNDBCK_PUT_NUMS", "U@other"), ("BROKER_PUT_NUMS", "C")):
        assert rig.stats.view(name, key) is not None
    monkeypatch.setattr(module, "ITEMS_MAX", sum("QUEUE" not in name for name, _ in rig.stats._items))
    rig.stats.count("TOPIC_PUT_NUMS", "new")
    assert rig.stats.view("TOPIC_PUT_NUMS", "new") is None, "there is no room"
    rig.stats.forget("U")
    rig.wait(10)
    rig.stats.count("TOPIC_PUT_NUMS", "new")
    assert rig.stats.view("TOPIC_PUT_NUMS", "new") is not None


def test_many_queues_are_sampled_one_per_step(rig: Rig) -> None:
    for queue_id in range(20):
        rig.put("T", 1, queue_id=queue_id)
    assert take_over(rig.stats) >= 20
    assert rig.stats.put_total == 20


def test_queue_without_an_open_file_is_counted_later(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too few open files for one queue do not affect the counts of the others."""

    def busy(queue: ConsumeQueue, start: int, end: int) -> Iterator[array[int]]:
        if queue.queue_id == 0:
            raise StoreBusyError("no open file is left")
        return sizes_of(queue, start, end)

    rig.put("T", 1)
    rig.put("T", 1, queue_id=1)
    with monkeypatch.context() as patch:
        patch.setattr(module, "sizes_of", busy)
        take_over(rig.stats)
    assert rig.stats.put_total == 1
    take_over(rig.stats)
    assert rig.stats.put_total == 2


def test_concurrent_sample_counts_nothing_twice(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape may begin while another sample is in progress."""
    monkeypatch.setattr(module, "PIECE_ENTRIES", 2)
    rig.put("T", 7)
    first = rig.stats.collecting()
    next(first)
    next(first)
    rig.put("T", 2)
    take_over(rig.stats)
    for _ in first:
        pass
    assert rig.stats.put_total == 9
    assert rig.stats.sizes.count == 9


def test_sample_that_is_not_finished_loses_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape may be cancelled."""
    monkeypatch.setattr(module, "PIECE_ENTRIES", 2)
    monkeypatch.setattr(module, "PIECE_PULLS", 1)
    rig.put("T", 7)
    queue = rig.store.queue("T", 0)
    rig.pulling.counts = [((queue, f"g{number}"), (1, 100, 1, number)) for number in range(3)]
    for steps in range(20):
        unfinished = rig.stats.collecting()
        for _ in range(steps):
            next(unfinished, None)
        unfinished.close()
    assert (rig.stats.put_total, rig.stats.sizes.count, rig.stats.get_total) == (7, 7, 3)
    assert rig.stats.pulled(queue, "g2") == 2


def test_queue_whose_sample_fails_continues_from_there(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_ENTRIES", 2)
    rig.put("T", 7)

    def short(queue: ConsumeQueue, start: int, end: int) -> Iterator[array[int]]:
        if start >= 4:
            raise StoreBusyError("no open file is left")
        return sizes_of(queue, start, end)

    with monkeypatch.context() as patch:
        patch.setattr(module, "sizes_of", short)
        take_over(rig.stats)
    assert rig.stats.put_total == 4
    take_over(rig.stats)
    assert (rig.stats.put_total, rig.stats.sizes.count) == (7, 7)


def test_queue_statistics_leave_room_for_topic_statistics(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ITEMS_MAX", 10)
    for number in range(50):
        rig.stats.count("QUEUE_PUT_NUMS", f"T@{number}")
    rig.stats.count("TOPIC_PUT_NUMS", "T", 3)
    assert rig.stats.items()["TOPIC_PUT_NUMS", "T"].value == 3
    kept = [rig.stats.view("QUEUE_PUT_NUMS", f"T@{number}") is not None for number in range(50)]
    assert kept == [True] * 10 + [False] * 40
    rig.stats.forget("T")
    for _ in rig.stats._drop_gone():
        pass
    rig.stats.count("QUEUE_PUT_NUMS", "U@0")
    assert rig.stats.view("QUEUE_PUT_NUMS", "U@0") is not None, "deleted ones make room"


def test_pull_counts_of_a_group_are_kept_until_it_or_the_topic_is_deleted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PULLED_MAX", 2)
    rig.put("T", 5)
    queue = rig.store.queue("T", 0)
    for group, end in (("a", 1), ("b", 2), ("c", 3), ("a", 4)):
        rig.pulling.counts = [((queue, group), (1, 100, 1, end))]
        take_over(rig.stats)
    assert [rig.stats.pulled(queue, group) for group in "abc"] == [4, 2, None], "at most two are known"
    rig.stats.forget("a")
    for _ in rig.stats._drop_gone():
        pass
    assert [rig.stats.pulled(queue, group) for group in "ab"] == [None, 2]
