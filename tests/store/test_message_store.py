"""The store as a whole: opening, refusing, flushing, closing."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from tests.store.rig import (
    HOST,
    LOG_BYTES,
    START_MS,
    ManualClock,
    append,
    bodies_of,
    fill,
    open_store,
    opened,
    put,
    query,
)
from tests.support import about

from sparrowmq.core.clock import SystemClock
from sparrowmq.core.errors import StoreCorruptError, StoreError, StoreFullError, StoreLockedError
from sparrowmq.files import disk
from sparrowmq.protocol.record import decode_record
from sparrowmq.store.base.settings import StoreSettings
from sparrowmq.store.log.commit_log import CommitLog, LogEnd
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.queue_flush import SAFE_POINT_SECONDS
from sparrowmq.store.recovery.checkpoint import Checkpoint
from sparrowmq.store.recovery.safe_point import SafePoint


def test_new_directory_has_the_references_files(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "store"
    store = open_store(root)
    assert (root / "abort").read_text() == str(os.getpid())
    assert repr(store) == f"<MessageStore {root} 0..0>"
    put(store, store.queue("T", 0), b"x")
    store.close()
    found = {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}
    safe_point = found.pop("safe-point.json")
    assert safe_point > 0
    assert found == {
        "lock": 4,
        "checkpoint": 4096,
        "commitlog/" + "0" * 20: LOG_BYTES,
        "consumequeue/T/0/" + "0" * 20: 200,
    }
    assert repr(store) == f"<MessageStore {root} closed>"


def test_default_sizes_take_no_space_before_they_are_used(tmp_path: Path) -> None:
    settings = StoreSettings(root=tmp_path, disk_space_warning_level_ratio=100)
    store = MessageStore.open(settings, SystemClock(), store_host=HOST)
    put(store, store.queue("T", 0), b"x")
    store.close()
    log = tmp_path / "commitlog" / ("0" * 20)
    assert log.stat().st_size == 1 << 30
    assert log.stat().st_blocks * 512 < 1 << 20
    assert (tmp_path / "consumequeue" / "T" / "0" / ("0" * 20)).stat().st_size == 6_000_000


def test_log_may_be_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "fast disk" / "log"
    with opened(tmp_path / "s", commit_log_path=elsewhere) as store:
        bodies = fill(store, store.queue("T", 0), 3)
    assert len(list(elsewhere.iterdir())) == 1
    assert not (tmp_path / "s" / "commitlog").exists()
    with opened(tmp_path / "s", commit_log_path=elsewhere) as store:
        assert bodies_of(store, "T") == bodies


def test_second_owner_is_refused_and_the_first_continues(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        with pytest.raises(StoreLockedError, check=about(what="this process", value=tmp_path)):
            open_store(tmp_path)
        fill(store, store.queue("T", 0), 1)
        assert (tmp_path / "abort").exists()


def test_error_for_a_read_only_directory_says_what_is_needed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    open_store(tmp_path).close()
    real = os.open

    def refused(path: object, flags: int, *rest: int, **more: int) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(
            StoreError, match="Read-only file system; the store needs a directory it may write to"
        ):
            open_store(tmp_path)
    open_store(tmp_path).close()


def test_file_instead_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").write_bytes(b"")
    with pytest.raises(StoreError, check=about(what="make the store", value=tmp_path / "store")):
        open_store(tmp_path / "store")


def test_wrong_log_size_names_file_sizes_and_setting_and_releases_the_lock(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        fill(store, store.queue("T", 0), 2)
    with pytest.raises(StoreCorruptError) as caught:
        open_store(tmp_path, mapped_file_size_commit_log=8192)
    name = tmp_path / "commitlog" / ("0" * 20)
    assert str(caught.value) == (
        f"{name} has 4096 bytes, but mappedFileSizeCommitLog is 8192; "
        "set it to the size this directory was made with; "
        f"if the file was cut short, lengthen it: truncate -s 8192 {name}"
    )
    with opened(tmp_path) as store:
        assert bodies_of(store, "T") == [b"m0", b"m1"]


def test_directories_of_other_engines_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dledger-n0").mkdir()
    with pytest.raises(StoreError, check=about(what="DLedger")):
        open_store(tmp_path)


def test_abort_file_that_cannot_be_written_prevents_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk.replace

    def full(path: Path, data: bytes, backup: Path | None = None, *, mode: int = 0o644) -> None:
        if path.name == "abort":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data, backup)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        with pytest.raises(StoreError, check=about(what="write", value=tmp_path / "abort")):
            open_store(tmp_path)
    open_store(tmp_path).close()


def test_close_commits_flushes_and_is_idempotent(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    append(store, store.queue("T", 0), b"pending")
    store.close()
    store.close()
    assert store.flushed_position == store.position > 0
    assert not (tmp_path / "abort").exists()
    checkpoint = Checkpoint.load(tmp_path / "checkpoint")
    assert (checkpoint.physic, checkpoint.logics, checkpoint.logics_physical) == (START_MS, START_MS, 0)
    with opened(tmp_path) as again:
        assert again.recovery.clean
        assert bodies_of(again, "T") == [b"pending"]


def test_closed_store_accepts_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    queue = store.queue("T", 0)
    fill(store, queue, 1)
    store.close()
    append(store, queue, b"late")
    with pytest.raises(StoreError, check=about(what="closed", value=tmp_path)):
        store.commit_chunk()
    with pytest.raises(StoreError, check=about(what="closed", value=tmp_path)):
        store.flush()
    with opened(tmp_path) as again:
        assert bodies_of(again, "T") == [b"m0"]


def test_store_that_was_not_closed_warns(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.abandon()
    store.abandon()
    store = open_store(tmp_path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kept = store._lock, store._log, store._queues
        del store
        gc.collect()
    assert [str(item.message) for item in caught] == [f"<MessageStore {tmp_path} 0..0> was never closed"]
    kept[0].release()
    assert (tmp_path / "abort").exists()


def test_checkpoint_contains_only_what_is_flushed(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    queue = store.queue("T", 0)
    put(store, queue, b"a", now_ms=START_MS + 1)
    store.flush()
    last = put(store, queue, b"b", now_ms=START_MS + 2)[1]
    store.flush_queues()
    checkpoint = Checkpoint.load(tmp_path / "checkpoint")
    assert (checkpoint.physic, checkpoint.logics) == (START_MS + 1, START_MS + 2)
    assert checkpoint.logics_physical == last
    store.close()


def test_checkpoint_keeps_values_of_other_brokers_and_goes_back_with_the_clock(tmp_path: Path) -> None:
    tmp_path.mkdir(exist_ok=True)
    Checkpoint(START_MS * 2, START_MS * 2, 33, 44, 55, 66).save(tmp_path / "checkpoint")
    with opened(tmp_path) as store:
        put(store, store.queue("T", 0), b"a")
    after = Checkpoint.load(tmp_path / "checkpoint")
    assert (after.physic, after.logics) == (START_MS, START_MS)
    assert (after.index, after.master_flushed, after.confirm) == (33, 44, 55)


def test_safe_point_is_written_periodically(tmp_path: Path) -> None:
    clock = ManualClock()
    store = open_store(tmp_path, clock=clock)
    queue = store.queue("T", 0)
    place = put(store, queue, b"a")[1]
    store.flush_queues()
    assert SafePoint.load(tmp_path).record == -1
    clock.ms += int(SAFE_POINT_SECONDS * 1000)
    store.flush_queues()
    assert SafePoint.load(tmp_path) == SafePoint(
        place, store.position, {"T": {0: 1}}, index=store.index.place
    )
    assert store.flushed_position == store.position
    put(store, queue, b"b")
    store.flush_queues()
    assert SafePoint.load(tmp_path).queues == {"T": {0: 1}}
    store.flush_queues(safe_point=True)
    assert SafePoint.load(tmp_path).queues == {"T": {0: 2}}
    store.close()


def test_much_new_data_moves_the_safe_point_but_not_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparrowmq.store.queue_flush.SAFE_POINT_BYTES", 300)
    store = open_store(tmp_path)
    queue = store.queue("T", 0)
    put(store, queue, b"a")
    store.flush_queues(safe_point=True)
    filed = SafePoint.load(tmp_path).index
    put(store, queue, b"b" * 10, properties=b"KEYS\x01k\x02")
    store.follow_index(10)
    assert store.index.place != filed
    store.flush_queues()
    assert SafePoint.load(tmp_path).queues == {"T": {0: 1}}
    place = put(store, queue, b"c" * 300)[1]
    store.flush_queues()
    assert SafePoint.load(tmp_path) == SafePoint(place, store.position, {"T": {0: 3}}, index=filed)
    store.abandon()
    store = open_store(tmp_path)
    assert (store.recovery.records, store.recovery.start) == (0, store.position)
    store.close()


def test_safe_point_from_the_middle_of_a_commit_omits_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another thread flushes after the log was written and before the queues were; then the process dies."""
    store = open_store(tmp_path)
    put(store, store.queue("T", 0), b"before")
    write = CommitLog.write

    def dies(log: CommitLog, spans: list[tuple[int, list[bytes]]], progress: LogEnd) -> None:
        write(log, spans, progress)
        store.flush_queues(safe_point=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(CommitLog, "write", dies)
    with pytest.raises(KeyboardInterrupt):
        put(store, store.queue("U", 0), b"the last")
    monkeypatch.undo()
    store.abandon()
    with opened(tmp_path) as again:
        assert bodies_of(again, "T") == [b"before"]
        assert bodies_of(again, "U") == [b"the last"]


def test_queues_that_cannot_be_flushed_stop_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    queue = store.queue("T", 0)
    put(store, queue, b"a")
    store.flush_queues()
    put(store, queue, b"b", now_ms=START_MS + 5)

    def broken(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_file", broken)
        with pytest.raises(StoreError, check=about(what="flush the queues in")):
            store.flush_queues()
    store.flush_queues(safe_point=True)  # the system may say all is well, but the entry may be gone
    assert Checkpoint.load(tmp_path / "checkpoint").logics == START_MS
    assert SafePoint.load(tmp_path).record == -1
    bodies = [b"a", b"b", *fill(store, queue, 1)]
    assert bodies_of(store, "T") == bodies
    with pytest.raises(StoreError, check=about(what="close")):
        store.close()
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert bodies_of(again, "T") == bodies
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize("reused", [True, False])
def test_entries_lost_in_a_failed_flush_are_rebuilt(
    reused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system drops what it could not write and reports it once; the store used to trust it after a
    clean stop."""
    store = open_store(tmp_path)
    queue, other = store.queue("T", 0), store.queue("U", 0)
    bodies = fill(store, queue, 5)
    store.flush_queues(safe_point=True)
    bodies += fill(store, queue, 5)
    fill(store, other, 3)
    path, real = tmp_path / "consumequeue/T/0" / ("0" * 20), disk.sync_file

    def broken(wanted: Path) -> None:
        if wanted == path:
            raise OSError(errno.EIO, "Input/output error")
        real(wanted)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_file", broken)
        with pytest.raises(StoreError):
            store.flush_queues()
    with pytest.raises(StoreError, check=about(what="close")):
        store.close()
    if not reused:  # the machine was started anew
        path.write_bytes(path.read_bytes()[:100].ljust(200, b"\0"))
    with opened(tmp_path) as again:
        assert bodies_of(again, "T") == bodies
        assert again.queue("T", 0).next_offset == 10
        if again.recovery.added == 0:  # else they are flushed already
            assert again.queue("T", 0).synced <= 5, "the next flush writes them, whatever the system shows"


def test_index_that_cannot_be_flushed_is_reverted_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    store.flush_queues(safe_point=True)
    put(store, store.queue("T", 0), b"a", properties=b"KEYS\x01k\x02")
    store.follow_index(10)
    real = disk.sync_file

    def broken(path: Path) -> None:
        if path.parent.name == "index":
            raise OSError(errno.EIO, "Input/output error")
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(disk, "sync_file", broken)
        with pytest.raises(StoreError, check=about(what="flush the index in")):
            store.flush_queues(safe_point=True)
    with pytest.raises(StoreError, check=about(what="close")):
        store.close()
    with opened(tmp_path) as again:
        assert again.index.behind > 0
        again.follow_index(10)
        assert len(query(again, "T", "k", 10, 0, 2**60)) == 1


@pytest.mark.parametrize("name", ["checkpoint", "safe-point.json"])
def test_notes_that_cannot_be_written_are_a_store_error(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        put(store, store.queue("T", 0), b"a")

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(*((Checkpoint, "save") if name == "checkpoint" else (SafePoint, "save")), full)
            with pytest.raises(StoreFullError):
                store.flush_queues(safe_point=True)


def test_close_after_a_failed_note_leaves_the_abort_file(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = open_store(tmp_path)
    bodies = fill(store, store.queue("T", 0), 2)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", full)
        with pytest.raises(StoreError):
            store.close()
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert not again.recovery.clean
        assert bodies_of(again, "T") == bodies


def test_file_size_limit_is_a_full_disk_not_the_end_of_the_process(tmp_path: Path) -> None:
    """RLIMIT_FSIZE would kill a process that does not ignore SIGXFSZ; Python's does."""
    code = """
import resource, sys
from pathlib import Path
from sparrowmq.core.errors import StoreFullError
from tests.store.rig import bodies_of, fill, open_store, put
root = Path(sys.argv[1])
store = open_store(root)
queue = store.queue("T", 0)
bodies = fill(store, queue, 3)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    put(store, queue, b"x" * 3000)
except StoreFullError as error:
    print("full:", error)
else:
    print("nothing happened")
bodies += fill(store, queue, 1)
assert bodies_of(store, "T") == bodies, bodies
store.abandon()
print("alive")
"""
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, cwd=root, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("full: cannot write to the commit log in")
    assert done.stdout.splitlines()[-1] == "alive"
    with opened(tmp_path) as store:
        assert bodies_of(store, "T") == [b"m0", b"m1", b"m2", b"m3"]


def bodies_of_key(store: MessageStore) -> list[bytes]:
    """The result of a query by the key `k`."""
    store.follow_index(100)
    return [decode_record(record).body for record in query(store, "T", "k", 10, 0, 2**60)]


@pytest.mark.parametrize("how", ["running", "clean", "killed"])
def test_messages_of_a_deleted_topic_are_no_longer_found(how: str, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    places = [put(store, store.queue("T", n), b"old", properties=b"KEYS\x01k\x02")[1] for n in (0, 1)]
    assert bodies_of_key(store) == [b"old"] * 2
    store.delete_topic("T")
    put(store, store.queue("T", 0), b"new", properties=b"KEYS\x01k\x02")
    if how != "running":
        store.close() if how == "clean" else store.abandon()
        store = open_store(tmp_path)
    assert bodies_of_key(store) == [b"new"]
    assert [store.read_record(place) for place in places] == [None, None]
    assert [store.decoded_record(place) for place in places] == [None, None]
    store.close()


def test_deletion_that_could_not_be_recorded_removes_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path)
    _, place = put(store, store.queue("T", 0), b"kept")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        with pytest.raises(StoreFullError):
            store.delete_topic("T")
    assert bodies_of(store, "T") == [b"kept"] and store.read_record(place) is not None
    store.flush_queues(safe_point=True)  # says nothing of the deletion
    store.close()
    with opened(tmp_path) as store:
        assert bodies_of(store, "T") == [b"kept"]
