"""Store times read in another thread agree with the store's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.store.rig import HOST_V6, START_MS, opened, put

from sparrowmq.files import disk
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, ENTRY, ConsumeQueue

TIMES = [10, 20, 20, 40]


def change_entry(queue: ConsumeQueue, offset: int, entry: bytes) -> None:
    segment = queue.file_of(offset)
    assert segment is not None
    at = offset * len(entry) - segment.base
    segment.map()[at : at + len(entry)] = entry


@pytest.mark.parametrize("mapped", [True, False])
def test_times_are_those_of_the_store(tmp_path: Path, mapped: bool) -> None:
    with opened(tmp_path, mapped_file_size_consume_queue=40) as store:
        queue, other = store.queue("T", 0), store.queue("T", 1)
        for time in TIMES:
            put(store, queue, b"x" * 2000, now_ms=START_MS + time)  # two in a file of the log
        put(store, other, b"x", now_ms=START_MS + 50, born_host=HOST_V6, sys_flag=0x10)
        if not mapped:
            for segment in (*queue.files, *other.files, *store._log.files):
                segment.unmap()
        times = store.store_times()
        assert [times.of(queue, offset) for offset in range(4)] == [START_MS + time for time in TIMES]
        assert times.of(other, 0) == START_MS + 50 == store.store_time(other, 0)
        times.close()
        times.close()


def test_reading_maps_nothing_and_leaves_nothing_open(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queues = [store.queue(f"T{number}", 0) for number in range(3)]
        for queue in queues:
            put(store, queue, b"x")
    with opened(tmp_path) as store:
        queues = [store.queue(f"T{number}", 0) for number in range(3)]
        for segment in [*store._log.files, *(one for queue in queues for one in queue.files)]:
            segment.unmap()
        before = len(os.listdir("/proc/self/fd"))
        times = store.store_times()
        assert None not in [times.of(queue, 0) for queue in queues]
        assert all(segment.mapped is None for queue in queues for segment in queue.files)
        times.close()
        assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_not_there_has_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        times = store.store_times()
        assert times.of(queue, 0) is None
        for _ in range(4):
            put(store, queue, b"x")
        change_entry(queue, 0, ENTRY.pack(0, 100, CORRUPT_CODE))
        change_entry(queue, 1, ENTRY.pack(1 << 40, 100, 0))
        change_entry(queue, 2, ENTRY.pack(0, 100, 0))
        assert [times.of(queue, offset) for offset in range(-1, 3)] == [None] * 4
        assert times.of(queue, 3) is not None
        assert times.of(queue, 4) is None
        queue.min_offset = 4
        assert times.of(queue, 3) is None
        queue.min_offset = 0
        for segment in queue.files:
            segment.unmap()

        def gone(path: Path) -> int:
            raise FileNotFoundError(path)

        monkeypatch.setattr(disk, "open_to_read", gone)
        assert times.of(queue, 3) is None, "it is being deleted"
        times.close()
