"""Backups of stores of every kind are restored completely, also after an interruption anywhere and to any
time."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.protocol.archives import CLEAN_4, CLEAN_5, KILLED_5, unpacked
from tests.simulation.disk import Fault, SimulatedDisk
from tests.simulation.histories import histories, write
from tests.store.offline.directories import checked, fill, filled, kinds
from tests.store.rig import START_MS, ManualClock, open_store, opened, put
from tests.store.test_archives import check_ledger
from tests.support import about

from sparrowmq.core.errors import NoStoreError, SparrowError, StoreCorruptError, StoreError, StoreLockedError
from sparrowmq.core.names import HALF_TOPIC, TIMER_TOPIC
from sparrowmq.files import disk
from sparrowmq.protocol.pop.receipts import revive_topic
from sparrowmq.protocol.pop.records import Ack, CheckPoint
from sparrowmq.protocol.record import StoredRecord
from sparrowmq.store.offline.backup import Backup, backups
from sparrowmq.store.offline.copying import TAIL_BYTES
from sparrowmq.store.offline.directory import StoreDirectory
from sparrowmq.store.offline.dump import DumpSelection, dump
from sparrowmq.store.offline.manifest import Manifest
from sparrowmq.store.offline.restore import Restored, restore
from sparrowmq.store.tables.config_file import ConfigFile

LONG = os.environ.get("SPARROW_TEST_TIER") == "long"


def back_up(root: Path, target: Path, *, keep: int = 7) -> tuple[Manifest, Backup]:
    directory = StoreDirectory.open(root)
    try:
        run = Backup(directory, target, ManualClock())
        return run.run(keep=keep), run
    finally:
        directory.close()


def put_back(target: Path, root: Path, **options: int | None) -> Restored:
    return restore(target, root, ManualClock(), **options)  # type: ignore[arg-type]


def records(root: Path) -> list[StoredRecord]:
    directory = StoreDirectory.open(root)
    try:
        return list(dump(directory, DumpSelection(), pytest.fail))
    finally:
        directory.close()


def queue_ends(root: Path) -> dict[tuple[str, int], tuple[int, int]]:
    directory = StoreDirectory.open(root)
    try:
        return {key: (queue.first, queue.end) for key, queue in directory.queues.items()}
    finally:
        directory.close()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"path": "../outside"}, "'../outside', which is not in the directory"),
        ({"path": "config/../../outside"}, "which is not in the directory"),
        ({"path": "/tmp/outside"}, "which is not in the directory"),
        ({"stored": "files/../../outside"}, "which is not in the directory"),
        ({"path": ""}, "which is not in the directory"),
        ({"mode": 0o4755}, "has the mode 4755"),
    ],
)
def test_backup_cannot_name_files_outside(change: dict[str, Any], told: str, tmp_path: Path) -> None:
    """A foreign backup writes nothing outside the store, and reads nothing there."""
    target = tmp_path / "backups"
    made, _ = back_up(filled(), target)
    bad = replace(made, files=(*made.files[:-1], replace(made.files[-1], **change)))
    (target / bad.name).write_bytes(bad.encode())
    with pytest.raises(StoreCorruptError, match=told):
        put_back(target, tmp_path / "deep" / "again")
    assert {path.name for path in tmp_path.iterdir()} == {"backups"}


@pytest.mark.parametrize("name", ["ours", CLEAN_5, KILLED_5, CLEAN_4])
def test_restored_store_has_everything(name: str, tmp_path: Path) -> None:
    root = filled() if name == "ours" else unpacked(name)
    made, _ = back_up(root, tmp_path / "backups")
    found = put_back(tmp_path / "backups", tmp_path / "again")
    assert kinds(found.report) == set()
    assert records(tmp_path / "again") == records(root)
    assert queue_ends(tmp_path / "again") == queue_ends(root)
    for path in (root / "config").iterdir():
        if path.suffix != ".bak" and path.stat().st_size:
            assert (tmp_path / "again" / "config" / path.name).read_bytes() == path.read_bytes(), path
    assert made.end == found.end
    if name != "ours":
        sizes = {"mapped_file_size_commit_log": 1 << 20, "mapped_file_size_consume_queue": 2000}
        with opened(tmp_path / "again", **sizes, max_hash_slot_num=200, max_index_num=1000) as store:
            assert store.recovery.clean
            check_ledger(store, name)


def test_next_backup_copies_only_new_data(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    fill(root)
    _, first = back_up(root, target)
    assert (first.reused, first.copied > 10_000) == (0, True)
    made, again = back_up(root, target)
    assert (made.number, again.copied) == (2, 0)
    with opened(root) as store:
        put(store, store.queue("Orders", 0), b"new")
    made, third = back_up(root, target)
    assert 0 < third.copied < 1000
    assert len([path for path in (target / "files").rglob("*") if path.is_file()]) < len(made.files) + 8
    put_back(target, tmp_path / "second", number=2)
    assert len(records(tmp_path / "second")) == 60
    put_back(target, tmp_path / "third")
    assert [record.body for record in records(tmp_path / "third")][60:] == [b"new"]


def test_old_backups_are_deleted_with_their_files(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    for number in range(4):
        fill(root, 4, first=4 * number)
        back_up(root, target, keep=2)
    assert [one.number for one in backups(target)] == [3, 4]
    wanted = {target / file.stored for one in backups(target) for file in one.files}
    assert {path for path in (target / "files").rglob("*") if path.is_file()} == wanted
    with pytest.raises(NoStoreError, check=about(what="backup", value=1)):
        put_back(target, tmp_path / "again", number=1)
    assert put_back(target, tmp_path / "again", number=3).report.records == 12


def test_files_deleted_by_retention_stay_in_earlier_backups(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    backed_up_without_its_first_log_file(root, target)
    assert kinds(put_back(target, tmp_path / "second").report) == set()
    assert records(tmp_path / "second") == records(root)
    assert put_back(target, tmp_path / "first", number=1).report.records == 60


def backed_up_without_its_first_log_file(root: Path, target: Path) -> None:
    """Backup 1 has the first log file; retention has deleted it before backup 2."""
    fill(root)
    back_up(root, target)
    store = open_store(root)
    segment = store.forget_log_file()
    for queue in store.all_queues():
        for path in store.trim(queue):
            path.unlink()
    segment.path.unlink()
    store.close()
    made, _ = back_up(root, target)
    assert made.start == 4096


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_new_store_in_place_of_a_lost_one_pushes_no_backup_out(is_empty: bool, tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    backed_up_without_its_first_log_file(root, target)
    shutil.rmtree(root)
    with opened(root) as store:
        put(store, store.queue("Orders", 0), b"new")
    if is_empty:
        (root / "commitlog" / f"{0:020d}").write_bytes(bytes(4096))
    for _ in range(2):
        with pytest.raises(StoreError, check=about(what="end")):
            back_up(root, target, keep=2)
    assert [one.number for one in backups(target)] == [1, 2]
    assert put_back(target, tmp_path / "first", number=1).report.records == 60
    assert put_back(target, tmp_path / "second").report.is_whole


def test_a_longer_log_is_not_written_over_one_that_an_earlier_backup_needs(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    backed_up_without_its_first_log_file(root, target)
    shutil.rmtree(root)
    fill(root, 120, first=1000)
    with pytest.raises(StoreError, check=about(what="copy")):
        back_up(root, target)
    assert put_back(target, tmp_path / "first", number=1).report.records == 60


def test_a_damaged_list_of_an_earlier_backup_does_not_prevent_the_next(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    for number in range(3):
        fill(root, 4, first=4 * number)
        if number == 2:
            (target / "manifest-00000001.json").write_bytes(b"{}")
        back_up(root, target, keep=2)
    assert [one.number for one in backups(target)] == [2, 3]
    assert put_back(target, tmp_path / "again").report.records == 12


@settings(max_examples=200 if LONG else 12, deadline=None)
@given(seconds=st.integers(0, 45))
@example(seconds=17)  # a blank follows the last message, up to the end of its file
def test_store_is_restored_to_a_time(seconds: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    place = tmp_path_factory.mktemp("until")
    back_up(filled(), place / "backups")
    until = START_MS + seconds * 1000
    found = put_back(place / "backups", place / "again", until_ms=until)
    wanted = [record for record in records(filled()) if record.store_timestamp <= until]
    assert records(place / "again") == wanted
    assert kinds(found.report) == set()
    assert found.newest_ms == wanted[-1].store_timestamp
    offsets = ConfigFile(place / "again" / "config" / "consumerOffset.json").load()["offsetTable"][
        "Orders@shop"
    ]
    ends = queue_ends(place / "again")
    assert {int(queue): offset for queue, offset in offsets.items()} == {
        queue: min(3, ends.get(("Orders", queue), (0, 0))[1]) if ("Orders", queue) in ends else 3
        for queue in (0, 1)
    }
    with opened(place / "again") as store:
        assert store.recovery.added == store.recovery.dropped == 0
        put(store, store.queue("Orders", 0), b"on")


def test_time_before_the_first_message_is_refused(tmp_path: Path) -> None:
    back_up(filled(), tmp_path / "backups")
    with pytest.raises(NoStoreError, check=about(what="message", value=START_MS - 1)):
        put_back(tmp_path / "backups", tmp_path / "again", until_ms=START_MS - 1)
    assert not (tmp_path / "again").exists()


def test_undelivered_delayed_messages_are_delivered_after_a_restore_to_a_time(tmp_path: Path) -> None:
    """The archive's messages of level 4 and above were waiting when its last messages were stored."""
    root = unpacked(CLEAN_5)
    back_up(root, tmp_path / "backups")
    all_records = records(root)
    until = all_records[len(all_records) * 5 // 6].store_timestamp
    put_back(tmp_path / "backups", tmp_path / "again", until_ms=until, redeliver_ms=0)
    offsets = ConfigFile(tmp_path / "again" / "config" / "delayOffset.json").load()["offsetTable"]
    newest = max(record.store_timestamp for record in records(tmp_path / "again"))
    waiting = delivered = 0
    directory = StoreDirectory.open(tmp_path / "again")
    for (topic, queue_id), queue in directory.queues.items():
        if topic == "SCHEDULE_TOPIC_XXXX":
            for offset, entry in queue.entries(queue.first, queue.end):
                is_open = offset >= int(offsets[str(queue_id + 1)])
                waiting += is_open
                delivered += not is_open
                assert is_open or entry.tags_code < newest, "what was not due yet will be delivered"
    directory.close()
    assert waiting >= 10
    assert delivered >= 10


def test_unfinished_work_at_the_time_of_a_restore_is_delivered(tmp_path: Path) -> None:
    """The progress in a backup passes POP and transaction messages that only later records end or make
    visible again."""
    root, revive = tmp_path / "store", revive_topic("DefaultCluster")

    def stored(topic: str, body: bytes, seconds: int, **own: str) -> None:
        properties = "".join(f"{name}\x01{value}\x02" for name, value in own.items()).encode()
        put(store, store.queue(topic, 0), body, properties=properties, now_ms=START_MS + seconds * 1000)

    def check_point(seconds: int, start: int, count: int, pop_time: int, **own: str) -> None:
        point = CheckPoint(
            broker_name="broker-a",
            group="shop",
            differences=list(range(count)),
            invisible_time=60_000,
            count=count,
            pop_time=pop_time,
            queue_id=0,
            start_offset=start,
            topic="Orders",
        )
        stored(TIMER_TOPIC, point.encode(), seconds, TAGS="ck", REAL_TOPIC=revive, **own)

    def acknowledged(seconds: int, offset: int, pop_time: int) -> None:
        ack = Ack(
            ack_offset=offset,
            broker_name="broker-a",
            group="shop",
            pop_time=pop_time,
            queue_id=0,
            start_offset=offset,
            topic="Orders",
        )
        stored(TIMER_TOPIC, ack.encode(), seconds, TAGS="ack", REAL_TOPIC=revive)

    with opened(root) as store:
        for number in range(6):
            stored("Orders", b"%d" % number, number)
        stored(HALF_TOPIC, b"half", 5)
        check_point(6, 0, 3, 6)
        check_point(8, 3, 1, 8)
        acknowledged(8, 3, 8)
        check_point(9, 4, 2, 9)
        check_point(9, 0, 3, 6, TIMER_DEQUEUE_MS="9")
        check_point(9, 1, 1, 9)
        acknowledged(9, 1, 6)
    offsets = {"Orders@shop": {"0": 6}, f"{HALF_TOPIC}@CID_RMQ_SYS_TRANS": {"0": 1}}
    ConfigFile(root / "config" / "consumerOffset.json").save({"offsetTable": offsets, "logPosition": 9999})
    back_up(root, tmp_path / "backups")
    found = put_back(tmp_path / "backups", tmp_path / "again", until_ms=START_MS + 7000)
    table = ConfigFile(tmp_path / "again" / "config" / "consumerOffset.json").load()
    assert table["offsetTable"] == {"Orders@shop": {"0": 3}}
    assert table["logPosition"] == found.end
    put_back(tmp_path / "backups", tmp_path / "whole")
    table = ConfigFile(tmp_path / "whole" / "config" / "consumerOffset.json").load()
    assert table["offsetTable"] == offsets


def test_restored_store_is_a_new_replica_for_the_coordinator(tmp_path: Path) -> None:
    """Otherwise a replica with an old log would count as one that has all acknowledged messages."""
    root = Path(shutil.copytree(filled(), tmp_path / "store"))
    role = {"store": "0123456789abcdef", "epoch": 3, "role": "MASTER", "isManaged": True}
    ConfigFile(root / "config" / "replicaRole.json").save(role)
    back_up(root, tmp_path / "backups")
    put_back(tmp_path / "backups", tmp_path / "again")
    found = ConfigFile(tmp_path / "again" / "config" / "replicaRole.json").load()
    assert found.pop("store") not in ("", role["store"])
    assert found == {name: value for name, value in role.items() if name != "store"}


def test_restore_needs_an_empty_directory(tmp_path: Path) -> None:
    back_up(filled(), tmp_path / "backups")
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "x").touch()
    with pytest.raises(NoStoreError, check=about(value=tmp_path / "again")):
        put_back(tmp_path / "backups", tmp_path / "again")
    (tmp_path / "again" / "x").unlink()
    assert put_back(tmp_path / "backups", tmp_path / "again").report.is_whole
    (tmp_path / "third.restoring").mkdir()
    with pytest.raises(NoStoreError, check=about(value=tmp_path / "third.restoring")):
        put_back(tmp_path / "backups", tmp_path / "third")


@settings(max_examples=200 if LONG else 15, deadline=None)
@given(data=st.data())
def test_changed_byte_of_a_backup_is_found(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("flip")
    made, _ = back_up(filled(), place / "backups")
    places = [(file.stored, file.used) for file in made.files if file.used]
    places.append((made.name, (place / "backups" / made.name).stat().st_size))
    stored, used = data.draw(st.sampled_from(places))
    path, at = place / "backups" / stored, data.draw(st.integers(0, used - 1))
    content = bytearray(path.read_bytes())
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    with pytest.raises((StoreCorruptError, NoStoreError)):
        put_back(place / "backups", place / "again")
    assert not (place / "again").exists()


def test_another_store_cannot_use_the_same_backup_directory(tmp_path: Path) -> None:
    root, target = tmp_path / "store", tmp_path / "backups"
    fill(root, 10, first=100)
    back_up(root, target)
    with pytest.raises(StoreError, check=about(what="copy")):
        back_up(filled(), target)
    assert put_back(target, tmp_path / "again").report.records == 10


@pytest.mark.parametrize("is_known", [False, True])
def test_another_store_with_the_same_end_is_recognised_by_its_contents(
    is_known: bool,
    tmp_path: Path,
) -> None:
    """The log of a slave that was damaged and copied again has the end of its copy, but another beginning."""
    root, target = tmp_path / "store", tmp_path / "backups"
    with opened(root, mapped_file_size_commit_log=1 << 20) as store:
        for number in range(800):
            put(store, store.queue("Orders", 0), b"body %d " % number * 20)
    role = {"store": "0123456789abcdef", "epoch": -1}
    ConfigFile(root / "config" / "replicaRole.json").save(role)
    log = root / "commitlog" / f"{0:020d}"
    first = bytearray(log.read_bytes())
    log.write_bytes(bytes(200) + first[200:])
    manifest, _ = back_up(root, target)
    assert manifest.store == role["store"]
    assert manifest.end > 2 * TAIL_BYTES
    log.write_bytes(first)
    if is_known:
        ConfigFile(root / "config" / "replicaRole.json").save(role | {"store": "another"})
        with pytest.raises(StoreError, check=about(what="copy")):
            back_up(root, target)
    else:
        assert back_up(root, target)[0].number == 2


def test_a_missing_directory_of_backups_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoStoreError, check=about(value=tmp_path / "none")) as raised:
        put_back(tmp_path / "none", tmp_path / "store")
    assert "sparrow backup" in str(raised.value)


@pytest.mark.parametrize("place", ["store/backups", ".", "other"])
def test_directory_without_a_backup_is_refused(place: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root, 4)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letters.txt").touch()
    with pytest.raises(NoStoreError):
        back_up(root, tmp_path / place)
    assert checked(root).is_whole


def test_second_backup_to_the_same_directory_fails_at_once(tmp_path: Path) -> None:
    back_up(filled(), tmp_path / "backups")
    from sparrowmq.store.base.store_lock import StoreLock

    lock = StoreLock.take(tmp_path / "backups")
    with pytest.raises(StoreLockedError):
        back_up(filled(), tmp_path / "backups")
    lock.release()


# Interruptions


def _grow(root: Path) -> None:
    fill(root, 6, first=12)


class Interrupted:
    """A backup, a few more messages, and a second backup in which something goes wrong."""

    def __init__(self, place: Path, fault: Fault | None = None) -> None:
        self.root = place / "disk"
        self.root.mkdir(parents=True)
        fill(self.root / "store", 12)
        back_up(self.root / "store", self.root / "backups")
        self.first = len(records(self.root / "store"))
        _grow(self.root / "store")
        self.last = len(records(self.root / "store"))
        self.disk = SimulatedDisk(self.root, fault)
        self.error: Exception | None = None
        with disk.use(self.disk):
            try:
                back_up(self.root / "store", self.root / "backups")
            except (SparrowError, OSError) as error:
                self.error = error
        self.disk.end()

    def check(self, root: Path) -> set[int]:
        """Restore every backup; returns the numbers of their messages."""
        found = set()
        for one in backups(root / "backups"):
            again = root / f"again-{one.number}"
            report = put_back(root / "backups", again, number=one.number).report
            assert kinds(report) == set()
            found.add(report.records)
        return found


def _sample(count: int, most: int) -> list[int]:
    return (
        list(range(count)) if LONG or count <= most else sorted(random.Random(7).sample(range(count), most))
    )


@pytest.mark.crash
@pytest.mark.parametrize("kind", ["EIO", "ENOSPC", "short"])
def test_backup_that_fails_anywhere_can_be_continued(kind: str, tmp_path: Path) -> None:
    count = Interrupted(tmp_path / "whole").disk.count
    failed = 0
    for number in _sample(count, 12):
        place = tmp_path / f"{kind}-{number}"
        run = Interrupted(place, Fault(number, kind, True))
        failed += run.error is not None
        done = {run.first, run.last} if run.error is None else run.check(run.root)
        assert run.first in done and done <= {run.first, run.last}, (number, run.disk.faulted)
        shutil.rmtree(run.root / "again-1", ignore_errors=True)
        shutil.rmtree(run.root / "again-2", ignore_errors=True)
        back_up(run.root / "store", run.root / "backups")
        assert run.check(run.root) == {run.first, run.last}, (number, run.disk.faulted)
        shutil.rmtree(place)
    assert failed > 5 or kind == "short"


@pytest.mark.crash
def test_power_failure_during_a_backup_leaves_the_earlier_one(tmp_path: Path) -> None:
    run = Interrupted(tmp_path / "whole")
    moments = run.disk.moments
    cuts = [history for at in range(len(moments)) for history in histories(moments, at, thorough=False)]
    names = {history.name: history for history in cuts}
    chosen = [names[name] for name in sorted(names)]
    for number in _sample(len(chosen), 25):
        scratch = tmp_path / "scratch"
        write(chosen[number].state, scratch)
        done = run.check(scratch)
        assert run.first in done and done <= {run.first, run.last}, chosen[number].what
        shutil.rmtree(scratch / "again-1", ignore_errors=True)
        shutil.rmtree(scratch / "again-2", ignore_errors=True)
        back_up(scratch / "store", scratch / "backups")
        assert run.last in run.check(scratch), chosen[number].what
        shutil.rmtree(scratch)


@pytest.mark.crash
def test_interrupted_restore_leaves_nothing_that_looks_like_a_store(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()

    def attempt(fault: Fault | None) -> tuple[SimulatedDisk, bool]:
        root = tmp_path / "disk"
        shutil.rmtree(root)
        root.mkdir()
        back_up(filled(), root / "backups")
        simulated = SimulatedDisk(root, fault)
        with disk.use(simulated):
            try:
                put_back(root / "backups", root / "again")
                done = True
            except (SparrowError, OSError):
                done = False
        simulated.end()
        return simulated, done

    count = attempt(None)[0].count
    for number in _sample(count, 12):
        _, done = attempt(Fault(number, "EIO", True))
        if (tmp_path / "disk" / "again").exists():
            assert kinds(checked(tmp_path / "disk" / "again")) == set()
        else:
            assert not done
