from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.rig import ManualClock, append, open_store

from sparrowmq.broker import stats as module
from sparrowmq.broker.stats import BrokerStats, Item, Snapshot, bytes_of, rates
from sparrowmq.store.message_store import MessageStore

DAY_MS = 86_400_000


class Pulling:
    """What a pull path counted."""

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
        """Let time pass, a tick each ten seconds."""
        for _ in range(int(seconds / 10)):
            self.clock.ms += 10_000
            self.stats.tick()

    def minute(self, name: str, key: str) -> tuple[int, float, float]:
        found = self.stats.view(name, key)
        assert found is not None, (name, key)
        item = found.stats_minute
        return item.sum, item.tps, item.avgpt


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.store.close()


@pytest.mark.proves("broker:16.2")
def test_puts_by_topic_and_queue(rig: Rig) -> None:
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
def test_gets_by_group(rig: Rig) -> None:
    queue = rig.store.queue("T", 1)
    rig.pulling.counts = [((queue, "g"), (64, 6400, 2)), ((queue, "h"), (1, 100, 1))]
    rig.wait(10)
    assert rig.minute("GROUP_GET_NUMS", "T@g") == (64, 6.4, 32.0)
    assert rig.minute("GROUP_GET_SIZE", "T@g") == (6400, 640.0, 3200.0)
    assert rig.minute("QUEUE_GET_NUMS", "T@1@h")[0] == 1
    assert rig.minute("BROKER_GET_NUMS", "C")[0] == 65
    assert rig.stats.minute_rate("GROUP_GET_NUMS", "T@g") == 6.4
    assert rig.stats.minute_rate("GROUP_GET_NUMS", "T@nobody") == 0.0


@pytest.mark.proves("broker:16.2")
def test_what_was_never_counted_does_not_exist(rig: Rig) -> None:
    assert rig.stats.view("TOPIC_PUT_NUMS", "T") is None
    assert rig.minute("BROKER_PUT_NUMS", "C") == (0, 0.0, 0.0)
    rig.stats.count("SNDBCK_PUT_NUMS", "T@g")
    assert rig.minute("SNDBCK_PUT_NUMS", "T@g") == (0, 0.0, 0.0)  # not sampled yet
    rig.wait(10)
    assert rig.minute("SNDBCK_PUT_NUMS", "T@g") == (1, 0.1, 1.0)


@pytest.mark.proves("broker:16.2")
def test_minute_hour_and_day_hold_what_they_say(rig: Rig) -> None:
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
    item = rig.stats._items["TOPIC_PUT_NUMS", "T"]
    assert (len(item.minute), len(item.hour), len(item.day)) == (7, 7, 25)


def test_messages_of_before_the_start_are_not_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.put("T", 5)
    again = BrokerStats("C", rig.store, rig.pulling, rig.clock)
    assert again.view("TOPIC_PUT_NUMS", "T") is None
    rig.put("T", 2)
    again.collect()
    assert again.put_total == 2
    rig.store.close()


def test_a_topic_that_was_deleted_and_made_again(rig: Rig) -> None:
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
def test_totals_of_yesterday_and_today(rig: Rig) -> None:
    rig.put("T", 3)
    rig.put("SCHEDULE_TOPIC_XXXX", 4)
    rig.clock.ms += DAY_MS
    rig.wait(10)
    assert (rig.stats.put_yesterday, rig.stats.put_today, rig.stats.put_total) == (0, 3, 3)
    rig.put("T", 2)
    rig.clock.ms += DAY_MS
    rig.wait(10)
    rig.put("T", 1)
    rig.stats.collect()
    assert (rig.stats.put_yesterday, rig.stats.put_today, rig.stats.put_total) == (3, 5, 6)
    assert rig.minute("BROKER_PUT_NUMS", "C")[0] >= 0
    assert rig.stats.get_total == 0


def test_what_is_counted_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ITEMS_MAX", 6)
    for number in range(50):
        rig.stats.count("X", str(number))
    assert len(rig.stats._items) == 6
    assert rig.stats.view("X", "40") is None


def test_sizes_over_several_files(rig: Rig) -> None:
    for number in range(35):
        rig.put("T", 1, size=number)
    queue = rig.store.queue("T", 0)
    for start, end in ((0, 35), (3, 4), (9, 21), (35, 35)):
        assert bytes_of(queue, start, end) == sum(92 + size for size in range(start, end))
    assert bytes_of(queue, 40, 50) == 0


def test_rates_of_nothing() -> None:
    item = Item()
    assert rates(item.minute).sum == 0
    item.minute.append(Snapshot(5, 1, 1))
    item.minute.append(Snapshot(5, 1, 1))
    assert (rates(item.minute).tps, rates(item.minute).avgpt) == (0.0, 0.0)
