"""Opening after crashes and damage: no committed message is lost, no torn or stale one is served."""

from __future__ import annotations

import logging
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.store.damage import copy, crashed, flip, forget_progress, forget_safe_point, read_log, write_log
from tests.store.rig import (
    LOG_BYTES,
    QUEUE_BYTES,
    START_MS,
    ManualClock,
    append,
    bodies_of,
    fill,
    open_store,
    opened,
    put,
    read_all,
)
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError, StoreFullError
from sparrowmq.store.base.segments import MapPool, Segment
from sparrowmq.store.queues.consume_queue import DUMMY, ENTRY
from sparrowmq.store.recovery.checkpoint import Checkpoint
from sparrowmq.store.recovery.dispatch import TRIM_RECORDS

PER_FILE = QUEUE_BYTES // 20


def all_bodies(root: Path, **settings: object) -> dict[tuple[str, int], list[bytes]]:
    """Open, read everything, close."""
    with opened(root, **settings) as store:
        return {
            (topic, queue.queue_id): bodies_of(store, topic, queue.queue_id)
            for topic in store.topics()
            for queue in store.queues(topic)
        }


def make(
    root: Path, count: int = 40, *, topics: tuple[str, ...] = ("A", "B")
) -> dict[tuple[str, int], list[bytes]]:
    """A store with `count` messages over several queues and files."""
    with opened(root) as store:
        for number in range(count):
            queue = store.queue(topics[number % len(topics)], number % 3 % 2)
            put(store, queue, b"%d:" % number + b"x" * (number * 37 % 500), now_ms=START_MS + number * 1000)
    return all_bodies(root)


def queue_tree(root: Path) -> dict[str, bytes]:
    """The contents of all queue files with at least one entry."""
    paths = [path for path in (root / "consumequeue").rglob("*") if path.is_file()]
    return {
        str(path.relative_to(root)): path.read_bytes() for path in paths if path.read_bytes().strip(b"\0")
    }


# Torn tails


@pytest.mark.parametrize("properties", [b"", b"TAGS\x01A\x02KEYS\x01k\x02"], ids=["plain", "properties"])
@pytest.mark.parametrize("safe_point", [True, False])
def test_last_record_is_cut_at_every_byte(properties: bytes, safe_point: bool, tmp_path: Path) -> None:
    root = tmp_path / "s"
    with opened(root) as store:
        queue = store.queue("T", 0)
        bodies = fill(store, queue, 5)
        if safe_point:
            store.flush_queues(safe_point=True)
        _, last = put(store, queue, b"last\xff" * 9, properties=properties)
        end = store.position
    if safe_point:  # closing wrote a later one: take the record back out of it
        text = (root / "safe-point.json").read_text()
        (root / "safe-point.json").write_text(text.replace('"0":6', '"0":5'))
    else:
        forget_progress(root)
    crashed(root)
    whole = read_log(root, last, end - last)
    original = queue_tree(root)
    for cut in range(end - last):
        write_log(root, last, whole[:cut] + bytes(len(whole) - cut))
        intact = not whole[cut:].strip(b"\0")
        with opened(root) as store:
            assert store.position == (end if intact else last), cut
            assert bodies_of(store, "T") == bodies + [b"last\xff" * 9] * intact
            assert store.recovery.dropped == (0 if intact else 1)
            assert read_log(root, store.position, LOG_BYTES - store.position).strip(b"\0") == b""
            assert put(store, store.queue("T", 0), b"next") == (6 if intact else 5, store.position - 96)
        shutil.copytree(root, tmp_path / "again")
        assert all_bodies(tmp_path / "again")["T", 0][-1] == b"next"
        shutil.rmtree(tmp_path / "again")
        # back to the state before
        write_log(root, last, whole + bytes(200))
        for name, data in original.items():
            (root / name).write_bytes(data)
        crashed(root)


@pytest.mark.parametrize("abort", [True, False])
def test_dropped_entries_do_not_return_after_clean_restarts(abort: bool, tmp_path: Path) -> None:
    """The reference only drops them in memory, and has them again after the next start (broker:18-3)."""
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        bodies = fill(store, queue, 5)
        _, last = put(store, queue, b"torn" * 20)
        end = store.position
    forget_safe_point(tmp_path)
    write_log(tmp_path, last + 60, bytes(end - last - 60))
    if abort:
        crashed(tmp_path)
    for _ in range(3):
        with opened(tmp_path) as store:
            assert (store.position, store.queue("T", 0).max_offset) == (last, 5)
    with opened(tmp_path) as store:
        put(store, store.queue("U", 0), b"another topic at the same place" * 3)
    assert all_bodies(tmp_path) == {("T", 0): bodies, ("U", 0): [b"another topic at the same place" * 3]}


def test_bytes_after_the_end_are_zeroed_and_reported(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    make(tmp_path)
    with opened(tmp_path) as store:
        end = store.position
    write_log(tmp_path, end + 5, b"garbage of a torn write")
    crashed(tmp_path)
    with opened(tmp_path) as store:
        assert store.recovery.cut == len("garbage of a torn write")
        assert store.position == end
    assert read_log(tmp_path, end, LOG_BYTES).strip(b"\0") == b""
    assert f"of an unfinished write after {end} were cut" in caplog.text


def test_files_after_the_end_are_removed(tmp_path: Path) -> None:
    expected = make(tmp_path)
    files = sorted((tmp_path / "commitlog").iterdir())
    following = int(files[-1].name) + LOG_BYTES
    for base in (following, following + LOG_BYTES):
        (tmp_path / "commitlog" / f"{base:020d}").write_bytes(bytes(LOG_BYTES))
    crashed(tmp_path)
    assert all_bodies(tmp_path) == expected
    assert sorted((tmp_path / "commitlog").iterdir()) == files


# Damage


@pytest.mark.parametrize("abort", [True, False])
def test_changed_body_is_reported_and_never_served(
    abort: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        fill(store, queue, 4)
        place = put(store, queue, b"victim")[1]
        fill(store, queue, 3)
    flip(tmp_path, place + 88)
    forget_safe_point(tmp_path)
    if abort:
        crashed(tmp_path)
    else:  # after a clean stop only what no queue knows is read; a missing queue makes it read everything
        shutil.rmtree(tmp_path / "consumequeue")
    with opened(tmp_path) as store:
        assert store.recovery.damaged == ((place, place + 98),)
        queue = store.queue("T", 0)
        assert queue.max_offset == 8
        records = read_all(store, queue)
        assert [record.queue_offset for record in records] == [0, 1, 2, 3, 5, 6, 7]
        assert put(store, queue, b"next")[0] == 8
    assert f"98 bytes at {place} are damaged" in caplog.text
    assert b"victim" not in all_bodies(tmp_path)["T", 0]


def test_damaged_last_record_of_a_queue_keeps_its_offset(tmp_path: Path) -> None:
    """Consumers may have passed it: a new message at its offset would never be seen."""
    with opened(tmp_path) as store:
        fill(store, store.queue("T", 0), 2)
        place = put(store, store.queue("T", 0), b"victim")[1]
        fill(store, store.queue("U", 0), 3)
    flip(tmp_path, place + 88)
    crashed(tmp_path)
    forget_safe_point(tmp_path)
    for _ in range(2):
        with opened(tmp_path) as store:
            queue = store.queue("T", 0)
            assert queue.max_offset == 3
            assert [record.queue_offset for record in read_all(store, queue)] == [0, 1]
        crashed(tmp_path)
        forget_safe_point(tmp_path)


def test_repaired_record_is_served_again(tmp_path: Path) -> None:
    expected = make(tmp_path)
    with opened(tmp_path) as store:
        place = store.queue("A", 0).physical_offset(3)
        assert place is not None
    flip(tmp_path, place + 90)
    crashed(tmp_path)
    forget_progress(tmp_path)
    assert len(all_bodies(tmp_path)["A", 0]) == len(expected["A", 0]) - 1
    flip(tmp_path, place + 90)
    crashed(tmp_path)
    forget_progress(tmp_path)
    assert all_bodies(tmp_path) == expected


@pytest.mark.parametrize("forget", [forget_safe_point, forget_progress])
def test_changed_header_loses_no_other_message(forget: Callable[[Path], None], tmp_path: Path) -> None:
    """The CRC covers only bodies; each byte of one header is changed in turn, and read again or not."""
    source = tmp_path / "source"
    expected = make(source)
    with opened(source) as store:
        place = store.queue("A", 0).physical_offset(4)
        assert place is not None
    crashed(source)
    forget_progress(source)
    for at in range(88):
        root = copy(source, tmp_path / "copy")
        flip(root, place + at)
        found = all_bodies(root)
        for key, bodies in expected.items():
            lost = [body for body in bodies if body not in found[key]]
            assert lost in ([], [expected["A", 0][4]]) if key == ("A", 0) else lost == [], at
        shutil.rmtree(root)


# Queues that lost entries


@pytest.mark.parametrize("abort", [True, False])
@pytest.mark.parametrize("safe_point", [True, False])
def test_all_lost_queues_are_rebuilt(abort: bool, safe_point: bool, tmp_path: Path) -> None:
    expected = make(tmp_path)
    tree = queue_tree(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    if abort:
        crashed(tmp_path)
    if not safe_point:
        forget_safe_point(tmp_path)
    assert all_bodies(tmp_path) == expected
    assert queue_tree(tmp_path) == tree


@pytest.mark.parametrize("abort", [True, False])
def test_lost_queue_without_later_records_is_rebuilt(abort: bool, tmp_path: Path) -> None:
    """Only our own notes show that it existed; the reference would start again at offset 0 (broker:18-4)."""
    with opened(tmp_path) as store:
        bodies = fill(store, store.queue("Old", 0), 5)
        fill(store, store.queue("New", 0), 200)
    shutil.rmtree(tmp_path / "consumequeue" / "Old")
    if abort:
        crashed(tmp_path)
    with opened(tmp_path) as store:
        assert store.recovery.lost_queues == ("Old/0",)
        assert bodies_of(store, "Old") == bodies
        assert put(store, store.queue("Old", 0), b"next")[0] == 5


def test_lost_queue_with_later_records_is_rebuilt_in_a_foreign_directory(tmp_path: Path) -> None:
    expected = make(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue" / "A" / "0")
    forget_safe_point(tmp_path)
    crashed(tmp_path)
    assert all_bodies(tmp_path) == expected


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_lost_queue_file_is_rebuilt(victim: int, tmp_path: Path) -> None:
    with opened(tmp_path, mapped_file_size_commit_log=1 << 16) as store:
        bodies = fill(store, store.queue("T", 0), 3 * PER_FILE)
    base = victim * QUEUE_BYTES
    (tmp_path / "consumequeue" / "T" / "0" / f"{base:020d}").unlink()
    crashed(tmp_path)
    assert all_bodies(tmp_path, mapped_file_size_commit_log=1 << 16) == {("T", 0): bodies}


@pytest.mark.parametrize("lost", [1, 3, PER_FILE, PER_FILE + 4])
def test_entries_lost_in_a_power_failure_are_rebuilt(lost: int, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        bodies = fill(store, queue, 3 * PER_FILE)
    original = queue_tree(tmp_path)
    for base in range(0, 3 * QUEUE_BYTES, QUEUE_BYTES):
        path = tmp_path / "consumequeue" / "T" / "0" / f"{base:020d}"
        keep = max(0, min(QUEUE_BYTES, (3 * PER_FILE - lost) * 20 - base))
        path.write_bytes(path.read_bytes()[:keep] + bytes(QUEUE_BYTES - keep))
    crashed(tmp_path)
    forget_safe_point(tmp_path)
    assert all_bodies(tmp_path) == {("T", 0): bodies}
    assert queue_tree(tmp_path) == original


@pytest.mark.parametrize("at", range(20))
def test_entry_torn_at_any_byte_is_repaired(at: int, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        for number in range(6):
            put(store, queue, b"%d" % number, tags="TagA")
    path = tmp_path / "consumequeue" / "T" / "0" / ("0" * 20)
    original = path.read_bytes()
    for torn in (
        original[: 80 + at] + bytes(QUEUE_BYTES - 80 - at),
        original[:80] + bytes(at) + original[80 + at :],
    ):
        path.write_bytes(torn)
        crashed(tmp_path)
        forget_safe_point(tmp_path)
        with opened(tmp_path) as store:
            assert len(read_all(store, store.queue("T", 0))) == 6
        assert path.read_bytes() == original


def test_dummies_that_the_reference_wrote_instead_of_entries_are_repaired(tmp_path: Path) -> None:
    expected = make(tmp_path)
    original = queue_tree(tmp_path)
    path = tmp_path / "consumequeue" / "A" / "0" / ("0" * 20)
    path.write_bytes(DUMMY * 7 + path.read_bytes()[140:])
    crashed(tmp_path)
    forget_safe_point(tmp_path)
    with opened(tmp_path) as store:
        assert store.recovery.replaced == 7
    assert all_bodies(tmp_path) == expected
    assert queue_tree(tmp_path) == original


# Where the scan begins


def test_nothing_is_read_again_after_a_clean_stop(tmp_path: Path) -> None:
    make(tmp_path)
    for keep in (True, False):
        if not keep:
            forget_safe_point(tmp_path)
        with opened(tmp_path) as store:
            assert (store.recovery.clean, store.recovery.records) == (True, 0)
            assert store.recovery.start == store.position > 0


def test_records_without_entries_after_the_last_one_are_found(tmp_path: Path) -> None:
    """After a clean stop of a broker that did not dispatch everything (broker:17-14)."""
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        bodies = fill(store, queue, 15)
    path = tmp_path / "consumequeue" / "T" / "0" / f"{QUEUE_BYTES:020d}"
    path.write_bytes(path.read_bytes()[:60] + bytes(QUEUE_BYTES - 60))
    forget_safe_point(tmp_path)
    with opened(tmp_path) as store:
        assert (store.recovery.clean, store.recovery.records, store.recovery.added) == (True, 2, 2)
        assert bodies_of(store, "T") == bodies


def test_clean_stop_with_a_false_entry_is_read_from_a_complete_file(tmp_path: Path) -> None:
    expected = make(tmp_path)
    with opened(tmp_path) as store:
        queue = store.queue("A", 0)
        queue.restore(queue.committed, ENTRY.pack(store.position + 500, 100, 0))
    forget_safe_point(tmp_path)
    with opened(tmp_path) as store:
        assert store.recovery.clean
        assert store.recovery.dropped == 1
        assert store.recovery.records > 0
    assert all_bodies(tmp_path) == expected


def test_recovery_after_a_crash_starts_at_the_safe_point(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    queue = store.queue("T", 0)
    fill(store, queue, 5)
    store.flush_queues(safe_point=True)
    safe = store.position
    fill(store, queue, 3)
    store.abandon()
    with opened(tmp_path) as again:
        assert (again.recovery.start, again.recovery.records) == (safe, 3)
        assert again.queue("T", 0).max_offset == 8


def test_safe_point_that_does_not_match_the_log_is_ignored(tmp_path: Path) -> None:
    expected = make(tmp_path)
    point = tmp_path / "safe-point.json"
    text = point.read_text()
    for record, position in ((5, 100), (-1, 0), (1 << 40, (1 << 40) + 10)):
        head = text[: text.index('"record"')]
        tail = text[text.index('"queues"') :]
        point.write_text(f'{head}"record":{record},"position":{position},{tail}')
        crashed(tmp_path)
        assert all_bodies(tmp_path) == expected


@pytest.mark.parametrize(("behind_ms", "file"), [(0, 2), (3000, 2), (60_000, None)])
def test_without_safe_point_the_checkpoint_selects_the_file(
    behind_ms: int, file: int | None, tmp_path: Path
) -> None:
    expected = make(tmp_path, 60)
    firsts = []
    for path in sorted((tmp_path / "commitlog").iterdir()):
        data = path.read_bytes()
        firsts.append((int(path.name), struct.unpack_from(">q", data, 56)[0]))
    assert len(firsts) >= 4
    base, time = firsts[2]
    crashed(tmp_path)
    forget_safe_point(tmp_path)
    Checkpoint(time + 3000 - behind_ms, time + 3000).save(tmp_path / "checkpoint")
    with opened(tmp_path) as store:
        if behind_ms == 0:
            assert store.recovery.start == base
        else:
            assert store.recovery.start < base
            assert file is None or store.recovery.start == firsts[1][0]
    assert all_bodies(tmp_path) == expected


def test_more_log_files_than_the_reference_examines_are_recovered(tmp_path: Path) -> None:
    expected = make(tmp_path, 300)
    assert len(list((tmp_path / "commitlog").iterdir())) > 15
    shutil.rmtree(tmp_path / "consumequeue")
    forget_safe_point(tmp_path)
    crashed(tmp_path)
    assert all_bodies(tmp_path) == expected


# Log files that are gone


@pytest.mark.parametrize("crash", [True, False])
@pytest.mark.parametrize("emptied", [True, False])
def test_missing_log_prevents_the_start(tmp_path: Path, crash: bool, emptied: bool) -> None:
    """As when its disk is not mounted: the queues stay, and no group starts again at 0."""
    make(tmp_path)
    if crash:
        crashed(tmp_path)
    kept = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "commitlog", kept)
    for path in (tmp_path / "commitlog").iterdir():
        path.write_bytes(b"") if emptied else path.unlink()
    before = queue_tree(tmp_path)
    with pytest.raises(StoreCorruptError, check=about(what="log")):
        open_store(tmp_path)
    assert queue_tree(tmp_path) == before
    shutil.rmtree(tmp_path / "commitlog")
    kept.rename(tmp_path / "commitlog")
    assert all_bodies(tmp_path)


def test_queues_are_removed_without_a_log_that_was_ever_written(tmp_path: Path) -> None:
    make(tmp_path)
    shutil.rmtree(tmp_path / "commitlog")
    forget_safe_point(tmp_path)
    with opened(tmp_path) as store:
        assert (store.position, store.topics()) == (0, [])
        assert list((tmp_path / "consumequeue").iterdir()) == []
        assert put(store, store.queue("A", 0), b"x") == (0, 0)


@pytest.mark.parametrize("lose_queues", [True, False])
def test_removed_old_log_files_raise_the_min_offsets(lose_queues: bool, tmp_path: Path) -> None:
    make(tmp_path, 100)
    kept = {}
    with opened(tmp_path) as store:
        for topic in store.topics():
            for queue in store.queues(topic):
                kept[topic, queue.queue_id] = [
                    (record.queue_offset, record.body)
                    for record in read_all(store, queue)
                    if record.physical_offset >= 2 * LOG_BYTES
                ]
                end = queue.max_offset
                assert kept[topic, queue.queue_id][-1][0] == end - 1
    for path in sorted((tmp_path / "commitlog").iterdir())[:2]:
        path.unlink()
    if lose_queues:
        shutil.rmtree(tmp_path / "consumequeue")
    crashed(tmp_path)
    for _ in range(2):
        with opened(tmp_path) as store:
            assert store.min_position == 2 * LOG_BYTES
            for (topic, queue_id), expected in kept.items():
                queue = store.queue(topic, queue_id)
                assert queue.min_offset == expected[0][0]
                found = [(record.queue_offset, record.body) for record in read_all(store, queue)]
                assert found == expected


# Deleted topics


@pytest.mark.parametrize("abort", [True, False])
def test_deleted_topic_does_not_return(abort: bool, tmp_path: Path) -> None:
    expected = make(tmp_path)
    store = open_store(tmp_path)
    store.delete_topic("A")
    store.abandon()
    if not abort:
        (tmp_path / "abort").unlink()
    shutil.rmtree(tmp_path / "consumequeue")
    assert all_bodies(tmp_path) == {key: bodies for key, bodies in expected.items() if key[0] == "B"}


def test_recreated_topic_starts_empty_and_keeps_only_its_new_messages(tmp_path: Path) -> None:
    make(tmp_path)
    store = open_store(tmp_path)
    store.delete_topic("A")
    assert put(store, store.queue("A", 0), b"new life")[0] == 0
    store.abandon()
    shutil.rmtree(tmp_path / "consumequeue")
    assert all_bodies(tmp_path)["A", 0] == [b"new life"]


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_entries_of_records_lost_in_a_power_failure_restore_no_deleted_topic(
    kept: int, tmp_path: Path
) -> None:
    """The topic was deleted and recreated; the new queue was written, its log only partly."""
    store = open_store(tmp_path)
    fill(store, store.queue("A", 0), 5, "old")
    store.flush_queues(safe_point=True)
    store.delete_topic("A")
    bodies = fill(store, store.queue("A", 0), kept, "new")
    end = store.position
    fill(store, store.queue("A", 0), 5 - kept, "lost")
    write_log(tmp_path, end, bytes(store.position - end))
    store.abandon()
    with opened(tmp_path) as again:
        assert bodies_of(again, "A") == bodies
        assert put(again, again.queue("A", 0), b"next")[0] == kept


@pytest.mark.parametrize("lose_queues", [True, False])
def test_topic_deleted_and_recreated_by_another_broker_is_recovered(
    lose_queues: bool,
    tmp_path: Path,
) -> None:
    """Without our notes the queue's newest messages count."""
    with opened(tmp_path) as store:
        fill(store, store.queue("A", 0), 20, "old")
        fill(store, store.queue("B", 0), 3)
    shutil.rmtree(tmp_path / "consumequeue" / "A")
    forget_safe_point(tmp_path)
    with opened(tmp_path) as store:
        bodies = fill(store, store.queue("A", 0), 7, "new")
    assert all_bodies(tmp_path)["A", 0] == bodies
    forget_safe_point(tmp_path)
    crashed(tmp_path)
    if lose_queues:
        shutil.rmtree(tmp_path / "consumequeue")
    assert all_bodies(tmp_path)["A", 0] == bodies


def test_deletion_interrupted_by_a_crash_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path)
    store = open_store(tmp_path)
    monkeypatch.setattr(type(store._queues), "delete_one", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        store.delete_topic("A")
    monkeypatch.undo()
    store.abandon()
    with opened(tmp_path) as again:
        assert again.topics() == ["B"]
    assert not (tmp_path / "consumequeue" / "A").exists()


# Many queues


@pytest.mark.parametrize("lose_queues", [True, False])
def test_recovery_keeps_few_files_mapped(
    lose_queues: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.files.disk.maps_limit", lambda: 16)
    mapped = []
    real = MapPool.add

    def add(pool: MapPool, segment: Segment) -> None:
        real(pool, segment)
        mapped.append(len(pool))

    monkeypatch.setattr(MapPool, "add", add)
    with opened(tmp_path) as store:
        for _ in range(3):
            for queue_id in range(300):
                fill(store, store.queue("T", queue_id), 1)
    if lose_queues:
        shutil.rmtree(tmp_path / "consumequeue")
    forget_progress(tmp_path)
    for abort in (True, False):
        if abort:
            crashed(tmp_path)
        with opened(tmp_path) as store:
            assert [queue.max_offset for queue in store.queues("T")] == [3] * 300
            assert bodies_of(store, "T", 299) == [b"m0", b"m1", b"m2"]
    assert max(mapped) <= 16 + TRIM_RECORDS + 2  # a log file and a queue file are in use meanwhile


# Recovering twice


def test_recovery_interrupted_by_a_full_disk_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = make(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")
    calls = 0

    def reserve(path: Path, start: int, length: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("sparrowmq.files.disk.reserve_in", reserve)
        with pytest.raises(StoreFullError):
            open_store(tmp_path)
    assert all_bodies(tmp_path) == expected


def test_repeated_opening_changes_nothing(tmp_path: Path) -> None:
    expected = make(tmp_path)
    crashed(tmp_path)
    trees = []
    for _ in range(3):
        store = open_store(tmp_path)
        store.abandon()
        trees.append(queue_tree(tmp_path))
    assert trees[0] == trees[1] == trees[2]
    assert all_bodies(tmp_path) == expected


def test_uncommitted_chunks_leave_no_trace(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    queue = store.queue("T", 0)
    bodies = fill(store, queue, 3)
    append(store, queue, b"never committed")
    store.abandon()
    assert all_bodies(tmp_path) == {("T", 0): bodies}


def test_recovery_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    make(tmp_path)
    crashed(tmp_path)
    with caplog.at_level(logging.INFO, "sparrowmq.store"):
        open_store(tmp_path).close()
    assert [record.message.split(":")[0] for record in caplog.records] == [
        f"opened {tmp_path / 'commitlog'} after a crash"
    ]


# A clock that was set back


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_damage_between_a_future_record_and_later_ones_only_loses_itself(how: str, tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        queue = store.queue("T", 0)
        put(store, queue, b"future", now_ms=START_MS + 10**10)
        _, place = put(store, queue, b"victim")
        fill(store, queue, 5)
    flip(tmp_path, place + 4)
    if how == "killed":
        crashed(tmp_path)
    shutil.rmtree(tmp_path / "consumequeue")  # so that the whole log is read
    with opened(tmp_path) as store:
        assert bodies_of(store, "T") == [b"future", b"m2", b"m3", b"m4", b"m5", b"m6"]


def test_checkpoint_from_the_future_skips_no_file(tmp_path: Path) -> None:
    """The clock was ahead at the last flush of the queues; later entries are lost."""
    store = open_store(tmp_path)
    queue = store.queue("T", 0)
    put(store, queue, b"future", now_ms=START_MS + 10**10)
    store.flush_queues()
    bodies = fill(store, queue, 60)
    store.abandon()
    forget_safe_point(tmp_path)
    assert len(list((tmp_path / "commitlog").iterdir())) > 1
    for path in (tmp_path / "consumequeue/T/0").iterdir():
        data = path.read_bytes() if path.name.endswith("0" * 20) else b""
        path.write_bytes(data[:20].ljust(200, b"\0")) if data else path.unlink()
    with opened(tmp_path) as store:
        assert bodies_of(store, "T") == [b"future", *bodies]
