from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol.archives import CLEAN_5, ledger
from tests.store.rig import ARCHIVE_SIZES, START_MS, copy_archive, opened, put

from sparrowmq.store import time_search
from sparrowmq.store.consume_queue import CORRUPT_CODE, ENTRY

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
def test_both_boundaries(timestamp: int, lower: int, upper: int, tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_consume_queue=40) as store:
        queue = store.queue("T", 0)
        for time in TIMES:
            put(store, queue, b"x", now_ms=START_MS + time)
        assert store.offset_by_time(queue, START_MS + timestamp) == lower
        assert store.offset_by_time(queue, START_MS + timestamp, "LOWER") == lower
        assert store.offset_by_time(queue, START_MS + timestamp, "UPPER") == upper


@pytest.mark.proves("broker:3.7")
def test_empty_queue_gives_zero(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        assert store.offset_by_time(queue, START_MS) == 0
        assert store.offset_by_time(queue, START_MS, "UPPER") == 0


@pytest.mark.proves("broker:3.7")
def test_answers_stay_within_what_is_left(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for time in TIMES:
            put(store, queue, b"x", now_ms=START_MS + time)
        queue.min_offset = 4
        assert store.offset_by_time(queue, 0) == 4
        assert store.offset_by_time(queue, 0, "UPPER") == 4
        assert store.store_time(queue, 3) is None


def test_store_time_of_one_message(tmp_path: Path) -> None:
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
            found = store.offset_by_time(queue, START_MS + wanted)
            assert found <= wanted
            assert set(range(found, wanted)) <= set(damaged)


@given(times=st.lists(st.integers(0, 20), min_size=1, max_size=60), probe=st.integers(-2, 25))
@pytest.mark.proves("broker:3.7")
def test_search_agrees_with_counting(times: list[int], probe: int) -> None:
    times.sort()

    class Queue:
        min_offset, max_offset = 0, len(times)

    class Log:
        pass

    real: Callable[..., int | None] = time_search.store_time
    time_search.store_time = lambda log, queue, offset: times[offset]
    try:
        lower = time_search.offset_by_time(Log(), Queue(), probe, "LOWER")
        upper = time_search.offset_by_time(Log(), Queue(), probe, "UPPER")
    finally:
        time_search.store_time = real
    assert lower == sum(time < probe for time in times)
    assert upper == max(0, sum(time <= probe for time in times) - 1)


def test_real_queues_are_found_by_their_times(tmp_path: Path) -> None:
    seen = [line for line in ledger(CLEAN_5, "seen") if line["topic"] == "FxPlainA" and line["queueId"] == 0]
    with opened(copy_archive(CLEAN_5, tmp_path / "store"), **ARCHIVE_SIZES) as store:
        queue = store.queue("FxPlainA", 0)
        for line in seen:
            first = min(other["queueOffset"] for other in seen if other["store"] == line["store"])
            last = max(other["queueOffset"] for other in seen if other["store"] == line["store"])
            assert store.offset_by_time(queue, line["store"]) == first
            assert store.offset_by_time(queue, line["store"], "UPPER") == last
