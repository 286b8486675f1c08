from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.damage import crashed, forget_progress
from tests.store.rig import LOG_BYTES, bodies_of, fill, open_store, opened, small
from tests.support import about

from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import StoreError
from sparrowmq.store.base.progress import OpeningProgress
from sparrowmq.store.base.segments import MapPool, SegmentSequence
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.recovery import recovery


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


@pytest.mark.parametrize(
    ("owner", "name"), [(recovery, "_drop_stale"), (ConsumeQueue, "rewrite"), (ConsumeQueue, "find_min")]
)
def test_opening_stops_between_two_queues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    """To check the ends of a hundred thousand queues takes longer than a stop may."""
    with opened(tmp_path) as store:
        for topic in ("T", "U"):
            fill(store, store.queue(topic, 0), 3)
    crashed(tmp_path)
    forget_progress(tmp_path)
    progress, calls = OpeningProgress(), 0
    original: Callable[..., object] = getattr(owner, name)

    def last(*values: object) -> object:
        nonlocal calls
        calls += 1
        progress.stop()
        return original(*values)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, last)
        with pytest.raises(StoreError, check=about(what="stopped")):
            MessageStore.open(small(tmp_path), SystemClock(), store_host=bytes(8), progress=progress)
    assert calls == 1
    again = open_store(tmp_path)
    assert [len(bodies_of(again, topic)) for topic in ("T", "U")] == [3, 3]
    again.close()
