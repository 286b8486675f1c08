from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.archives import CLEAN_5, ledger
from tests.store.rig import ARCHIVE_SIZES, START_MS, by_time, copy_archive, ended, opened, put

from sparrowmq.store.queues import time_search
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, ENTRY

TIMES = [10, 20, 20, 20, 30, 50]


@pytest.mark.proves("broker:3.7")
@pytest.mark.parametrize(
    ("timestamp", "lower", "upper"),
    [
        (0, 0, 0),
        (10, 0, 0),
        (11, 1, 0),
        (20, 1, 3),
        (21, 4, 3),
        (30, 4, 4),
        (49, 5, 4),
        (50, 5, 5),
        (51, 6, 5),
    ],
)
def test_both_boundaries_are_found(timestamp: int, lower: int, upper: int, tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_consume_queue=40) as store:
        queue = store.queue("T", 0)
        for time in TIMES:
            put(store, queue, b"x", now_ms=START_MS + time)
        assert by_time(store, queue, START_MS + timestamp) == lower
        assert by_time(store, queue, START_MS + timestamp, "LOWER") == lower
        assert by_time(store, queue, START_MS + timestamp, "UPPER") == upper


@pytest.mark.proves("broker:3.7")
def test_empty_queue_gives_zero(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        assert by_time(store, queue, START_MS) == 0
        assert by_time(store, queue, START_MS, "UPPER") == 0


@pytest.mark.proves("broker:3.7")
def test_results_stay_within_existing_offsets(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for time in TIMES:
            put(store, queue, b"x", now_ms=START_MS + time)
        queue.min_offset = 4
        assert by_time(store, queue, 0) == 4
        assert by_time(store, queue, 0, "UPPER") == 4
        assert store.store_time(queue, 3) is None


def test_store_time_of_one_message_is_returned(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for time in TIMES:
            put(store, queue, b"x", now_ms=START_MS + time)
        assert [store.store_time(queue, offset) for offset in range(6)] == [START_MS + time for time in TIMES]
        assert store.store_time(queue, -1) is None
        assert store.store_time(queue, 6) is None
        queue.restore(2, ENTRY.pack(1, 100, 0))
        assert store.store_time(queue, 2) is None
        queue.restore(2, ENTRY.pack(1, 3, 0))
        assert store.store_time(queue, 2) is None


@pytest.mark.parametrize("damaged", [(0,), (5,), (1, 2, 3), (0, 1, 2, 3, 4), (2, 5), (0, 1, 2, 3, 4, 5)])
def test_damaged_messages_do_not_stop_the_search(damaged: tuple[int, ...], tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for number in range(6):
            put(store, queue, b"x", now_ms=START_MS + number)
        for offset in damaged:
            entry = queue.entry(offset)
            assert entry is not None
            queue.restore(offset, ENTRY.pack(entry.physical_offset, entry.size, CORRUPT_CODE))
        for wanted in set(range(6)) - set(damaged):
            found = by_time(store, queue, START_MS + wanted)
            assert found <= wanted
            assert set(range(found, wanted)) <= set(damaged)


def searched(times: list[int], per_file: int, probe: int) -> tuple[int, int]:
    """The results for both boundaries in a queue of messages with these store times."""

    class Queue:
        min_offset, max_offset, entries_per_file = 0, len(times), per_file

    class Log:
        pass

    real: Callable[..., int | None] = time_search.store_time
    time_search.store_time = lambda log, queue, offset: times[offset]
    try:
        lower = ended(time_search.searching(Log(), Queue(), probe, "LOWER"))[0]
        upper = ended(time_search.searching(Log(), Queue(), probe, "UPPER"))[0]
    finally:
        time_search.store_time = real
    return lower, upper


TIME_LISTS = st.lists(st.integers(0, 20), min_size=1, max_size=60)


@given(times=TIME_LISTS, per_file=st.integers(1, 70), probe=st.integers(-2, 25))
@pytest.mark.proves("broker:3.7")
def test_search_agrees_with_a_linear_scan(times: list[int], per_file: int, probe: int) -> None:
    times.sort()
    lower, upper = searched(times, per_file, probe)
    assert lower == sum(time < probe for time in times)
    assert upper == max(0, sum(time <= probe for time in times) - 1)


@given(times=TIME_LISTS, per_file=st.integers(1, 70), probe=st.integers(-2, 25))
def test_result_is_a_crossing_of_the_time_when_times_go_back(
    times: list[int], per_file: int, probe: int
) -> None:
    lower, upper = searched(times, per_file, probe)
    assert lower == len(times) or times[lower] >= probe
    assert lower == 0 or times[lower - 1] < probe
    assert upper == 0 or times[upper] <= probe
    assert upper == len(times) - 1 or times[upper + 1] > probe or upper == 0


def test_message_stored_while_the_clock_was_ahead_does_not_mislead_searches(tmp_path: Path) -> None:
    year = 365 * 86_400_000
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"in the future", now_ms=START_MS + year)
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for number in range(30):
            put(store, queue, b"x", now_ms=START_MS + number * 1000)
        assert store.store_time(queue, 30) == START_MS + 29_000
        assert by_time(store, queue, START_MS + 3_600_000) == 31
        assert by_time(store, queue, START_MS + 3_600_000, "UPPER") == 30
        for number in range(12, 30):  # behind the file of the one that is ahead
            assert by_time(store, queue, START_MS + number * 1000 - 500) in (0, number + 1)


def test_real_queues_are_found_by_their_times(tmp_path: Path) -> None:
    seen = [line for line in ledger(CLEAN_5, "seen") if line["topic"] == "FxPlainA" and line["queueId"] == 0]
    with opened(copy_archive(CLEAN_5, tmp_path / "store"), **ARCHIVE_SIZES) as store:
        queue = store.queue("FxPlainA", 0)
        for line in seen:
            first = min(other["queueOffset"] for other in seen if other["store"] == line["store"])
            last = max(other["queueOffset"] for other in seen if other["store"] == line["store"])
            assert by_time(store, queue, line["store"]) == first
            assert by_time(store, queue, line["store"], "UPPER") == last


def test_search_over_damaged_messages_reads_one_per_step(tmp_path: Path) -> None:
    """Other requests wait during a step: a damaged file has 300,000 entries."""
    with opened(tmp_path, mapped_file_size_consume_queue=1000) as store:
        queue = store.queue("T", 0)
        for number in range(40):
            put(store, queue, b"x", now_ms=START_MS + number)
        assert ended(store.searching(queue, START_MS + 20)) == (20, 0)
        for offset in range(5, 40):
            entry = queue.entry(offset)
            assert entry is not None
            queue.restore(offset, ENTRY.pack(entry.physical_offset, entry.size, CORRUPT_CODE))
        found, steps = ended(store.searching(queue, START_MS + 20))
        assert found == 5 and steps >= 20


def test_search_reads_one_file_per_step(tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_consume_queue=40) as store:
        queue = store.queue("T", 0)
        for number in range(20):
            put(store, queue, b"x", now_ms=START_MS + number)
        assert ended(store.searching(queue, START_MS + 18)) == (18, 9)
