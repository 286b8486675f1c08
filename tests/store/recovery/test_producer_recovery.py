"""Opening a store restores the table of producers from the log, whatever happened to its file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.rig import START_MS, ManualClock, open_store, put

from sparrowmq.core.names import PRODUCER_ENDS_TOPIC
from sparrowmq.protocol.producer_mark import Mark, ProducerEnd, binding, end_properties, mark_head
from sparrowmq.store.base.segments import SegmentSequence
from sparrowmq.store.log.commit_log import LogEnd
from sparrowmq.store.log.scan import Scanned, Visit, scan
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queue_deletion import Leaving
from sparrowmq.store.recovery.safe_point import SafePoint
from sparrowmq.store.tables.producer_state import FILE_NAME, Key, ProducerQueue

HOUR_MS = 3_600_000


def send(store: MessageStore, sequence: int, topic: str = "T", *, note: bool = True) -> None:
    """Store one message of producer p as the broker does."""
    queue = store.queue(topic, 0)
    own = mark_head("p", 0, topic, 0) + b"%d\x02UNIQ_KEY\x01A%d\x02" % (sequence, sequence)
    offset, _ = put(store, queue, b"x" * 50, properties=own)
    if note:
        store.producers.note(topic, 0, Mark("p", 0, sequence, binding(topic, 0)), 1, offset, START_MS)


def known(store: MessageStore) -> list[tuple[Key, ProducerQueue]]:
    return sorted(store.producers.snapshot().producers)


def reopened(store: MessageStore, root: Path, *, crash: bool = True) -> MessageStore:
    (store.abandon if crash else store.close)()
    return open_store(root)


def test_crash_loses_nothing(tmp_path: Path) -> None:
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


def ended(store: MessageStore, end: ProducerEnd) -> None:
    """Store an end as the broker does, and apply it."""
    own = end_properties(end)
    offset, _ = put(store, store.queue(PRODUCER_ENDS_TOPIC, 0), b"end", properties=own)
    store.producers.replay(PRODUCER_ENDS_TOPIC, 0, own, offset, START_MS)


@pytest.mark.parametrize("saved", [False, True])
def test_crash_loses_no_end(tmp_path: Path, saved: bool) -> None:
    """Otherwise a task of an earlier run could store its rows beside those of a later one."""
    store = open_store(tmp_path)
    own = mark_head("job-0", 1, "T", 0) + b"0\x02"
    put(store, store.queue("T", 0), b"x", properties=own)
    store.producers.replay("T", 0, own, 0, START_MS)
    ended(store, ProducerEnd("T", "job", 5, "done"))
    ended(store, ProducerEnd("Gone", "job", 5, "done"))
    ended(store, ProducerEnd("Gone"))
    if saved:
        store.flush_queues(safe_point=True)
        (tmp_path / FILE_NAME).unlink()
    store = reopened(store, tmp_path)
    assert store.producers.end_of("job", "T")[:2] == (5, "done")
    assert not known(store) and not store.producers.knows("Gone")
    store.close()


def test_end_in_a_topic_that_was_deleted_later_is_forgotten(tmp_path: Path) -> None:
    """Also after a crash between the deletion and its record."""
    store = open_store(tmp_path)
    send(store, 0)
    ended(store, ProducerEnd("T", "job", 5))
    for _ in store.drop(noted(store)):
        pass
    store = reopened(store, tmp_path)
    assert not store.producers.knows("T")
    store.close()


def noted(store: MessageStore) -> Leaving:
    """The deletion of topic T, on disk."""
    leaving = store.leave("T", store.queues("T"), whole=True)
    store.note(leaving)
    return leaving


def test_clean_stop_needs_no_scan_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    send(store, 0)
    put(store, store.queue("Other", 0), b"later")
    store.close()

    def refuse(*_: object) -> None:
        raise AssertionError("the log was read")

    monkeypatch.setattr("sparrowmq.store.recovery.producer_recovery.scan", refuse)
    store = open_store(tmp_path)
    assert len(store.producers) == 1
    put(store, store.queue("Other", 0), b"later")
    store.close()
    open_store(tmp_path).close()


def test_crash_rescans_the_log_only_from_the_first_such_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[int] = []

    def noted(files: SegmentSequence, start: LogEnd, visit: Visit, on_disk: int = 0) -> Scanned:
        began.append(start.position)
        return scan(files, start, visit, on_disk)

    monkeypatch.setattr("sparrowmq.store.recovery.producer_recovery.scan", noted)
    store = open_store(tmp_path)
    put(store, store.queue("Other", 0), b"earlier")
    store = reopened(store, tmp_path)
    assert not began
    first = store.position
    send(store, 0)
    send(store, 1)
    store = reopened(store, tmp_path)
    assert began == [first]
    assert known(store)[0][1].last == 1
    store.close()


def test_early_safe_point_forgets_no_new_producer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.store.queue_flush.SAFE_POINT_BYTES", 1)
    store = open_store(tmp_path)
    for number in range(3):
        send(store, number)
        store.flush_queues()
        assert SafePoint.load(tmp_path).position == store.position
    wanted = known(store)
    store = reopened(store, tmp_path)
    assert store.recovery.records == 0
    assert known(store) == wanted
    store.close()


def test_stores_without_such_producers_write_no_file(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    put(store, store.queue("T", 0), b"plain")
    store.close()
    assert not (tmp_path / FILE_NAME).exists()
    open_store(tmp_path).close()


def test_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
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


def _short_row(path: Path) -> None:
    path.write_bytes(b'{"version":1,"position":1,"producers":[[]]}')


def _named_row(path: Path) -> None:
    path.write_bytes(b'{"version":1,"position":1,"producers":[{}]}')


@pytest.mark.parametrize("damage", [Path.unlink, _garbage, _odd_rows, _short_row, _named_row, _beyond])
def test_whole_log_is_read_without_a_usable_file(tmp_path: Path, damage: Callable[[Path], None]) -> None:
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


def test_messages_stored_by_another_broker_are_found(tmp_path: Path) -> None:
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


def test_deleted_topic_stays_forgotten_after_a_crash(tmp_path: Path) -> None:
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


def test_deleted_queue_is_forgotten(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 0)
    leaving = store.leave("T", [store.queue("T", 0)], whole=False)
    store.note(leaving)
    for _ in store.drop(leaving):
        pass
    assert len(store.producers) == 0
    store.close()


def test_idle_producer_does_not_return(tmp_path: Path) -> None:
    store = open_store(tmp_path, producer_expire_hours=1)
    send(store, 0)
    store.abandon()
    clock = ManualClock()
    clock.ms += HOUR_MS + 1
    store = open_store(tmp_path, clock=clock, producer_expire_hours=1)
    assert len(store.producers) == 0
    store.close()


def test_snapshot_between_commit_and_update_does_not_hide_the_message(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    send(store, 0)
    with store.producers.committing(store.position):
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


@pytest.mark.parametrize("written", [True, False])
def test_written_end_of_a_family_survives_a_crash(tmp_path: Path, written: bool) -> None:
    store = open_store(tmp_path)
    queue = store.queue("T", 0)
    own = mark_head("job-0", 4, "T", 0) + b"0\x02UNIQ_KEY\x01A\x02"
    offset, _ = put(store, queue, b"x" * 50, properties=own)
    store.producers.note("T", 0, Mark("job-0", 4, 0, binding("T", 0)), 1, offset, START_MS)
    store.flush_queues(safe_point=True)
    store.producers.end("job", "T", 8, "done", START_MS)
    if written:
        store.flush_queues(safe_point=True)
    store = reopened(store, tmp_path)
    assert store.producers.end_of("job", "T").note == ("done" if written else "")
    assert [key for key, _ in known(store)] == ([] if written else [("job-0", "T", 0)])
    store.close()
