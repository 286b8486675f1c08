from __future__ import annotations

from pathlib import Path

import pytest
from tests.store.rig import LOG_BYTES, bodies_of, fill, open_store, opened, small
from tests.support import about

from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import StoreError
from sparrowmq.store.base.progress import OpeningProgress
from sparrowmq.store.base.segments import MapPool, SegmentSequence
from sparrowmq.store.message_store import MessageStore


def test_it_tells_what_is_read_and_how_much() -> None:
    progress = OpeningProgress()
    texts = [str(progress)]
    for _ in progress.each("queues", ["a", "b"]):
        texts.append(str(progress))
    assert texts == ["it opens its store", "recovering: 0 of 2 queues", "recovering: 1 of 2 queues"]


def test_log_files_count_from_where_the_scan_begins(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, store.queue("T", 0), 100)
    files = SegmentSequence(
        tmp_path / "commitlog", LOG_BYTES, MapPool(8), setting="mappedFileSizeCommitLog", writable=False
    )
    files.load()
    seen: list[int] = []
    progress = OpeningProgress()
    visit = progress.reading(files, LOG_BYTES + 100, lambda view, at, position, size: seen.append(position))
    total = len(files) - 1
    assert total == 2
    assert str(progress) == f"recovering: 0 of {total} log files"
    visit(memoryview(b""), 0, 2 * LOG_BYTES, 10)
    assert str(progress) == f"recovering: 1 of {total} log files"
    progress.stop()
    with pytest.raises(StoreError, check=about(what="stopped")):
        visit(memoryview(b""), 0, 3 * LOG_BYTES, 10)
    assert seen == [2 * LOG_BYTES]
    files.close()


def test_stopped_opening_leaves_the_directory_to_the_next(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        bodies = fill(store, store.queue("T", 0), 3)
    progress = OpeningProgress()
    progress.stop()
    with pytest.raises(StoreError, check=about(what="stopped")):
        MessageStore.open(small(tmp_path), SystemClock(), store_host=bytes(8), progress=progress)
    again = open_store(tmp_path)
    assert bodies_of(again, "T") == bodies
    again.close()
