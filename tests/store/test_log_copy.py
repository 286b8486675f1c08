"""A slave's log: the master's bytes at the master's positions, and the same queues."""

from __future__ import annotations

import errno
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.store.damage import crashed
from tests.store.rig import HOST_V6, LOG_BYTES, START_MS, append, bodies_of, fill, open_store, opened, put
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError, StoreError, StoreFullError
from sparrowmq.core.names import SCHEDULE_TOPIC
from sparrowmq.files import disk
from sparrowmq.protocol.producer_mark import mark_head
from sparrowmq.protocol.record import BLANK_MAGIC
from sparrowmq.store.log_copy import RECORD_BYTES_MAX, NoRecordError
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.tables.producer_state import SWEEP_MS, StoredRange

TOPIC = "T"


def log_of(master: MessageStore, start: int = 0) -> bytes:
    """The master's log from a position."""
    parts = []
    while start < master.position:
        piece = master.raw_log.piece(start, 1 << 30)
        assert piece is not None
        parts.append(bytes(piece))
        start += len(piece)
    return b"".join(parts)


def write(slave: MessageStore) -> None:
    """Write complete records."""
    while slave.copy.step() is not None:
        pass


def send(master: MessageStore, slave: MessageStore, *, start: int | None = None, size: int = 1 << 20) -> None:
    """Copy what the slave lacks, in pieces of a given size."""
    position = slave.copy.received if start is None else start
    data = log_of(master, position)
    for at in range(0, len(data), size):
        slave.copy.add(position + at, data[at : at + size])
        write(slave)


def queues_of(store: MessageStore) -> dict[tuple[str, int], list[Any]]:
    """Every queue's entries."""
    return {
        (queue.topic, queue.queue_id): [
            queue.entry(offset) for offset in range(queue.min_offset, queue.committed)
        ]
        for queue in store.all_queues()
        if queue.committed
    }


def files_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}


def some_messages(master: MessageStore, count: int, seed: int = 1) -> None:
    """Messages of all kinds, over several files."""
    chance = random.Random(seed)
    for number in range(count):
        queue = master.queue(chance.choice([TOPIC, "Other", "L" * 200]), chance.randrange(3))
        kind = chance.randrange(10)
        body = bytes(chance.randrange(1, 900))
        changes: dict[str, Any] = {"tags": chance.choice([None, "a", "zwölf"])}
        if kind == 0:
            changes["born_host"] = HOST_V6
        elif kind == 1:
            changes["sys_flag"] = 4
        elif kind == 2:
            changes = {"sys_flag": 8, "prepared_offset": 5}
        append(master, queue, body, **changes)
        if number % 3 == 0:
            master.commit_chunk()
    master.commit_chunk()


@pytest.mark.parametrize("size", [1, 7, 100, 4096, 1 << 20])
def test_copy_has_the_same_bytes_and_queues(tmp_path: Path, size: int) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        some_messages(master, 60)
        send(master, slave, size=size)
        assert slave.position == master.position
        assert queues_of(slave) == queues_of(master)
        assert bodies_of(slave, TOPIC) == bodies_of(master, TOPIC)
        expected = queues_of(master)
    assert files_of(tmp_path / "s") == files_of(tmp_path / "m")
    with opened(tmp_path / "s") as promoted:
        assert queues_of(promoted) == expected
        assert put(promoted, promoted.queue(TOPIC, 0), b"new")[0] == len(expected[TOPIC, 0])


def test_slave_continues_where_it_stopped(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master:
        slave = open_store(tmp_path / "s", is_copy=True)
        for turn in range(5):
            some_messages(master, 15, seed=turn)
            data = log_of(master, slave.position)
            slave.copy.add(slave.position, data[: len(data) - 50])
            write(slave)
            if turn % 2:
                slave.close()
            else:
                slave.flush()
                slave.abandon()
            slave = open_store(tmp_path / "s", is_copy=True)
            assert slave.position <= master.position - 50
        send(master, slave)
        assert queues_of(slave) == queues_of(master)
        slave.close()
    assert files_of(tmp_path / "s") == files_of(tmp_path / "m")


def test_new_slave_begins_at_any_file(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        some_messages(master, 60)
        start = 2 * LOG_BYTES
        send(master, slave, start=start)
        assert slave.position == master.position and slave.min_position == start
        for key, entries in queues_of(master).items():
            kept = [entry for entry in entries if entry.physical_offset >= start]
            assert queues_of(slave)[key] == kept
            queue = slave.queue(*key)
            assert queue.max_offset == len(entries) and queue.min_offset == len(entries) - len(kept)
        expected = queues_of(slave)
    crashed(tmp_path / "s")
    with opened(tmp_path / "s", is_copy=True) as again:
        assert queues_of(again) == expected


def test_incomplete_record_is_not_in_the_log(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        fill(master, master.queue(TOPIC, 0), 3)
        data = log_of(master)
        slave.copy.add(0, data[:-1])
        write(slave)
        two = slave.position
        assert 0 < two < len(data) - 1 == slave.copy.received
        slave.copy.drop()
        assert slave.copy.received == slave.copy.position == two
        send(master, slave)
        assert bodies_of(slave, TOPIC) == [b"m0", b"m1", b"m2"]


def test_recreated_topic_begins_at_its_new_first_message(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        fill(master, master.queue(TOPIC, 0), 5)
        send(master, slave)
        master.delete_topic(TOPIC)
        fill(master, master.queue("Other", 0), 1)
        fill(master, master.queue(TOPIC, 0), 2, "new")
        send(master, slave)
        assert bodies_of(slave, TOPIC) == [b"new0", b"new1"]
        assert bodies_of(slave, "Other") == [b"m0"]


def test_missing_offsets_are_skipped(tmp_path: Path) -> None:
    """As when the first of these messages was in a file that the slave does not have."""
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        queue = master.queue(TOPIC, 0)
        fill(master, queue, 25)
        data = log_of(master)
        size = struct.unpack_from(">i", data)[0]
        slave.copy.add(0, data[: 3 * size])
        write(slave)
        lacks = slave.queue(TOPIC, 0)
        lacks.truncate(1)
        send(master, slave)
        assert lacks.max_offset == 25
        assert [lacks.physical_offset(offset) is None for offset in range(4)] == [False, True, True, False]


def test_queue_begins_at_any_offset(tmp_path: Path) -> None:
    """As in a copy of a topic: a new log whose queues keep their offsets."""
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        queue = master.queue(TOPIC, 0)
        queue.fill(10**7 + 3, 0)
        fill(master, queue, 25)
        send(master, slave)
        copied = slave.queue(TOPIC, 0)
        assert (copied.min_offset, copied.max_offset) == (10**7 + 3, 10**7 + 28)
        assert bodies_of(slave, TOPIC) == [b"m%d" % number for number in range(10**7 + 3, 10**7 + 28)]


def test_impossible_offset_gets_no_entry(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        fill(master, master.queue(TOPIC, 0), 2)
        data = bytearray(log_of(master))
        size = struct.unpack_from(">i", data)[0]
        struct.pack_into(">q", data, size + 20, 10**9)
        slave.copy.add(0, bytes(data))
        write(slave)
        assert slave.position == master.position
        assert slave.queue(TOPIC, 0).max_offset == 1


def test_delayed_messages_are_due_when_they_are_at_the_master(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        due = START_MS + 5000
        put(master, master.queue(SCHEDULE_TOPIC, 1), b"x", tags_code=due, properties=b"DELAY\x012\x02")
        send(master, slave)
        entry = slave.queue(SCHEDULE_TOPIC, 1).entry(0)
        assert entry is not None and entry.tags_code == due


def test_idempotent_producers_are_known_to_the_slave(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        mark = mark_head("p-1", 0, TOPIC, 0) + b"4\x02"
        put(master, master.queue(TOPIC, 0), b"x", properties=mark)
        send(master, slave)
        held = slave.producers.find("p-1", TOPIC, 0)
        assert held is not None and held.last == 4


def test_recreated_topic_has_new_producers_at_the_slave(tmp_path: Path) -> None:
    """Otherwise the next master would treat rows as duplicates of the old topic's, and they would be lost."""
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        for number in range(4):
            mark = mark_head("p-1", 3, TOPIC, 0) + b"%d\x02" % number
            put(master, master.queue(TOPIC, 0), b"old", properties=mark)
        send(master, slave)
        master.delete_topic(TOPIC)
        mark = mark_head("p-1", 3, TOPIC, 0) + b"0\x02"
        put(master, master.queue(TOPIC, 0), b"new", properties=mark)
        send(master, slave)
        held = slave.producers.find("p-1", TOPIC, 0)
        assert held is not None and (held.last, held.ranges) == (0, (StoredRange(0, 0, 0),))


def test_idle_producers_are_forgotten_at_the_slave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        slave.producers.expire_ms = 1000
        for number, at in enumerate((START_MS, START_MS + 2 * SWEEP_MS)):
            mark = mark_head(f"p-{number}", 0, TOPIC, 0) + b"0\x02"
            append(master, master.queue(TOPIC, 0), b"x", properties=mark, now_ms=at)
            master.commit_chunk()
        send(master, slave)
        assert [key[0] for key, _ in slave.producers.snapshot().producers] == ["p-1"]


def test_nothing_is_appended_to_a_copy(tmp_path: Path) -> None:
    with opened(tmp_path / "s", is_copy=True) as slave, pytest.raises(StoreError, check=about(what="copy")):
        append(slave, slave.queue(TOPIC, 0), b"x")


def test_full_disk_leaves_the_log_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        fill(master, master.queue(TOPIC, 0), 2)
        send(master, slave)
        position = slave.position
        fill(master, master.queue(TOPIC, 0), 2)

        def fails(*_: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_at", fails)
            slave.copy.add(position, log_of(master, position))
            with pytest.raises(StoreFullError):
                write(slave)
        slave.copy.drop()
        assert slave.position == position
        send(master, slave)
        assert bodies_of(slave, TOPIC) == [b"m0", b"m1", b"m2", b"m3"]


def test_with_sync_flush_messages_become_visible_after_the_flush(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "m") as master,
        opened(tmp_path / "s", is_copy=True, flush_disk_type="SYNC_FLUSH") as slave,
    ):
        fill(master, master.queue(TOPIC, 0), 2)
        send(master, slave)
        assert slave.queue(TOPIC, 0).max_offset == 0
        slave.flush()
        assert slave.queue(TOPIC, 0).max_offset == 2


def _other_place(data: bytearray) -> None:
    struct.pack_into(">q", data, 28, 7)


def _other_magic(data: bytearray) -> None:
    struct.pack_into(">I", data, 4, 0x12345678)


def _too_large(data: bytearray) -> None:
    struct.pack_into(">i", data, 0, LOG_BYTES)


def _too_small(data: bytearray) -> None:
    struct.pack_into(">i", data, 0, 20)


def _early_blank(data: bytearray) -> None:
    struct.pack_into(">iI", data, 0, 100, BLANK_MAGIC)


def _other_lengths(data: bytearray) -> None:
    struct.pack_into(">i", data, 84, 10**6)


@pytest.mark.parametrize(
    "change", [_other_place, _other_magic, _too_large, _too_small, _early_blank, _other_lengths]
)
def test_bytes_that_are_no_record_are_refused(tmp_path: Path, change: Callable[[bytearray], None]) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        fill(master, master.queue(TOPIC, 0), 3)
        data = bytearray(log_of(master))
        change(data)
        slave.copy.add(0, bytes(data))
        with pytest.raises(NoRecordError):
            write(slave)
        slave.copy.drop()
        assert slave.position == 0
        send(master, slave)
        assert bodies_of(slave, TOPIC) == [b"m0", b"m1", b"m2"]


@pytest.mark.parametrize("place", [-1, 1, LOG_BYTES])
def test_bytes_for_another_position_are_refused(tmp_path: Path, place: int) -> None:
    with opened(tmp_path / "m") as master, opened(tmp_path / "s", is_copy=True) as slave:
        fill(master, master.queue(TOPIC, 0), 1)
        send(master, slave)
        with pytest.raises(StoreCorruptError, check=about(what="position", value=slave.position + place)):
            slave.copy.add(slave.position + place, b"x")


def test_file_of_another_size_is_refused(tmp_path: Path) -> None:
    with (
        opened(tmp_path / "s", is_copy=True) as slave,
        pytest.raises(StoreCorruptError, check=about(what="mappedFileSizeCommitLog")),
    ):
        slave.copy.add(LOG_BYTES + 5, b"x")


def test_limit_of_a_slave_does_not_apply_to_what_its_master_has(tmp_path: Path) -> None:
    size = 1 << 20
    with (
        opened(tmp_path / "m", mapped_file_size_commit_log=size) as master,
        opened(tmp_path / "s", is_copy=True, mapped_file_size_commit_log=size, max_message_size=10) as slave,
    ):
        put(master, master.queue(TOPIC, 0), bytes(100_000))
        slave.copy.add(0, log_of(master))
        write(slave)
        assert bodies_of(slave, TOPIC) == [bytes(100_000)]


def test_record_larger_than_any_broker_takes_is_refused_by_its_head(tmp_path: Path) -> None:
    size = 64 << 20
    with (
        opened(tmp_path / "m", mapped_file_size_commit_log=size) as master,
        opened(tmp_path / "s", is_copy=True, mapped_file_size_commit_log=size) as slave,
    ):
        append(master, master.queue(TOPIC, 0), bytes(RECORD_BYTES_MAX), is_own=True)
        master.commit_chunk()
        slave.copy.add(0, log_of(master)[:100])
        with pytest.raises(StoreCorruptError, match=f"no broker takes more than {RECORD_BYTES_MAX}"):
            write(slave)
