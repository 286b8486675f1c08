"""Damaged queue entries over an intact log: detected, rebuilt, and no message is skipped."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.store.damage import crashed
from tests.store.rig import START_MS, append, bodies_of, open_store, opened, put, read_all

from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queues.consume_queue import CORRUPT_CODE, ENTRY
from sparrowmq.store.queues.reads import GetStatus
from sparrowmq.store.recovery import repair


def filled(store: MessageStore, count: int = 25) -> list[bytes]:
    """Messages of three queues and two topics in turn; returns the bodies of T/1."""
    rng = random.Random(5)
    bodies = []
    for number in range(count):
        for topic, queue_id in (("T", 0), ("T", 1), ("U", 1)):
            body = b"%s%d-%d " % (topic.encode(), queue_id, number) * rng.randrange(1, 6)
            append(store, store.queue(topic, queue_id), body, tags="A", now_ms=START_MS + number)
            if (topic, queue_id) == ("T", 1):
                bodies.append(body)
        store.commit_chunk()
    return bodies


def entry_file(root: Path, offset: int) -> tuple[Path, int]:
    return root / "consumequeue/T/1" / f"{offset // 10 * 200:020d}", offset % 10 * 20


def change(root: Path, offset: int, at: int, bit: int) -> None:
    """Flip one bit of a queue entry on disk."""
    path, start = entry_file(root, offset)
    data = bytearray(path.read_bytes())
    data[start + at] ^= 1 << bit
    path.write_bytes(data)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("offset", [0, 9, 12, 24], ids=str)
@pytest.mark.parametrize("at", [0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11], ids=str)
def test_changed_bit_of_an_entry_loses_no_message(
    clean: bool, offset: int, at: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as store:
        bodies = filled(store)
    path, start = entry_file(tmp_path, offset)
    was = path.read_bytes()[start : start + 20]
    for bit in (0, 3, 7):
        change(tmp_path, offset, at, bit)
        if not clean:
            crashed(tmp_path)
        with opened(tmp_path) as store:
            assert bodies_of(store, "T", 1) == bodies
            assert store.queue("T", 1).next_offset == 25, "no offset is given out twice"
        assert path.read_bytes()[start : start + 20] == was
    assert "rebuilt" in caplog.text


def test_garbage_entries_are_found_between_valid_ones(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    bodies = filled(store)
    queue = store.queue("T", 1)
    for offset in (3, 4, 17):
        queue.restore(offset, ENTRY.pack(0x123456789ABCDEF, 77, 5))
    result = store.get_messages(queue, 0, max_count=10, max_bytes=1 << 20)
    assert (result.status, result.count, result.passed) == (GetStatus.FOUND, 10, ())
    assert bodies_of(store, "T", 1) == bodies
    assert [record.queue_offset for record in read_all(store, queue)] == list(range(25))
    store.close()


def test_records_missing_in_the_log_are_searched_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    real = repair.find_entry
    monkeypatch.setattr(repair, "find_entry", lambda *args: asked.append(args[2]) or real(*args))
    with opened(tmp_path) as store:
        bodies = filled(store)
        queue = store.queue("T", 1)
        queue.restore(7, ENTRY.pack(0, 0x7FFFFFFF, 0))
        entry = queue.entry(8)
        assert entry is not None
        queue.restore(8, ENTRY.pack(entry.physical_offset, entry.size, CORRUPT_CODE))
        for _ in range(3):
            assert bodies_of(store, "T", 1) == bodies[:7] + bodies[9:]
        assert asked == [7]
        entry = queue.entry(9)
        queue.restore(9, ENTRY.pack(1 << 50, 1, 0))
        assert bodies_of(store, "T", 1) == bodies[:7] + bodies[9:]
        assert asked == [7, 9] and queue.entry(9) == entry, "what is hopeless stands in nobody's way"
        monkeypatch.setattr("sparrowmq.store.recovery.repair.HOPELESS_MAX", 1)
        queue.restore(6, ENTRY.pack(0, 0x7FFFFFFF, 0))
        bodies_of(store, "T", 1)
        bodies_of(store, "T", 1)
        assert asked[2:], "one of them is forgotten and looked for again"


@pytest.mark.parametrize("junk", [bytes(20), ENTRY.pack(1 << 40, 96, 0), ENTRY.pack(0, 96, 0)])
@pytest.mark.parametrize("how", ["running", "clean", "killed"])
def test_no_repair_restores_a_deleted_topic(how: str, junk: bytes, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(5):
        put(store, store.queue("T", 0), b"old%d" % number)
    store.delete_topic("T")
    queue = store.queue("T", 0)
    bodies = [b"new%d" % number for number in range(5)]
    for body in bodies:
        put(store, queue, body)
    store.flush_queues(safe_point=True)
    if how != "running":
        store.close() if how == "clean" else store.abandon()
        store = open_store(tmp_path)
        queue = store.queue("T", 0)
    for offset in (0, 1, 2):
        queue.restore(offset, junk)
    assert bodies_of(store, "T") == bodies
    store.close()


@pytest.mark.parametrize("wrong", ["another queue", "before it was deleted"])
def test_valid_record_of_another_queue_is_not_served(wrong: str, tmp_path: Path) -> None:
    """A changed bit of an entry may point to a record of the same size and offset."""
    with opened(tmp_path) as store:
        _, other = put(store, store.queue("T", 0 if wrong == "another queue" else 1), b"other")
        if wrong != "another queue":
            store.delete_topic("T")
        queue = store.queue("T", 1)
        put(store, queue, b"right")
        entry = queue.entry(0)
        assert entry is not None
        queue.restore(0, ENTRY.pack(other, entry.size, 0))
        assert bodies_of(store, "T", 1) == [b"right"]
        assert queue.entry(0) == entry


def test_messages_deleted_with_their_file_are_no_damage(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        bodies = filled(store)
        store.flush_queues(safe_point=True)
        store._log.files.detach_first()
        queue = store.queue("T", 1)
        result = store.get_messages(queue, 0, max_count=2, max_bytes=1 << 20)
        assert result.passed == ()
        assert bodies_of(store, "T", 1) != bodies
        kept = bodies_of(store, "T", 1)
        assert bodies[-len(kept) :] == kept


def test_search_for_a_lost_entry_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "SCAN_RECORDS", 3)
    with opened(tmp_path) as store:
        queue = store.queue("T", 1)
        put(store, queue, b"a")
        for _ in range(5):
            put(store, store.queue("T", 0), b"x")
        put(store, queue, b"b")
        queue.restore(1, ENTRY.pack(1 << 60, 5, 0))
        assert bodies_of(store, "T", 1) == [b"a"]
        monkeypatch.setattr(repair, "SCAN_RECORDS", 10)
        store._mender._hopeless.clear()
        assert bodies_of(store, "T", 1) == [b"a", b"b"]


def test_lost_queue_entries_are_rebuilt_without_reusing_offsets(tmp_path: Path) -> None:
    """An idle queue's record is in a file that a start after a clean stop does not read."""
    with opened(tmp_path) as store:
        idle = store.queue("T", 1)
        put(store, idle, b"idle", tags="A")
        put(store, idle, b"too", tags="A")
        for _ in range(60):
            put(store, store.queue("T", 0), b"x" * 100)
    change(tmp_path, 0, 3, 6)
    change(tmp_path, 1, 3, 6)
    with opened(tmp_path) as store:
        assert bodies_of(store, "T", 1) == [b"idle", b"too"]
        assert store.queue("T", 1).next_offset == 2
