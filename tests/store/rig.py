"""Shared helpers of the store tests: small stores, appending and reading in one call, copies of real
stores."""

from __future__ import annotations

import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from tests.protocol.archives import unpacked

from sparrowmq.core.hashing import tags_code
from sparrowmq.core.ids import pack_host
from sparrowmq.protocol.record import StoredRecord, decode_records
from sparrowmq.store.base.settings import StoreSettings
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import ConsumeQueue
from sparrowmq.store.queues.reads import GetStatus

HOST = pack_host("127.0.0.1", 10911)
HOST_V6 = pack_host("2001:db8::1", 10911)
LOG_BYTES = 4096
QUEUE_BYTES = 200
"""Ten entries a file: most tests cross several files."""

INDEX_SLOTS = 20
INDEX_ENTRIES = 50

START_MS = 1_700_000_000_000
COPIED = ("commitlog", "consumequeue", "config", "checkpoint", "abort", "lock")


class ManualClock:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.ms = START_MS

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


T = TypeVar("T")


def small(root: Path, **changes: Any) -> StoreSettings:
    """Settings with tiny files."""
    values: dict[str, Any] = {
        "mapped_file_size_commit_log": LOG_BYTES,
        "mapped_file_size_consume_queue": QUEUE_BYTES,
        "max_hash_slot_num": INDEX_SLOTS,
        "max_index_num": INDEX_ENTRIES,
        # the machine that runs the tests may have a full disk
        "disk_space_warning_level_ratio": 100,
    }
    return StoreSettings(root=root, **(values | changes))


def open_store(
    root: Path, *, clock: ManualClock | None = None, store_host: bytes = HOST, **changes: Any
) -> MessageStore:
    """A small store in `root`."""
    return MessageStore.open(small(root, **changes), clock or ManualClock(), store_host=store_host)


@contextmanager
def opened(root: Path, **changes: Any) -> Iterator[MessageStore]:
    """The same, closed at the end."""
    store = open_store(root, **changes)
    try:
        yield store
    finally:
        store.close()


def append(store: MessageStore, queue: ConsumeQueue, body: bytes, **changes: Any) -> int:
    """Add a message to the chunk; its physical offset."""
    tags = changes.pop("tags", None)
    values: dict[str, Any] = {
        "flag": 0,
        "sys_flag": 0,
        "born_timestamp": START_MS,
        "born_host": HOST,
        "reconsume_times": 0,
        "prepared_offset": 0,
        "tags_code": tags_code(tags),
        "now_ms": START_MS,
    }
    properties = changes.pop("properties", b"" if tags is None else b"TAGS\x01" + tags.encode() + b"\x02")
    return store.append(queue, body, properties, **(values | changes))


def put(store: MessageStore, queue: ConsumeQueue, body: bytes, **changes: Any) -> tuple[int, int]:
    """Store one message; its queue offset and physical offset."""
    offset = queue.next_offset
    physical = append(store, queue, body, **changes)
    store.commit_chunk()
    return offset, physical


def fill(store: MessageStore, queue: ConsumeQueue, count: int, prefix: str = "m") -> list[bytes]:
    """Store `count` messages one by one; their bodies."""
    bodies = [f"{prefix}{number}".encode() for number in range(queue.next_offset, queue.next_offset + count)]
    for body in bodies:
        put(store, queue, body)
    return bodies


def read_all(store: MessageStore, queue: ConsumeQueue, offset: int | None = None) -> list[StoredRecord]:
    """Every message of a queue from `offset` (else its first) on, as consumers get them."""
    records: list[StoredRecord] = []
    position = queue.min_offset if offset is None else offset
    while position < queue.max_offset:
        result = store.get_messages(queue, position, max_count=32, max_bytes=256 * 1024)
        assert result.status in (GetStatus.FOUND, GetStatus.MESSAGE_WAS_REMOVING), result
        assert result.next_offset > position, result
        data = b"".join(result.buffers)
        assert len(data) == result.size
        found = decode_records(data)
        assert len(found) == result.count
        records += found
        position = result.next_offset
    return records


def bodies_of(store: MessageStore, topic: str, queue_id: int = 0) -> list[bytes]:
    """The bodies of a queue in order."""
    return [record.body for record in read_all(store, store.queue(topic, queue_id))]


def copy_archive(name: str, root: Path) -> Path:
    """A copy of a real broker's directory that a test may change."""
    source = unpacked(name)
    root.mkdir(parents=True)
    for part in COPIED:
        if (source / part).is_dir():
            shutil.copytree(source / part, root / part)
        elif (source / part).exists():
            shutil.copy2(source / part, root / part)
    return root


ARCHIVE_SIZES = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 2000}
"""What the archives were made with."""


def query(store: MessageStore, *arguments: Any, **options: Any) -> list[bytes]:
    """What a search by key gives when its steps are done in one go."""
    work = store.query(*arguments, **options)
    while True:
        try:
            next(work)
        except StopIteration as end:
            records: list[bytes] = end.value[0]
            return records


def by_time(store: MessageStore, queue: ConsumeQueue, timestamp: int, boundary: str = "LOWER") -> int:
    """The offset that a search by store time finds."""
    return ended(store.searching(queue, timestamp, boundary))[0]


def ended(work: Generator[None, None, T]) -> tuple[T, int]:
    """The result of work done in steps, and the number of steps."""
    count = 0
    while True:  # ends with the work
        try:
            next(work)
        except StopIteration as end:
            return end.value, count
        count += 1
