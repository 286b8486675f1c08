"""An archive's directory: what readers see at each step, and what a killed writer leaves behind."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as dataset
import pyarrow.parquet as parquet
import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets import Span
from sparrowmq.spark.pipelines.archive_home import (
    MANIFEST,
    ArchiveHome,
    Written,
    ddl,
    directory,
    read_ledger,
    unit_name,
    written,
)
from sparrowmq.spark.pipelines.ledger import ArchiveError, Unit

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
def home(tmp_path: Path) -> ArchiveHome:
    return ArchiveHome(tmp_path / "archive")


def add(home: ArchiveHome, number: int, values: list[int]) -> Unit:
    """Publish a unit with a Parquet file."""
    staged = home.staged(number)
    inner = staged / "date=2026-11-21" / "topic=T"
    inner.mkdir(parents=True)
    parquet.write_table(pa.table({"n": values}), inner / "part-0.parquet")
    unit = Unit(number=number, spans=(Span(QUEUE, values[0], values[-1] + 1),), rows=len(values), size=1)
    home.publish(staged, unit)
    return unit


def seen(home: ArchiveHome) -> list[int]:
    """What a plain reader of `data` finds."""
    table = dataset.dataset(home.data, format="parquet", partitioning="hive").to_table()
    return sorted(table["n"].to_pylist()) if "n" in table.column_names else []


def test_units_appear_one_by_one(home: ArchiveHome) -> None:
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


def test_what_is_not_published_goes_at_the_next_start(home: ArchiveHome) -> None:
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


def test_a_generation_replaces_units_in_one_step(home: ArchiveHome) -> None:
    with home.locked():
        units = [add(home, number, [number]) for number in range(3)]
        before = home.current()
        opened = dataset.dataset(before, format="parquet", partitioning="hive")
        made = home.next_generation(units[:2])
        staged = home.staged(1)
        staged.mkdir()
        parquet.write_table(pa.table({"n": [0, 1]}), staged / "part-0.parquet")
        one = Unit(number=1, spans=(Span(QUEUE, 0, 2),), rows=2, size=1)
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
    with ArchiveHome(path).locked():
        ready.set()
        done.wait(20)


def test_one_process_writes_at_a_time(home: ArchiveHome) -> None:
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(home.root, ready, done))
    other.start()
    try:
        assert ready.wait(20)
        with pytest.raises(ArchiveError, match=f"is being written by process {other.pid}"), home.locked():
            raise AssertionError("two writers")
    finally:
        done.set()
        other.join(20)
    with home.locked():
        assert home.exists


def test_directories() -> None:
    assert directory("/a/b") == Path("/a/b")
    assert directory("file:///a/b") == Path("/a/b")
    assert directory("x").is_absolute()
    with pytest.raises(SettingsError, match="archive s3://bucket/x: it needs a mounted file system"):
        directory("s3://bucket/x")


def test_faults_are_named(home: ArchiveHome, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="holds no archive"):
        home.current()
    (tmp_path / "file").write_text("")
    with pytest.raises(ArchiveError, match="cannot be made"), ArchiveHome(tmp_path / "file").locked():
        raise AssertionError("a file")
    with home.locked():
        add(home, 0, [0])
        (home.current() / unit_name(0) / MANIFEST).unlink()
        with pytest.raises(ArchiveError, match=r"_unit\.json cannot be read"):
            home.load()


def test_rows_are_counted_in_the_files(home: ArchiveHome) -> None:
    with home.locked():
        add(home, 0, [0, 1, 2])
    found = written(home.current())
    assert found.rows == 3
    assert found.size > 0
    assert written(home.staging) == Written(0, 0)


def test_the_offsets_of_a_batch_come_from_the_checkpoint(home: ArchiveHome) -> None:
    def log(batch: int, value: object) -> None:
        (home.checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(value)}")

    (home.checkpoint / "offsets").mkdir(parents=True)
    (home.checkpoint / "metadata").write_text('{"id":"abc"}')
    log(0, {"queues": {"T": {"broker-a": {"0": 5}}}, "from": {"T": {"broker-a": {"0": 2}}}})
    log(1, {"queues": {"T": {"broker-a": {"0": 9}}}})
    log(2, {"queues": {"T": {"broker-a": {"0": 9}}}})
    assert home.query_id() == "abc"
    assert home.batch_spans(0) == [Span(QUEUE, 2, 5)]
    assert home.batch_spans(1) == [Span(QUEUE, 5, 9)]
    assert home.batch_spans(2) == []
    (home.checkpoint / "offsets" / "3").write_text("v1\n")
    with pytest.raises(ArchiveError, match=r"offsets/3 holds no offsets of batch 3"):
        home.batch_spans(3)
    with pytest.raises(ArchiveError, match="no offsets of batch 4"):
        home.batch_spans(5)


def test_names_are_quoted() -> None:
    assert ddl({"a b": "int", "c`d": "map<string,string>"}) == "`a b` int, `c``d` map<string,string>"
