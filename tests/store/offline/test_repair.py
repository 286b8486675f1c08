"""Queues and index are rebuilt from the log as they were, and nothing changes unless requested."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.protocol.archives import CLEAN_4, CLEAN_5, unpacked
from tests.store.damage import flip
from tests.store.offline.directories import checked, damageable, filled, kinds
from tests.store.rig import ManualClock, copy_archive, open_store, opened, put
from tests.store.test_archives import queue_files
from tests.support import about

from sparrowmq.core.errors import StoreLockedError
from sparrowmq.store.offline.directory import StoreDirectory
from sparrowmq.store.offline.repair import RepairPlan, plan, repair
from sparrowmq.store.offline.verify import VerifyReport, verify

LONG = os.environ.get("SPARROW_TEST_TIER") == "long"
NO_SHRINK = (Phase.explicit, Phase.generate)
"""Each example copies and repairs a store: a smaller one is not worth hundreds more."""


def planned(root: Path) -> RepairPlan:
    directory = StoreDirectory.open(root)
    try:
        return plan(directory, verify(directory))
    finally:
        directory.close()


def repaired(root: Path) -> tuple[Path, VerifyReport]:
    directory = StoreDirectory.open(root)
    try:
        return repair(directory, verify(directory), ManualClock())
    finally:
        directory.close()


def contents(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@settings(max_examples=1000 if LONG else 20, deadline=None, phases=NO_SHRINK)
@given(data=st.data())
def test_damaged_queues_and_indexes_are_rebuilt(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = tmp_path_factory.mktemp("repair") / "store"
    shutil.copytree(filled(), root)
    choices = [place for place in damageable(filled()) if place[0].parent.name != "commitlog"]
    for _ in range(data.draw(st.integers(1, 4))):
        path, at = data.draw(st.sampled_from(choices))
        content = bytearray((root / path.relative_to(filled())).read_bytes())
        content[at] ^= data.draw(st.integers(1, 255))
        (root / path.relative_to(filled())).write_bytes(content)
    before = contents(root)
    todo = planned(root)
    assert contents(root) == before, "a plan changes nothing"
    if todo.is_empty:
        assert kinds(checked(root)) == set()  # one change undid another
        return
    aside, report = repaired(root)
    assert report.findings.kinds == []
    assert queue_files(root).items() >= queue_files(filled()).items()
    for name, old in before.items():
        if name.parts[0] in ("consumequeue", "index") and not (root / name).exists():
            assert (aside / name).read_bytes() == old
    assert contents(root)[Path("commitlog") / f"{0:020d}"] == before[Path("commitlog") / f"{0:020d}"]
    with opened(root) as store:
        assert store.recovery.added == store.recovery.dropped == store.recovery.replaced == 0


@pytest.mark.parametrize("name", [CLEAN_5, CLEAN_4])
def test_lost_queues_of_a_real_directory_are_rebuilt(name: str, tmp_path: Path) -> None:
    root = copy_archive(name, tmp_path / "store")
    for lost in ("FxPlainA/0", "FxBatch/2", "SCHEDULE_TOPIC_XXXX/1"):
        shutil.rmtree(root / "consumequeue" / lost)
    aside, report = repaired(root)
    assert kinds(report) == set()
    assert queue_files(root) == queue_files(unpacked(name)), "deleted topics stay deleted"
    assert aside.parent == root


def test_damage_of_the_log_is_named_and_other_messages_are_served(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    flip(root, 100)
    shutil.rmtree(root / "consumequeue" / "Bills" / "1")
    todo = planned(root)
    assert (todo.queues, len(todo.lost)) == ((("Bills", 1),), 1)
    _, report = repaired(root)
    assert kinds(report) == {"damaged bytes"}
    with opened(root) as store:
        assert [queue.max_offset for queue in store.all_queues()] == [15] * 4


def test_bytes_after_the_log_are_saved_and_zeroed(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    last = sorted((root / "commitlog").iterdir())[-1]
    content = bytearray(last.read_bytes())
    content[-3:] = b"end"
    last.write_bytes(content)
    assert planned(root).stray_at == int(last.name) + 4093
    aside, report = repaired(root)
    assert report.findings.kinds == []
    assert (aside / last.name).read_bytes() == content


def test_directory_in_use_is_not_repaired(tmp_path: Path) -> None:
    root = tmp_path / "store"
    shutil.copytree(filled(), root)
    shutil.rmtree(root / "index")
    store = open_store(root)
    put(store, store.queue("Orders", 0), b"x")
    before = contents(root)
    with pytest.raises(StoreLockedError, check=about(value=root)):
        repaired(root)
    assert contents(root) == before
    store.close()
