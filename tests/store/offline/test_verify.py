"""`verify` finds damage wherever the format allows it, and none in what brokers wrote."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.protocol.archives import CLEAN_4, CLEAN_5, KILLED_5, unpacked
from tests.store.offline.directories import checked, damageable, fill, filled, kinds
from tests.store.rig import open_store, opened, put

from sparrowmq.core.errors import NoStoreError
from sparrowmq.store.offline.directory import StoreDirectory

LONG = os.environ.get("SPARROW_TEST_TIER") == "long"
RECORDS = {
    CLEAN_5: (3626, 3586, 10381, 63),
    KILLED_5: (3749, 3709, 10750, 63),
    CLEAN_4: (3486, 3446, 6890, 0),
}


@pytest.mark.proves("broker:1.1", "broker:18")
@pytest.mark.parametrize("name", RECORDS)
def test_directories_of_real_brokers_are_intact(name: str) -> None:
    before = {path: path.stat().st_mtime_ns for path in unpacked(name).rglob("*")}
    report = checked(unpacked(name))
    assert report.findings.kinds == [kind for kind in report.findings.kinds if not kind.is_damage]
    assert report.is_clean is (name != KILLED_5)
    assert (report.records, report.queue_entries, report.index_entries, report.timer_units) == RECORDS[name]
    assert "records of deleted topics" in kinds(report, damage=False)
    assert {path: path.stat().st_mtime_ns for path in unpacked(name).rglob("*")} == before


def test_own_directory_is_intact_without_a_note() -> None:
    report = checked(filled())
    assert report.findings.kinds == []
    assert (report.records, report.queue_entries, report.index_entries) == (60, 60, 240)


def _flipped(root: Path, path: Path, at: int, mask: int) -> None:
    with (root / path.relative_to(filled())).open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes([old ^ mask]))


@settings(
    max_examples=20_000 if LONG else 200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_changed_byte_is_found(tmp_path: Path, data: st.DataObject) -> None:
    root = tmp_path / "store"
    if not root.exists():
        shutil.copytree(filled(), root)
    path, at = data.draw(st.sampled_from(damageable(filled())), "byte")
    mask = data.draw(st.integers(1, 255), "mask")
    _flipped(root, path, at, mask)
    try:
        assert not checked(root).is_whole, (path, at, mask)
    finally:
        _flipped(root, path, at, mask)
    assert (root / path.relative_to(filled())).read_bytes() == path.read_bytes()


@settings(
    max_examples=5000 if LONG else 60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_no_damage_crashes_the_check(tmp_path: Path, data: st.DataObject) -> None:
    root = tmp_path / "store"
    if root.exists():
        shutil.rmtree(root)
    shutil.copytree(filled(), root)
    files = sorted(path for path in filled().rglob("*") if path.is_file() and path.stat().st_size)
    for _ in range(data.draw(st.integers(1, 5))):
        path = data.draw(st.sampled_from(files))
        size = (root / path.relative_to(filled())).stat().st_size
        if not size:
            continue
        at = data.draw(st.integers(0, size - 1))
        if data.draw(st.integers(0, 9)):
            _flipped(root, path, at, data.draw(st.integers(1, 255)))
        else:
            os.truncate(root / path.relative_to(filled()), at)
    try:
        checked(root)
    except NoStoreError:
        pass


def test_lost_queue_is_damage_and_a_deleted_topic_is_not(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    shutil.rmtree(root / "consumequeue" / "Orders" / "1")
    assert "queues without their files" in kinds(checked(root))
    shutil.rmtree(root)
    shutil.copytree(filled(), root)
    with opened(root) as store:
        store.delete_topic("Orders")
    report = checked(root)
    assert kinds(report) == set()
    assert report.old_records == 30


def test_recreated_topic_is_intact(tmp_path: Path) -> None:
    root = tmp_path / "store"
    fill(root)
    with opened(root) as store:
        store.delete_topic("Orders")
        put(store, store.queue("Orders", 0), b"new", properties=b"UNIQ_KEY\x01NEW\x02")
    (root / "safe-point.json").unlink()  # as in Apache's directories
    report = checked(root)
    assert kinds(report) == {"offsets beyond the end of the queue"}, "those of the deleted topic stayed"
    assert report.old_records == 30


def test_missing_log_file_is_reported(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    files = sorted((root / "commitlog").iterdir())
    assert len(files) > 2
    files[1].unlink()
    report = checked(root)
    assert {"files of the log", "entries that do not lead to their record"} <= kinds(report)
    assert 0 < report.records < 60


def test_traces_of_a_crash_are_notes(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    store = open_store(root)
    for number in range(5):
        put(store, store.queue("Orders", 0), b"late %d" % number, properties=b"UNIQ_KEY\x01L\x02")
    store.abandon()
    report = checked(root)
    assert not report.is_clean
    assert kinds(report) == set()
    assert "the index ends before the log" in kinds(report, damage=False)


def test_directory_in_use_is_reported_and_unchanged(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    with opened(root) as store:
        put(store, store.queue("Orders", 0), b"now")
        report = checked(root)
        assert report.in_use
        assert kinds(report) == set()
        put(store, store.queue("Orders", 0), b"and on")  # the lock is still the store's
    assert not checked(root).in_use


def test_offsets_beyond_the_end_of_a_queue_are_damage(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    path = root / "config" / "consumerOffset.json"
    path.write_text(path.read_text().replace("3", "3000"))
    assert kinds(checked(root)) == {"offsets beyond the end of the queue"}


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_broken_table_is_damage_even_with_an_intact_backup(content: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    (root / "config" / "topics.json").replace(root / "config" / "topics.json.bak")
    (root / "config" / "topics.json").write_text(content)
    expected = {"no table of topics"} | ({"tables that cannot be read"} if content else set())
    assert kinds(checked(root)) == expected


def test_unread_files_are_named(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    (root / "batchconsumequeue" / "T").mkdir(parents=True)
    assert checked(root).not_read == [f"{root / 'batchconsumequeue'}: queues of batches"]


@pytest.mark.parametrize("made", ["nothing", "no log", "an empty log", "a log of DLedger", "tiny files"])
def test_directory_without_a_store_is_refused(made: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    if made != "nothing":
        root.mkdir()
    if made in ("an empty log", "tiny files"):
        (root / "commitlog").mkdir()
    if made == "tiny files":
        (root / "commitlog" / f"{0:020d}").write_bytes(b"x" * 100)
    if made == "a log of DLedger":
        (root / "dledger-n0").mkdir()
    with pytest.raises(NoStoreError):
        StoreDirectory.open(root)
