from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
from tests.store.rig import QUEUE_BYTES, append, by_time, fill, opened, put, small
from tests.support import about

from sparrowmq.core.errors import StoreError
from sparrowmq.store.base.segments import MapPool
from sparrowmq.store.log.commit_log import NOT_TOLD, CommitLog, LogEnd
from sparrowmq.store.queues.consume_queue import (
    CORRUPT_CODE,
    DUMMY,
    DUMMY_SIZE,
    ENTRY,
    ConsumeQueue,
    QueueEntry,
)

PER_FILE = QUEUE_BYTES // 20


def queue_in(root: Path, *, pool: MapPool | None = None, file_bytes: int = QUEUE_BYTES) -> ConsumeQueue:
    pool = MapPool(100) if pool is None else pool
    log = CommitLog(small(root), pool)
    return ConsumeQueue("T", 0, root / "consumequeue", file_bytes, log, pool)


def entry(number: int, code: int = 0) -> bytes:
    return ENTRY.pack(number * 100, 100, code)


def written(root: Path, count: int) -> ConsumeQueue:
    queue = queue_in(root)
    for number in range(count):
        queue.restore(number, entry(number))
    return queue


def loaded(root: Path, *, thorough: bool = True) -> ConsumeQueue:
    queue = queue_in(root)
    queue.load(thorough=thorough)
    return queue


def file_at(root: Path, base: int) -> Path:
    return root / "consumequeue" / "T" / "0" / f"{base:020d}"


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.proves("broker:3.4")
def test_new_queue_has_no_files_and_no_offsets(tmp_path: Path) -> None:
    queue = queue_in(tmp_path)
    assert (queue.min_offset, queue.max_offset, queue.next_offset) == (0, 0, 0)
    assert queue.load(thorough=True) == 0
    assert queue.entry(0) is None
    assert queue.entries(0, 1) is None
    assert queue.last_entry() is None
    assert not (tmp_path / "consumequeue").exists()
    assert repr(queue) == "<ConsumeQueue T/0 0..0>"


@pytest.mark.parametrize("count", [1, PER_FILE - 1, PER_FILE, PER_FILE + 1, 5 * PER_FILE])
@pytest.mark.parametrize("thorough", [True, False])
def test_end_is_found_again(count: int, thorough: bool, tmp_path: Path) -> None:
    written(tmp_path, count).close()
    queue = loaded(tmp_path, thorough=thorough)
    assert (queue.committed, queue.next_offset) == (count, count)
    assert queue.entry(count - 1) == QueueEntry((count - 1) * 100, 100, 0)
    assert queue.entry(count) is None
    assert queue.last_entry() == queue.entry(count - 1)


@pytest.mark.parametrize(
    ("physical", "size", "code"), [(0, 1, 0), (0, 100, 0), (255, 100, 0), (1 << 40, 256, 0), (0, 1 << 24, -1)]
)
def test_entries_with_many_zero_bytes_are_not_the_end(
    physical: int, size: int, code: int, tmp_path: Path
) -> None:
    queue = queue_in(tmp_path)
    for number in range(PER_FILE + 3):
        queue.restore(number, ENTRY.pack(physical, size, code))
    queue.close()
    assert loaded(tmp_path).committed == PER_FILE + 3


@pytest.mark.parametrize(
    "bad", [bytes(20), ENTRY.pack(5, 0, 7), ENTRY.pack(5, -1, 7), ENTRY.pack(-5, 100, 7)]
)
def test_first_entry_without_a_record_ends_the_queue_and_the_rest_is_zeroed(
    bad: bytes, tmp_path: Path
) -> None:
    count = 3 * PER_FILE
    written(tmp_path, count).close()
    change(file_at(tmp_path, QUEUE_BYTES), 3 * 20, bad)
    change(file_at(tmp_path, QUEUE_BYTES), 4 * 20, bytes(20))
    queue = loaded(tmp_path)
    assert queue.committed == PER_FILE + 3
    assert file_at(tmp_path, QUEUE_BYTES).read_bytes()[3 * 20 :].strip(b"\0") == b""
    assert not file_at(tmp_path, 2 * QUEUE_BYTES).exists()
    queue.close()
    assert loaded(tmp_path).committed == PER_FILE + 3


def test_empty_last_file_is_skipped(tmp_path: Path) -> None:
    written(tmp_path, PER_FILE).close()
    file_at(tmp_path, QUEUE_BYTES).write_bytes(bytes(QUEUE_BYTES))
    for thorough in (True, False):
        queue = loaded(tmp_path, thorough=thorough)
        assert queue.committed == PER_FILE
        queue.restore(PER_FILE, entry(PER_FILE))
        assert queue.committed == PER_FILE + 1
        queue.truncate(PER_FILE)
        queue.close()


def test_gap_before_the_last_file_is_found_even_after_a_clean_stop(tmp_path: Path) -> None:
    written(tmp_path, 3 * PER_FILE).close()
    change(file_at(tmp_path, QUEUE_BYTES), QUEUE_BYTES - 20, bytes(20))
    assert loaded(tmp_path, thorough=False).committed == 2 * PER_FILE - 1


@pytest.mark.proves("broker:3.1", "broker:17")
@pytest.mark.parametrize("offset", [0, 3, PER_FILE, PER_FILE + 7, 5 * PER_FILE + 2])
def test_first_entry_not_at_zero_begins_its_file_with_dummies(offset: int, tmp_path: Path) -> None:
    queue = queue_in(tmp_path)
    queue.restore(offset, ENTRY.pack(777, 100, 1))
    queue.find_min()
    assert (queue.min_offset, queue.max_offset) == (offset, offset + 1)
    base = offset * 20 // QUEUE_BYTES * QUEUE_BYTES
    data = file_at(tmp_path, base).read_bytes()
    assert data[: offset * 20 - base] == DUMMY * (offset % PER_FILE)
    queue.close()
    again = loaded(tmp_path)
    again.find_min()
    assert (again.min_offset, again.max_offset) == (offset, offset + 1)


def test_missing_entries_become_gaps_that_keep_the_order(tmp_path: Path) -> None:
    queue = queue_in(tmp_path)
    queue.restore(0, entry(0))
    queue.restore(25, entry(25))
    hole = queue.entry(12)
    assert hole == QueueEntry(2500, DUMMY_SIZE, 0)
    assert hole.is_hole
    assert queue.last_entry() == QueueEntry(2500, 100, 0)
    queue.find_min()
    assert queue.min_offset == 0


def test_marked_entry_is_a_gap(tmp_path: Path) -> None:
    queue = written(tmp_path, 3)
    queue.restore(1, ENTRY.pack(100, 100, CORRUPT_CODE))
    assert [QueueEntry._make(ENTRY.unpack_from(entry(n))).is_hole for n in (0, 2)] == [False, False]
    present = queue.entry(1)
    assert present is not None and present.is_hole
    assert queue.physical_offset(1) is None
    assert queue.physical_offset(2) == 200
    assert queue.physical_offset(3) is None


@pytest.mark.proves("broker:3.5", "broker:18")
@pytest.mark.parametrize("keep", [0, 1, PER_FILE - 1, PER_FILE, PER_FILE + 1, 2 * PER_FILE + 5])
def test_truncated_entries_are_zero_on_disk(keep: int, tmp_path: Path) -> None:
    queue = written(tmp_path, 3 * PER_FILE)
    queue.truncate(keep)
    assert (queue.committed, queue.next_offset) == (keep, keep)
    data = b"".join(path.read_bytes() for path in sorted((tmp_path / "consumequeue" / "T" / "0").iterdir()))
    assert data[: keep * 20] == b"".join(entry(number) for number in range(keep))
    assert data[keep * 20 :].strip(b"\0") == b""
    queue.restore(keep, entry(keep))
    queue.close()
    assert loaded(tmp_path).committed == keep + 1


@pytest.mark.proves("broker:3.4")
@pytest.mark.parametrize("oldest", [0, 1, 100, 101, 1250, 2399, 2400, 9999])
def test_min_offset_is_the_first_message_still_in_the_log(
    oldest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = written(tmp_path, 25)
    monkeypatch.setattr(CommitLog, "min_position", oldest)
    queue.find_min()
    assert queue.min_offset == min(25, -(-oldest // 100))


def test_entries_end_with_their_file(tmp_path: Path) -> None:
    queue = written(tmp_path, 25)
    for start, end, expected in ((0, 25, 10), (9, 25, 1), (10, 12, 2), (20, 25, 5), (3, 3, 0)):
        view = queue.entries(start, end)
        assert view is not None
        assert len(view) == expected * 20
        assert bytes(view) == b"".join(entry(n) for n in range(start, start + expected))


def test_unmapped_files_are_mapped_again_for_the_next_append(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 3)
        queue.unmap()
        assert queue.map is None
        fill(store, queue, 9)
        queue.unmap()
        append(store, queue, b"a")
        append(store, queue, b"b")
        store.commit_chunk()
        assert queue.max_offset == 14
        assert [queue.entry(n) is not None for n in range(15)] == [True] * 14 + [False]


def test_thousands_of_queues_need_few_mappings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.files.disk.maps_limit", lambda: 8)
    with opened(tmp_path, mapped_file_size_commit_log=1 << 22) as store:
        queues = [store.queue("T", number) for number in range(200)]
        for number in range(12):
            for queue in queues:
                put(store, queue, b"%d" % number)
            assert len(store._pool) <= 8
        assert {queue.max_offset for queue in queues} == {12}
    with opened(tmp_path, mapped_file_size_commit_log=1 << 22) as store:
        assert {queue.max_offset for queue in store.queues("T")} == {12}
        for queue in store.queues("T"):
            result = store.get_messages(queue, 3, max_count=32, max_bytes=1 << 20)
            assert result.count == 7
            assert store.store_time(queue, 11) is not None
            assert by_time(store, queue, 0) == 0
            assert store.read_record(0) is not None
            assert len(store._pool) <= 8 + 4


def test_deleted_queue_is_empty_and_accepts_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 15)
        store.delete_topic("T")
        assert (queue.min_offset, queue.max_offset) == (0, 0)
        assert not (tmp_path / "consumequeue" / "T").exists()
        append(store, queue, b"x")
        with pytest.raises(StoreError, check=about(what="queue", value=("T", 0))):
            store.commit_chunk()


def test_sync_covers_new_entries_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr("sparrowmq.files.disk.sync_file", lambda path: synced.append(path.name[-3:]))
    queue = written(tmp_path, PER_FILE + 3)
    directories: set[Path] = set()
    queue.sync(directories)
    assert synced == ["000", "200"]
    home = tmp_path / "consumequeue"
    assert directories == {home, home / "T", home / "T" / "0"}
    synced.clear()
    directories.clear()
    queue.sync(directories)
    assert (synced, directories) == ([], set())
    queue.restore(PER_FILE + 3, entry(PER_FILE + 3))
    queue.sync(directories)
    assert synced == ["200"]
    queue.restore(2, entry(3))
    queue.sync(directories)
    assert synced == ["200", "000", "200"]


def test_failed_sync_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = written(tmp_path, 3)

    def broken(_: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("sparrowmq.files.disk.sync_file", broken)
        with pytest.raises(OSError, check=about(errno=5)):
            queue.sync(set())
    assert queue.synced == 0
    queue.sync(set())
    assert queue.synced == 3


@pytest.mark.parametrize("delete", [True, False])
def test_files_that_vanish_during_sync_are_tolerated(
    delete: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = written(tmp_path, 3)

    def vanish(path: Path) -> None:
        queue.deleted = delete
        raise FileNotFoundError(2, "No such file", str(path))

    monkeypatch.setattr("sparrowmq.files.disk.sync_file", vanish)
    with nullcontext() if delete else pytest.raises(FileNotFoundError):
        queue.sync(set())
    assert queue.synced == 0


def test_synchronous_messages_become_visible_in_order_of_the_flush(tmp_path: Path) -> None:
    queue = written(tmp_path, 2)
    log = queue._log
    log.begin_at(LogEnd(200, 100, 0))
    for number, end in ((2, 300), (3, 500), (4, 500), (5, 600)):
        queue.restore(number, entry(number))
        queue.hold_back(number, end)
    assert queue.max_offset == 2
    for flushed, visible in ((250, 2), (300, 3), (499, 3), (500, 5), (600, 6)):
        log.flushed_position = flushed
        assert queue.max_offset == visible
    queue.restore(6, entry(6))
    queue.hold_back(6, 700)
    assert queue.max_offset == 6
    log.flushed_position = 700
    assert queue.max_offset == 7


def test_several_entries_may_span_files(tmp_path: Path) -> None:
    queue = queue_in(tmp_path)
    offset = 0
    for count in (1, PER_FILE, 3, 2 * PER_FILE + 1):
        while queue.writable_until < offset + count:
            queue.make_writable(max(offset, queue.writable_until))
        queue.write_run(offset, b"".join(entry(number) for number in range(offset, offset + count)))
        offset += count
        assert queue.committed == offset
    assert [queue.entry(number) for number in range(offset)] == [
        QueueEntry._make(ENTRY.unpack(entry(number))) for number in range(offset)
    ]


def test_waiting_entries_become_visible_together(tmp_path: Path) -> None:
    queue = written(tmp_path, 2)
    queue._log.begin_at(LogEnd(200, 100, 0))
    for number in range(2, 6):
        queue.restore(number, entry(number))
    queue.hold_back(2, 500, 3)
    queue.hold_back(5, 500)
    assert queue.max_offset == 2
    queue._log.flushed_position = 500
    assert queue.max_offset == 6


def test_consumers_see_a_queue_up_to_the_confirmed_position(tmp_path: Path) -> None:
    queue = written(tmp_path, 2 * PER_FILE)
    log = queue._log
    log.begin_at(LogEnd(2 * PER_FILE * 100, 0, 0))
    assert queue.confirmed_offset == queue.max_offset == 2 * PER_FILE
    log.confirmed = NOT_TOLD
    assert queue.confirmed_offset == 2 * PER_FILE
    for position in (0, 100, 700, PER_FILE * 100, PER_FILE * 100 + 300, (2 * PER_FILE - 1) * 100):
        log.confirmed = position
        assert queue.confirmed_offset == position // 100
        assert queue.max_offset == 2 * PER_FILE
    queue.restore(2 * PER_FILE + 3, entry(2 * PER_FILE + 3))
    log.begin_at(LogEnd((2 * PER_FILE + 4) * 100, 0, 0))
    for position, end in ((2 * PER_FILE, 2 * PER_FILE), (2 * PER_FILE + 4, 2 * PER_FILE + 4)):
        log.confirmed = position * 100
        assert queue.confirmed_offset == end
    queue.truncate(3)
    assert queue.confirmed_offset == 3
    queue.restore(3, entry(2 * PER_FILE + 4))
    log.begin_at(LogEnd((2 * PER_FILE + 5) * 100, 0, 0))
    assert (queue.confirmed_offset, queue.max_offset) == (3, 4)
    log.confirmed = None
    assert queue.confirmed_offset == 4


def test_consumers_do_not_see_what_is_confirmed_and_not_flushed(tmp_path: Path) -> None:
    queue = written(tmp_path, 2)
    log = queue._log
    log.begin_at(LogEnd(200, 100, 0))
    queue.restore(2, entry(2))
    queue.hold_back(2, 300)
    log.position, log.confirmed = 400, 300
    assert queue.confirmed_offset == 2
    log.flushed_position = 300
    assert queue.confirmed_offset == 3
