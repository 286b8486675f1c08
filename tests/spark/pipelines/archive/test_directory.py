"""An archive's directory: what readers see at each step, and what a killed writer leaves behind."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as parquet
import pytest
from tests.support import about

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.directory import (
    MANIFEST,
    ArchiveDirectory,
    WrittenFiles,
    read_ledger,
    unit_name,
    written,
)
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveUnit

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
def home(tmp_path: Path) -> ArchiveDirectory:
    return ArchiveDirectory(tmp_path / "archive")


def add(home: ArchiveDirectory, number: int, values: list[int]) -> ArchiveUnit:
    """Publish a unit with a Parquet file."""
    staged = home.staged(number)
    inner = staged / "date=2026-11-21" / "topic=T"
    inner.mkdir(parents=True)
    parquet.write_table(pa.table({"n": values}), inner / "part-0.parquet")
    unit = ArchiveUnit(
        number=number, spans=(Span(QUEUE, values[0], values[-1] + 1),), rows=len(values), size=1
    )
    home.publish(staged, unit)
    return unit


def seen(home: ArchiveDirectory) -> list[int]:
    """What a plain reader of `data` finds."""
    table = dataset.dataset(home.data, format="parquet", partitioning="hive").to_table()
    return sorted(table["n"].to_pylist()) if "n" in table.column_names else []


def test_units_appear_one_by_one(home: ArchiveDirectory) -> None:
    assert not home.exists
    with home.locked():
        assert home.load().units == ()
        first = add(home, 0, [0, 1])
        assert seen(home) == [0, 1]
        second = add(home, 1, [2])
        assert home.load().units == (first, second)
    assert home.exists
    assert seen(home) == [0, 1, 2]
    assert read_ledger(home.current()).ends() == {QUEUE: 3}


def test_what_is_not_published_goes_at_the_next_start(home: ArchiveDirectory) -> None:
    with home.locked():
        add(home, 0, [0])
        staged = home.staged(1)
        staged.mkdir()
        (staged / "part.parquet").write_bytes(b"half")
        home.next_generation([])
    with home.locked():
        assert list(home.staging.iterdir()) == []
        assert [path.name for path in home.generations.iterdir()] == ["00000000"]
        assert home.load().next_number == 1


def test_a_generation_replaces_units_in_one_step(home: ArchiveDirectory) -> None:
    with home.locked():
        units = [add(home, number, [number]) for number in range(3)]
        before = home.current()
        opened = dataset.dataset(before, format="parquet", partitioning="hive")
        made = home.next_generation(units[:2])
        staged = home.staged(1)
        staged.mkdir()
        parquet.write_table(pa.table({"n": [0, 1]}), staged / "part-0.parquet")
        one = ArchiveUnit(number=1, spans=(Span(QUEUE, 0, 2),), rows=2, size=1)
        home.publish(staged, one, made)
        assert seen(home) == [0, 1, 2]
        assert home.current() == before
        home.switch(made)
        assert seen(home) == [0, 1, 2]
        assert home.load().units == (one, units[2])
        assert sorted(path.name for path in home.data.iterdir()) == [unit_name(1), unit_name(2)]
        assert sorted(opened.to_table()["n"].to_pylist()) == [0, 1, 2]
        home.switch(home.next_generation([]))
        assert not before.exists()
        assert seen(home) == [0, 1, 2]


def _hold(
    path: Path, ready: multiprocessing.synchronize.Event, done: multiprocessing.synchronize.Event
) -> None:
    with ArchiveDirectory(path).locked():
        ready.set()
        done.wait(20)


def test_one_process_writes_at_a_time(home: ArchiveDirectory) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(home.root, ready, done))
    other.start()
    try:
        assert ready.wait(20)
        with pytest.raises(ArchiveError, check=about(what="process", value=str(other.pid))), home.locked():
            raise AssertionError("two writers")
    finally:
        done.set()
        other.join(20)
    with home.locked():
        assert home.exists


def test_faults_are_named(home: ArchiveDirectory, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, check=about(what="archive")):
        home.current()
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(ArchiveError, check=about(what="archive", value=tmp_path / "file")),
        ArchiveDirectory(tmp_path / "file").locked(),
    ):
        raise AssertionError("a file")
    with home.locked():
        add(home, 0, [0])
        manifest = home.current() / unit_name(0) / MANIFEST
        manifest.unlink()
        with pytest.raises(ArchiveError, check=about(value=manifest)):
            home.load()


def test_rows_are_counted_in_the_files(home: ArchiveDirectory) -> None:
    with home.locked():
        add(home, 0, [0, 1, 2])
    found = written(home.current())
    assert found.rows == 3
    assert found.size > 0
    assert written(home.staging) == WrittenFiles(0, 0)
