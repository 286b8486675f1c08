"""Opening a store brings the table of producers to what the log has, whatever became of its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.rig import START_MS, ManualClock, open_store, put

from sparrowmq.protocol.producer_mark import Mark, binding, mark_head
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.producer_state import FILE_NAME, Key, ProducerQueue

HOUR_MS = 3_600_000


def send(store: MessageStore, sequence: int, topic: str = "T", *, note: bool = True) -> None:
    """Store one message of producer p as the broker does."""
    queue = store.queue(topic, 0)
    own = mark_head("p", 0, topic, 0) + b"%d\x02UNIQ_KEY\x01A%d\x02" % (sequence, sequence)
    offset, _ = put(store, queue, b"x" * 50, properties=own)
    if note:
        store.producers.note(topic, 0, Mark("p", 0, sequence, binding(topic, 0)), 1, offset, START_MS)


def known(store: MessageStore) -> list[tuple[Key, ProducerQueue]]:
    return sorted(store.producers.snapshot())


def reopened(store: MessageStore, root: Path, *, crash: bool = True) -> MessageStore:
    (store.abandon if crash else store.close)()
    return open_store(root)


def test_a_crash_loses_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(10):
        send(store, number)
    store.flush_queues(safe_point=True)
    for number in range(10, 60):
        send(store, number)
        put(store, store.queue("Other", 1), b"between")
    wanted = known(store)
    assert wanted[0][1].last == 59
    store = reopened(store, tmp_path)
    assert known(store) == wanted
    store = reopened(store, tmp_path, crash=False)
    assert known(store) == wanted
    store.close()


def test_a_clean_stop_needs_no_look_at_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    send(store, 0)
    put(store, store.queue("Other", 0), b"later")
    store.close()

    def refuse(*_: object) -> None:
        raise AssertionError("the log was read")

    monkeypatch.setattr("sparrowmq.store.producer_recovery.scan", refuse)
    store = open_store(tmp_path)
    assert len(store.producers) == 1
    put(store, store.queue("Other", 0), b"later")
    store.close()
    open_store(tmp_path).close()


def test_stores_without_such_producers_write_no_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, store.queue("T", 0), b"plain")
    store.close()
    assert not (tmp_path / FILE_NAME).exists()
    open_store(tmp_path).close()


def test_an_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 0)
    store.flush_queues(safe_point=True)
    (tmp_path / FILE_NAME).unlink()
    put(store, store.queue("T", 0), b"plain")
    store.flush_queues(safe_point=True)
    assert not (tmp_path / FILE_NAME).exists()
    store.close()


def _garbage(path: Path) -> None:
    path.write_bytes(b"{")


def _odd_rows(path: Path) -> None:
    path.write_bytes(b'{"version":1,"position":0,"producers":[["p","T"]]}')


def _beyond(path: Path) -> None:
    path.write_bytes(b'{"version":1,"position":99999999,"producers":[["q","T",0,0,5,1,[]]]}')


@pytest.mark.parametrize("damage", [Path.unlink, _garbage, _odd_rows, _beyond])
def test_without_a_usable_file_the_whole_log_is_read(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    store = open_store(tmp_path)
    for number in range(60):
        send(store, number)
    wanted = known(store)
    store.close()
    damage(tmp_path / FILE_NAME)
    store = open_store(tmp_path)
    assert known(store) == wanted
    store.close()
    store = open_store(tmp_path)
    assert known(store) == wanted, "the file was written anew"
    store.close()


def test_what_another_broker_stored_is_found(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 0)
    store.close()
    store = open_store(tmp_path)
    kept = (tmp_path / FILE_NAME).read_bytes(), (tmp_path / "safe-point.json").read_bytes()
    send(store, 1, note=False)  # as a broker that does not note
    store.close()
    for name, data in zip((FILE_NAME, "safe-point.json"), kept, strict=True):
        (tmp_path / name).write_bytes(data)
    store = open_store(tmp_path)
    assert known(store)[0][1].last == 1
    store.close()


def test_a_deleted_topic_stays_forgotten_after_a_crash(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 0)
    send(store, 0, "Gone")
    store.flush_queues(safe_point=True)
    store.delete_topic("Gone")
    assert len(store.producers) == 1
    store = reopened(store, tmp_path)
    assert [key[1] for key, _ in known(store)] == ["T"]
    send(store, 0, "Gone")
    store = reopened(store, tmp_path)
    assert [key[1] for key, _ in known(store)] == ["Gone", "T"]
    store.close()


def test_a_deleted_queue_is_forgotten(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 0)
    store.delete_queue(store.queue("T", 0))
    assert len(store.producers) == 0
    store.close()


def test_an_idle_producer_does_not_come_back(tmp_path: Path) -> None:
    store = open_store(tmp_path, producer_expire_hours=1)
    send(store, 0)
    store.abandon()
    clock = ManualClock()
    clock.ms += HOUR_MS + 1
    store = open_store(tmp_path, clock=clock, producer_expire_hours=1)
    assert len(store.producers) == 0
    store.close()


def test_a_snapshot_between_commit_and_note_does_not_hide_the_message(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 0)
    store.producers.behind = store.position
    send(store, 1, note=False)
    store.flush_queues(safe_point=True)  # another thread, at the worst moment
    store = reopened(store, tmp_path)
    assert known(store)[0][1].last == 1
    store.close()


def test_prepared_messages_do_not_count(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    own = mark_head("p", 0, "T", 0) + b"0\x02"
    put(store, store.queue("T", 0), b"half", properties=own, sys_flag=4)
    put(store, store.queue("T", 0), b"message")
    store = reopened(store, tmp_path)
    assert len(store.producers) == 0
    store.close()
