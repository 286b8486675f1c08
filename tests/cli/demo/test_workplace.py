"""The demo's directories: runs do not share one, results stay, everything else is deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.cli.base.common import UsageError
from sparrowmq.cli.demo import workplace
from sparrowmq.cli.demo.workplace import prepare


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.fixture(autouse=True)
def short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets' directories go where the test's go."""
    assert len(workplace.SHORT_ROOT) < 20
    (tmp_path / "short").mkdir()
    monkeypatch.setattr(workplace, "SHORT_ROOT", str(tmp_path / "short"))


def test_each_run_has_a_directory_of_its_own(tmp_path: Path) -> None:
    place = prepare(tmp_path / "demo")
    assert place.run == tmp_path / "demo" / f"run-{os.getpid()}"
    inside = (place.store, place.parquet, place.checkpoint, place.scratch, place.servers_log, place.spark_log)
    assert all(path.parent == place.run for path in inside)
    assert {place.page.parent, place.result.parent} == {place.root}
    assert place.sockets.is_dir()
    assert place.sockets.parent == tmp_path / "short"
    place.finish(keep=False)
    assert not place.sockets.exists()


def test_what_killed_runs_left_goes_and_living_ones_stay(tmp_path: Path) -> None:
    for pid in (dead_pid(), os.getpid(), 1, "x"):
        (tmp_path / f"run-{pid}" / "store").mkdir(parents=True)
    place = prepare(tmp_path)
    assert list(place.run.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["run-1", "run-x", "short", place.run.name]
    )


def test_results_replace_those_of_the_run_before(tmp_path: Path) -> None:
    place = prepare(tmp_path)
    (place.result / "batch=00000009").mkdir(parents=True)
    (place.parquet / "batch=00000000").mkdir(parents=True)
    place.publish()
    assert [path.name for path in place.result.iterdir()] == ["batch=00000000"]
    assert place.finish(keep=False) is None
    assert not place.run.exists()
    assert place.result.is_dir()


def test_kept(tmp_path: Path) -> None:
    place = prepare(tmp_path)
    (place.run / "store").mkdir()
    kept = place.finish(keep=True)
    assert kept is not None
    assert (kept / "store").is_dir()
    assert prepare(tmp_path).run.is_dir()
    assert (kept / "store").is_dir()


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, check=about(what="--data", value=tmp_path / "file")):
        prepare(tmp_path / "file")
