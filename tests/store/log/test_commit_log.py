from __future__ import annotations

import threading
from pathlib import Path

import pytest
from tests.store.rig import (
    HOST,
    HOST_V6,
    LOG_BYTES,
    START_MS,
    append,
    fill,
    open_store,
    opened,
    put,
    read_all,
)
from tests.support import about

from sparrowmq.core.errors import StoreBusyError, StoreError
from sparrowmq.files import disk
from sparrowmq.protocol.record import decode_record, encode_record
from sparrowmq.store.log.commit_log import store_timestamp
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ENTRY

BODY_AT = 88
"""Where a record's body begins, with hosts of IPv4."""


def test_records_are_found_only_where_they_start(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        places = [put(store, queue, b"x" * 700)[1] for _ in range(12)]
        for place in places:
            data = store.read_record(place)
            assert data is not None and store.decoded_record(place) == decode_record(data)
        for position in (-1, 1, places[1] - 1, places[1] + 4, store.position, LOG_BYTES - 4, 1 << 40):
            assert store.read_record(position) is None
            assert store.decoded_record(position) is None


def test_copied_record_does_not_count(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        inner = put(store, queue, b"inner")[1]
        data = store.read_record(inner)
        assert data is not None
        outer = put(store, queue, data)[1]
        assert store.read_record(outer) is not None
        assert store.read_record(outer + 88) is None
        assert store.decoded_record(outer) is not None
        assert store.decoded_record(outer + 88) is None


@pytest.mark.parametrize(
    ("topic", "queue_id", "offset"), [("T", 0, 0), ("T", 0, 9), ("T", 7, 0), ("U", 0, 0)]
)
def test_forged_record_inside_a_body_does_not_count(
    topic: str, queue_id: int, offset: int, tmp_path: Path
) -> None:
    """A sender can predict where a message will be stored, and put a record of any topic into it."""
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        first, second = put(store, queue, b"x")[1], put(store, queue, b"x")[1]
        outer = 2 * second - first
        place = outer + BODY_AT
        made_up = encode_record(
            topic=topic.encode(),
            queue_id=queue_id,
            queue_offset=offset,
            physical_offset=place,
            body=b"forged",
            properties=b"",
            flag=0,
            sys_flag=0,
            born_timestamp=START_MS,
            born_host=HOST,
            store_timestamp=START_MS,
            store_host=HOST,
            reconsume_times=0,
            prepared_offset=0,
        )
        assert put(store, queue, made_up)[1] == outer
        assert store._log.record(place) == made_up, "it looks like one"
        assert store.read_record(place) is None
        assert store.decoded_record(place) is None
        assert [record.body for record in read_all(store, queue)] == [b"x", b"x", made_up]


def test_damaged_queue_entry_does_not_prevent_reads_by_position(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        places = [put(store, queue, b"%d" % number)[1] for number in range(5)]
        entry = queue.entry(2)
        assert entry is not None
        queue.restore(2, ENTRY.pack(entry.physical_offset ^ 1 << 20, entry.size, entry.tags_code))
        found = store.decoded_record(places[2])
        assert found is not None and found.body == b"2"
        assert queue.entry(2) == entry


def test_uncommitted_records_are_not_read(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        place = append(store, store.queue("T", 0), b"x")
        assert store.read_record(place) is None
        assert store.decoded_record(place) is None
        store.drop_chunk()


@pytest.mark.parametrize("born_host", [HOST, HOST_V6])
@pytest.mark.parametrize("store_host", [HOST, HOST_V6])
def test_store_time_follows_the_born_host(born_host: bytes, store_host: bytes, tmp_path: Path) -> None:
    with opened(tmp_path, store_host=store_host) as store:
        queue = store.queue("T", 0)
        offset, place = put(store, queue, b"x", born_host=born_host, now_ms=START_MS + 77)
        data = store.read_record(place)
        assert data is not None
        assert store_timestamp(memoryview(data), 0) == START_MS + 77
        assert store.store_time(queue, offset) == START_MS + 77


def test_flush_syncs_each_file_with_new_bytes_and_new_directories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    directories: list[str] = []
    real_data, real_directory = disk.datasync, disk.sync_directory
    monkeypatch.setattr(disk, "datasync", lambda fd: (synced.append(fd), real_data(fd))[1])
    monkeypatch.setattr(
        disk, "sync_directory", lambda path: (directories.append(path.name), real_directory(path))[1]
    )
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        directories.clear()
        assert store.flush() == 0
        assert (synced, directories) == ([], [])
        for _ in range(7):
            put(store, queue, b"x" * 1500)
        assert store.flushed_position == 0
        assert store.flush() == store.position == store.flushed_position
        assert len(synced) == 4
        assert directories == 4 * ["commitlog"], "before each further file, and at the flush"
        assert [segment.fd >= 0 for segment in store._log.files] == [False, False, False, True]
        store.flush()
        assert len(synced) == 4
        put(store, queue, b"x")
        store.flush()
        assert len(synced) == 5
        assert directories == 4 * ["commitlog"]


def test_failed_flush_stops_all_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    queue = store.queue("T", 0)
    fill(store, queue, 2)
    store.flush()
    flushed = store.flushed_position
    fill(store, queue, 1)

    def broken(_: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "datasync", broken)
        with pytest.raises(StoreError, check=about(what="flush the commit log in")):
            store.flush()
    assert store.flushed_position == flushed
    with pytest.raises(StoreError, check=about(what="flush the commit log in")):
        store.flush()
    append(store, queue, b"x")
    with pytest.raises(StoreError, check=about(what="flush the commit log in")):
        store.commit_chunk()
    assert queue.next_offset == 3
    with pytest.raises(StoreError, check=about(what="close")):
        store.close()
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert again.queue("T", 0).max_offset == 3


def test_flushes_from_other_threads_see_complete_chunks(tmp_path: Path) -> None:
    stop = threading.Event()
    flushed: list[int] = []

    def flush(store: MessageStore) -> None:
        while not stop.is_set():
            flushed.append(store.flush())
            store.flush_queues()

    with opened(tmp_path, mapped_file_size_commit_log=1 << 14) as store:
        queue = store.queue("T", 0)
        ends = {0}
        thread = threading.Thread(target=flush, args=(store,))
        thread.start()
        for number in range(400):
            append(store, queue, b"%d" % number)
            append(store, queue, b"x" * 100)
            store.commit_chunk()
            ends.add(store.position)
        stop.set()
        thread.join(20)
        assert not thread.is_alive()
        assert set(flushed) <= ends
        assert sorted(flushed) == flushed


def test_file_is_created_only_after_the_directory_entry_of_the_previous_one_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure could keep one entry and lose the other: nobody would know what is missing."""
    done: list[str] = []
    made, synced = disk.create, disk.sync_directory
    monkeypatch.setattr(disk, "create", lambda path, size: (done.append(path.name), made(path, size))[1])
    monkeypatch.setattr(disk, "sync_directory", lambda path: (done.append(path.name), synced(path))[1])
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        done.clear()
        for _ in range(3):
            append(store, queue, bytes(3000))
        store.commit_chunk()
        made_files = [name for name in done if name == "commitlog" or int(name) % LOG_BYTES == 0]
        assert [name for name in made_files if name != "0" * 20] == [
            "commitlog",
            f"{LOG_BYTES:020d}",
            "commitlog",
            f"{2 * LOG_BYTES:020d}",
        ]


def test_flush_without_open_files_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> int:
        raise OSError(24, "Too many open files")

    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 2)
        for name in ("sync_directory", "datasync"):
            with monkeypatch.context() as patch:
                patch.setattr(disk, name, none_left)
                with pytest.raises(StoreBusyError, check=about(value=tmp_path / "commitlog")):
                    store.flush()
            assert store.failed is None
            assert store.flushed_position == 0
        synced: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(disk, "sync_directory", lambda path: synced.append(path.name))
            assert store.flush() == store.position
        assert synced == ["commitlog"], "what was left out is made up for"
