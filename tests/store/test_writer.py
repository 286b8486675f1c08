"""Appending: what is written to the files, how files end, and that a failed chunk leaves nothing."""

from __future__ import annotations

import errno
import itertools
import os
import struct
import zlib
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from tests.store.damage import crashed
from tests.store.rig import (
    HOST,
    HOST_V6,
    LOG_BYTES,
    START_MS,
    append,
    bodies_of,
    fill,
    open_store,
    opened,
    put,
    read_all,
)
from tests.support import about

from sparrowmq.core.errors import RecordError, StoreBrokenError, StoreError, StoreFullError
from sparrowmq.core.message import PROPERTIES_BYTES_MAX
from sparrowmq.files import disk
from sparrowmq.protocol.batch import AlikeBatch
from sparrowmq.protocol.record import BLANK_MAGIC, RECORD_FIXED_BYTES, decode_record, encode_record
from sparrowmq.store.log.commit_log import LogEnd

NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


def log_bytes(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "commitlog").iterdir()))


def queue_bytes(root: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((root / "consumequeue").rglob("0*")))


@pytest.mark.proves("broker:2.1")
@pytest.mark.parametrize("born_host", [HOST, HOST_V6], ids=["v4", "v6"])
@pytest.mark.parametrize("store_host", [HOST, HOST_V6], ids=["v4", "v6"])
@pytest.mark.parametrize("topic", ["T", "t" * 127, "%RETRY%" + "g" * 130], ids=["short", "127", "v2"])
def test_records_equal_those_of_the_protocol(
    topic: str, store_host: bytes, born_host: bytes, tmp_path: Path
) -> None:
    with opened(tmp_path, store_host=store_host) as store:
        queue = store.queue(topic, 3)
        put(store, queue, b"first")
        values = {
            "flag": -7,
            "sys_flag": 0x301,
            "born_timestamp": 123,
            "born_host": born_host,
            "reconsume_times": 2,
            "prepared_offset": 9,
        }
        offset, physical = put(store, queue, b"body", properties=b"A\x01b\x02", **values)
        expected = encode_record(
            topic=topic.encode(),
            queue_id=3,
            queue_offset=offset,
            physical_offset=physical,
            body=b"body",
            properties=b"A\x01b\x02",
            store_timestamp=START_MS,
            store_host=store_host,
            **values,
        )
        assert store.read_record(physical) == expected
        assert log_bytes(tmp_path)[physical : store.position] == expected
        assert [record.body for record in read_all(store, queue)] == [b"first", b"body"]


@pytest.mark.proves("broker:3.1")
def test_entries_have_offset_size_and_code(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        first = put(store, queue, b"a", tags="TagA")[1]
        second = put(store, queue, b"b", tags_code=-5)[1]
        end = store.position
    data = (tmp_path / "consumequeue" / "T" / "0" / ("0" * 20)).read_bytes()
    assert data[:20] == first.to_bytes(8, "big") + second.to_bytes(4, "big") + (2598919).to_bytes(8, "big")
    assert data[20:32] == second.to_bytes(8, "big") + (end - second).to_bytes(4, "big")
    assert data[32:40] == (-5).to_bytes(8, "big", signed=True)
    assert data[40:].strip(b"\0") == b""


def test_nothing_is_visible_or_written_before_the_commit(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        assert append(store, queue, b"a") == 0
        assert append(store, queue, b"b") > 0
        assert (queue.next_offset, queue.max_offset, store.position) == (2, 0, 0)
        assert not list((tmp_path / "commitlog").iterdir())
        store.commit_chunk()
        assert (queue.next_offset, queue.max_offset) == (2, 2)
        assert bodies_of(store, "T") == [b"a", b"b"]


def test_empty_chunk_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.commit_chunk()
        assert store.position == 0
        assert not list((tmp_path / "commitlog").iterdir())


@pytest.mark.proves("broker:2.3")
def test_every_file_ends_with_a_blank_and_no_record_spans_two(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for _ in range(30):
            for _ in range(3):
                append(store, queue, os.urandom(100) * 4)
            store.commit_chunk()
        records = read_all(store, queue)
    assert len(records) == 90
    data = log_bytes(tmp_path)
    assert len(data) % LOG_BYTES == 0
    ends = {record.physical_offset + record.size for record in records}
    for record in records:
        assert record.physical_offset // LOG_BYTES == (record.physical_offset + record.size - 1) // LOG_BYTES
    for boundary in range(LOG_BYTES, store.position, LOG_BYTES):
        end = max(end for end in ends if end <= boundary)
        assert data[end : end + 8] == (boundary - end).to_bytes(4, "big") + BLANK_MAGIC.to_bytes(4, "big")
        assert data[end + 8 : boundary].strip(b"\0") == b""


def test_readers_find_a_complete_header_at_a_blank_and_no_hole(tmp_path: Path) -> None:
    """A hole read through a mapping makes an in-memory file system allocate a page, and kills the process
    when it is full."""
    page = os.sysconf("SC_PAGE_SIZE")
    with opened(tmp_path, mapped_file_size_commit_log=3 * page) as store:
        queue = store.queue("T", 0)
        put(store, queue, bytes(page - 8 - RECORD_FIXED_BYTES - len("T")))
        assert put(store, queue, bytes(2 * page))[1] == 3 * page
    with (tmp_path / "commitlog" / ("0" * 20)).open("rb") as file:
        assert os.pread(file.fileno(), 8, page - 8) == struct.pack(">iI", 2 * page + 8, BLANK_MAGIC)
        assert os.lseek(file.fileno(), page, os.SEEK_DATA) == page


@pytest.mark.parametrize("rest", range(9))
def test_record_that_would_leave_less_than_a_blank_goes_to_the_next_file(rest: int, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fixed = 92
        put(store, queue, b"x" * (LOG_BYTES - fixed - rest - fixed - 10))
        before = store.position
        physical = put(store, queue, b"y" * 10)[1]
        assert LOG_BYTES - before - fixed - 10 == rest
        assert physical == (before if rest >= 8 else LOG_BYTES)
        assert len(read_all(store, queue)) == 2


def test_largest_record_fills_a_file_except_for_the_blank(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"x")
        body = b"y" * (LOG_BYTES - 8 - 92)
        assert put(store, queue, body) == (1, LOG_BYTES)
        with pytest.raises(RecordError, check=about(what="record", value=4089, limit=4088)):
            append(store, queue, body + b"y")
        assert queue.next_offset == 2
        assert put(store, queue, b"z") == (2, 2 * LOG_BYTES)
        assert bodies_of(store, "T") == [b"x", body, b"z"]


@pytest.mark.proves("broker:2.4")
def test_record_limit_is_message_size_and_64_kib(tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_commit_log=1 << 20, max_message_size=1000) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"x" * (1000 + 65536 - 92))
        with pytest.raises(RecordError, check=about(what="record", limit=1000 + 65536)):
            append(store, queue, b"x" * (1000 + 65536 - 91))


@pytest.mark.parametrize("over", [0, 1])
def test_only_the_log_file_limits_messages_of_the_broker_itself(tmp_path: Path, over: int) -> None:
    with opened(tmp_path, mapped_file_size_commit_log=1 << 20, max_message_size=1000) as store:
        queue, body = store.queue("T", 0), b"x" * ((1 << 20) - 8 - 92 + over)
        if over:
            with pytest.raises(RecordError, check=about(what="record", limit=1048568)):
                append(store, queue, body, is_own=True)
            assert queue.next_offset == 0
        else:
            append(store, queue, body, is_own=True)
            store.commit_chunk()
            assert bodies_of(store, "T") == [body]


def test_values_that_do_not_fit_leave_the_chunk_unchanged(tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_commit_log=1 << 20) as store:
        queue = store.queue("T", 0)
        append(store, queue, b"a")
        for changes in (
            {"flag": 1 << 31},
            {"born_timestamp": 1 << 63},
            {"reconsume_times": -(1 << 31) - 1},
            {"properties": b"p" * (PROPERTIES_BYTES_MAX + 1)},
            {"flag": 1 << 31, "born_host": HOST_V6},
        ):
            with pytest.raises(RecordError):
                append(store, queue, b"bad", **changes)
        append(store, queue, b"b", properties=b"p" * PROPERTIES_BYTES_MAX)
        store.commit_chunk()
        assert bodies_of(store, "T") == [b"a", b"b"]


@pytest.mark.proves("broker:2.1", "broker:17")
def test_body_crc_has_31_bits(tmp_path: Path) -> None:
    body = next(bytes([n]) for n in range(256) if zlib.crc32(bytes([n])) >> 31)
    with opened(tmp_path) as store:
        physical = put(store, store.queue("T", 0), body)[1]
        data = store.read_record(physical)
        assert data is not None
        assert decode_record(data, check_crc=True).body_crc == zlib.crc32(body) & 0x7FFFFFFF


@pytest.mark.proves("broker:2.3")
def test_store_time_is_the_clock_at_each_append(tmp_path: Path) -> None:
    times = [START_MS, START_MS - 1000, START_MS + 5, START_MS]
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for now in times:
            put(store, queue, b"x", now_ms=now)
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"x", now_ms=1)
        stored = [record.store_timestamp for record in read_all(store, queue)]
    assert stored == [*times, 1]


@pytest.mark.proves("broker:3.2", "broker:2.3")
@pytest.mark.parametrize(("sys_flag", "counted"), [(0, True), (4, False), (8, True), (12, False)])
def test_only_messages_without_transaction_or_committed_get_offsets(
    sys_flag: int, counted: bool, tmp_path: Path
) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"a")
        physical = put(store, queue, b"t", sys_flag=sys_flag)[1]
        put(store, queue, b"b")
        data = store._log.record(physical)
        assert data is not None
        assert decode_record(data).queue_offset == (1 if counted else 0)
        assert (store.read_record(physical) is not None) is counted
        assert bodies_of(store, "T") == ([b"a", b"t", b"b"] if counted else [b"a", b"b"])


def test_reserved_batches_are_contiguous(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for _ in range(12):
            store.reserve(3 * (92 + 300))
            places = [append(store, queue, b"x" * 300) for _ in range(3)]
            store.commit_chunk()
            assert [b - a for a, b in itertools.pairwise(places)] == [392, 392]
        assert len(read_all(store, queue)) == 36


@pytest.mark.parametrize("born_host", [HOST, HOST_V6], ids=["v4", "v6"])
@pytest.mark.parametrize("sys_flag", [0, 1, 4, 8])
@pytest.mark.parametrize("topic", ["T", "%RETRY%" + "g" * 130], ids=["short", "v2"])
def test_batch_is_stored_like_its_messages_one_by_one(
    topic: str, sys_flag: int, born_host: bytes, tmp_path: Path
) -> None:
    """Across log files and queue files, and with a batch that is larger than a log file."""
    added = b"CLUSTER\x01c\x02"
    fields = {
        "sys_flag": sys_flag,
        "born_timestamp": 7,
        "born_host": born_host,
        "reconsume_times": 3,
        "now_ms": START_MS,
    }
    sizes = [[300, 1, 40], [700, 900], [5] * 90, [1500] * 40, [10]]
    places: list[list[int]] = [[], []]
    for way in range(2):
        with opened(tmp_path / str(way)) as store:
            queue = store.queue(topic, 2)
            for batch in sizes:
                items = [(n, b"b" * n, b"K\x01%d\x02" % n, n * 31) for n in batch]
                if way:
                    places[1] += store.append_batch(queue, items, added, **fields)
                else:
                    extra = len(added) + queue.fixed_bytes + 24
                    store.reserve(sum(len(body) + len(own) + extra for _, body, own, _ in items))
                    for flag, body, own, code in items:
                        physical = store.append(
                            queue, body, own + added, flag=flag, tags_code=code, prepared_offset=0, **fields
                        )
                        places[0].append(physical)
                store.commit_chunk()
            assert queue.max_offset == (0 if sys_flag & 4 else 136)
    assert places[0] == places[1]
    assert log_bytes(tmp_path / "0") == log_bytes(tmp_path / "1")
    assert queue_bytes(tmp_path / "0") == queue_bytes(tmp_path / "1")


@pytest.mark.parametrize(
    "bad",
    [
        (2**31, b"b", b"", 0),
        (0, b"b" * LOG_BYTES, b"", 0),
        (0, b"b", b"p" * (PROPERTIES_BYTES_MAX - 2), 0),
    ],
    ids=["flag", "body", "properties"],
)
def test_batch_with_a_message_that_does_not_fit_is_dropped_completely(
    bad: tuple[int, bytes, bytes, int], tmp_path: Path
) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 2)
        with pytest.raises(RecordError):
            store.append_batch(
                queue,
                [(0, b"good", b"", 0), bad],
                b"A\x01b\x02",
                sys_flag=0,
                born_timestamp=1,
                born_host=HOST,
                reconsume_times=0,
                now_ms=START_MS,
            )
        store.drop_chunk()
        put(store, queue, b"next")
        assert len(read_all(store, queue)) == 3


ALIKE = {
    "sys_flag": 1,
    "born_timestamp": 7,
    "born_host": HOST,
    "reconsume_times": 3,
    "now_ms": START_MS + 5,
}


def alike(count: int, body: int = 20, own: int = 6) -> AlikeBatch:
    bodies = tuple(b"%0*d" % (body, number) for number in range(count))
    return AlikeBatch(9, bodies, tuple(b"K\x01%0*d\x02" % (own - 3, number) for number in range(count)))


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_uniform_batch_is_stored_like_its_messages_one_by_one(flush: str, tmp_path: Path) -> None:
    """Among single messages of the same and of another queue, across queue files."""
    added = b"C\x01c\x02"
    places: list[list[int]] = [[], []]
    for way in range(2):
        files = {"flush_disk_type": flush, "mapped_file_size_commit_log": 4 * LOG_BYTES}
        with opened(tmp_path / str(way), **files) as store:
            queue, other = store.queue("T", 2), store.queue("T", 3)
            for turn, count in enumerate((1, 7, 9, 4, 12, 3)):
                append(store, queue, b"before")
                append(store, other, b"beside")
                batch, codes = alike(count), range(turn, turn + count)
                if way:
                    starts = store.append_alike(queue, batch, codes, added, **ALIKE)
                    assert starts is not None
                    places[way] += starts
                else:
                    items = zip(repeat(9), batch.bodies, batch.properties, codes)
                    for flag, body, own, code in items:
                        physical = store.append(
                            queue, body, own + added, flag=flag, tags_code=code, prepared_offset=0, **ALIKE
                        )
                        places[way].append(physical)
                append(store, queue, b"behind")
                seen = queue.max_offset, other.max_offset
                store.commit_chunk()
                assert queue.committed == queue.next_offset
                if flush == "SYNC_FLUSH":
                    assert (queue.max_offset, other.max_offset) == seen
                    store.flush()
                assert queue.max_offset == queue.next_offset
            assert (queue.max_offset, other.max_offset) == (36 + 12, 6)
            assert (store.stats.puts, store.stats.put_bytes) == (54, store.position)
            assert len(read_all(store, queue)) == 48
    assert places[0] == places[1]
    assert log_bytes(tmp_path / "0") == log_bytes(tmp_path / "1")
    assert queue_bytes(tmp_path / "0") == queue_bytes(tmp_path / "1")


@pytest.mark.parametrize(
    ("batch", "topic", "changes", "file_bytes"),
    [
        (alike(2), "%RETRY%" + "g" * 130, {}, LOG_BYTES),
        (alike(2), "T", {"born_host": HOST_V6}, LOG_BYTES),
        (alike(2), "T", {"sys_flag": 4}, LOG_BYTES),
        (alike(30, body=200), "T", {}, LOG_BYTES),
        (alike(1, body=LOG_BYTES), "T", {}, LOG_BYTES),
        (alike(1, own=PROPERTIES_BYTES_MAX + 1), "T", {}, 32 * LOG_BYTES),
    ],
    ids=["topic", "host", "transaction", "file", "record", "properties"],
)
def test_uniform_batch_that_needs_further_checks_adds_nothing(
    batch: AlikeBatch, topic: str, changes: dict[str, Any], file_bytes: int, tmp_path: Path
) -> None:
    with opened(tmp_path, mapped_file_size_commit_log=file_bytes) as store:
        queue = store.queue(topic, 0)
        codes = [0] * len(batch.bodies)
        assert store.append_alike(queue, batch, codes, b"", **(ALIKE | changes)) is None
        store.commit_chunk()
        assert (queue.next_offset, store.position) == (0, 0)


def test_uniform_batch_with_a_value_that_does_not_fit_adds_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        with pytest.raises(RecordError):
            store.append_alike(queue, alike(2), [0, 0], b"", **(ALIKE | {"reconsume_times": 2**31}))
        put(store, queue, b"next")
        assert bodies_of(store, "T") == [b"next"]


def test_dropped_uniform_batch_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 2)
        assert store.append_alike(queue, alike(5), [0] * 5, b"", **ALIKE) is not None
        store.drop_chunk()
        assert queue.next_offset == 2
        fill(store, queue, 1)
        assert bodies_of(store, "T") == [b"m0", b"m1", b"m2"]


def test_batch_larger_than_a_file_is_not_refused(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        store.reserve(10 * LOG_BYTES)
        for _ in range(40):
            append(store, queue, b"x" * 1000)
        store.commit_chunk()
        assert len(read_all(store, queue)) == 40


def test_dropped_chunk_leaves_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 2)
        append(store, queue, b"gone")
        store.drop_chunk()
        assert queue.next_offset == 2
        store.commit_chunk()
        fill(store, queue, 1)
        assert bodies_of(store, "T") == [b"m0", b"m1", b"m2"]


class Disk:
    """Makes the n-th call of a system function fail with "no space left"."""

    def __init__(self, patch: pytest.MonkeyPatch, name: str, fail_at: int, partial: int = 0) -> None:
        self.calls = 0
        real = getattr(os, name)

        def call(*arguments: object) -> object:
            self.calls += 1
            if self.calls < fail_at:
                return real(*arguments)
            if self.calls == fail_at and partial:
                fd, data, at = arguments
                return real(fd, bytes(data)[:partial], at)
            raise NO_SPACE

        patch.setattr(os, name, call)


def chunk_over_files(store: object, queues: list[object]) -> None:
    """A chunk over three log files and several queue files."""
    for number in range(24):
        append(store, queues[number % 2], b"%d" % number + b"x" * 400)


@pytest.mark.parametrize("partial", [0, 1, 700])
@pytest.mark.parametrize(
    ("name", "fail_at"),
    [(name, nth) for name in ("pwrite", "ftruncate", "posix_fallocate") for nth in (1, 2, 3, 4)][:-2],
)
def test_full_disk_leaves_nothing_of_the_chunk_and_the_store_continues(
    name: str, fail_at: int, partial: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    queues = [store.queue("T", 0), store.queue("T", 1)]
    kept = [fill(store, queue, 8, f"q{queue.queue_id}-") for queue in queues]
    position = store.position
    with monkeypatch.context() as patch:
        # only the first failing write may have written part of its bytes, and cleaning up may write
        real = os.pwrite
        Disk(patch, name, fail_at, partial if name == "pwrite" else 0)
        patch.setattr(disk, "clear_data", _clear_with(real))
        chunk_over_files(store, queues)
        with pytest.raises(StoreFullError):
            store.commit_chunk()
    assert store.position == position
    assert [queue.next_offset for queue in queues] == [8, 8]
    assert [queue.max_offset for queue in queues] == [8, 8]
    assert log_bytes(tmp_path)[position:].strip(b"\0") == b""
    for queue, bodies in zip(queues, kept, strict=True):
        bodies += fill(store, queue, 1)
        assert bodies_of(store, "T", queue.queue_id) == bodies
    store.abandon()
    with opened(tmp_path) as again:
        assert [bodies_of(again, "T", queue_id) for queue_id in (0, 1)] == kept


def _clear_with(real: object) -> object:
    """`disk.clear_data` on a disk that lets existing blocks be overwritten, as a full one does."""
    original = disk.clear_data

    def clear(path: Path, start: int, end: int) -> int:
        broken, os.pwrite = os.pwrite, real
        try:
            return original(path, start, end)
        finally:
            os.pwrite = broken

    return clear


def test_queue_files_on_a_full_disk_fail_the_chunk_not_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        first, second = store.queue("T", 0), store.queue("T", 1)
        fill(store, first, 3)
        with monkeypatch.context() as patch:
            Disk(patch, "posix_fallocate", 1)
            append(store, second, b"new queue")
            append(store, first, b"innocent")
            with pytest.raises(StoreFullError, check=about(what="extend the queue in")):
                store.commit_chunk()
        assert (first.next_offset, second.next_offset) == (3, 0)
        fill(store, second, 2)
        assert bodies_of(store, "T", 1) == [b"m0", b"m1"]


@pytest.mark.parametrize("crash", [True, False])
def test_rest_of_a_failed_write_is_removed_before_the_next(
    crash: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk stores a part of the chunk and then refuses even the zeros over it."""
    store = open_store(tmp_path)
    queue = store.queue("T", 0)
    bodies = fill(store, queue, 3)
    position = store.position
    with monkeypatch.context() as patch:
        Disk(patch, "pwrite", 1, partial=50)
        append(store, queue, b"x" * 500)
        with pytest.raises(StoreFullError):
            store.commit_chunk()
        append(store, queue, b"y" * 500)
        with pytest.raises(StoreFullError, check=about(what="clear the end of")):
            store.commit_chunk()
    assert (store.position, queue.next_offset) == (position, 3)
    assert log_bytes(tmp_path)[position:].strip(b"\0") != b""
    if crash:
        store.abandon()
    else:
        append(store, queue, b"later", sys_flag=4)
        store.commit_chunk()
        assert log_bytes(tmp_path)[store.position :].strip(b"\0") == b""
        store.close()
    with opened(tmp_path) as again:
        assert (again.recovery.cut > 0) is crash
        assert bodies_of(again, "T") == bodies


# Faults of the program


def test_error_while_writing_leaves_nothing_of_the_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"a" * 3900)
        real, calls = disk.write_at, []

        def faulty(fd: int, data: bytes, position: int) -> None:
            calls.append(position)
            if len(calls) == 2:
                raise MemoryError("no memory")
            real(fd, data, position)

        append(store, queue, b"b")
        append(store, queue, b"c" * 100)
        monkeypatch.setattr(disk, "write_at", faulty)
        with pytest.raises(StoreError, match="could not be written"):
            store.commit_chunk()
        monkeypatch.undo()
        assert len(calls) > 1
        assert bodies_of(store, "T") == [b"a" * 3900]
        assert store.recovery.cut == 0
        put(store, queue, b"d")
    crashed(tmp_path)
    with opened(tmp_path) as store:
        assert bodies_of(store, "T") == [b"a" * 3900, b"d"]
        assert store.recovery.damaged == ()


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_error_while_adding_entries_stops_the_store_and_the_next_start_has_all(
    batch: bool, flush: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path, flush_disk_type=flush)
    first, second = store.queue("T", 0), store.queue("T", 1)
    put(store, first, b"a")
    append(store, first, b"b")
    if batch:
        fields = {"sys_flag": 0, "born_timestamp": 1, "born_host": HOST, "reconsume_times": 0, "now_ms": 1}
        store.append_batch(second, [(0, b"c", b"", 0), (0, b"dd", b"", 0)], b"", **fields)
    else:
        append(store, second, b"c")
        append(store, second, b"dd")
    monkeypatch.setattr(second, "map_base", None)
    with pytest.raises(StoreBrokenError, match="restart the broker"):
        store.commit_chunk()
    assert "were not made" in caplog.text
    with pytest.raises(StoreBrokenError):
        put(store, first, b"never stored")
    with pytest.raises(StoreBrokenError):
        store.flush()
    with pytest.raises(StoreBrokenError, check=about(what="close")):
        store.close()
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as store:
        assert bodies_of(store, "T", 0) == [b"a", b"b"]
        assert bodies_of(store, "T", 1) == [b"c", b"dd"]


@pytest.mark.parametrize("batch", [True, False])
def test_entry_that_is_not_the_queues_next_stops_the_store(batch: bool, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    queue = store.queue("T", 0)
    put(store, queue, b"a")
    if batch:
        fields = {"sys_flag": 0, "born_timestamp": 1, "born_host": HOST, "reconsume_times": 0, "now_ms": 1}
        store.append_batch(queue, [(0, b"c", b"", 0), (0, b"dd", b"", 0)], b"", **fields)
    else:
        append(store, queue, b"c")
    queue.committed = 0  # what no code should do
    with pytest.raises(StoreBrokenError):
        store.commit_chunk()
    store.abandon()


@pytest.mark.parametrize("what", ["gap", "overlap", "length", "file"])
def test_chunk_that_does_not_continue_the_log_is_not_written(what: str, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, store.queue("T", 0), b"a")
    log, end = store._log, store.position
    start = end + {"gap": 1, "overlap": -1}.get(what, 0)
    size = LOG_BYTES if what == "file" else 10
    claimed = start + size + (what == "length")
    with pytest.raises(StoreBrokenError, match=r"do not continue the log|is claimed"):
        log.write([(start, [b"x" * size])], LogEnd(claimed, start, START_MS))
    assert log.position == end
    assert log.failed is not None
    store.abandon()
    with opened(tmp_path) as store:
        assert bodies_of(store, "T") == [b"a"]
        assert store.recovery.cut == 0
