"""The Spark job without Spark: its settings, the effect of a batch on the totals, the target of standard
error.
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support import about

from sparrowmq.cli.demo import pipeline
from sparrowmq.cli.demo.pipeline import DemoJob, StreamProgress
from sparrowmq.cli.demo.traffic import TrafficPlan
from sparrowmq.cli.demo.workplace import Workplace

ROW = ("JFK", "LAX", "Los Angeles", "Delta", 7)


@pytest.fixture
def job(tmp_path: Path) -> DemoJob:
    plan = TrafficPlan("127.0.0.1:1", "Flights", "Summaries", "g", tmp_path, 10, None)
    return DemoJob(plan, Workplace(tmp_path, tmp_path, tmp_path / "sockets"))


class Chain:
    """Anything whose methods give itself; keeps what was called."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return Call(self, name)

    def arguments(self, name: str) -> list[tuple[Any, ...]]:
        return [arguments for called, arguments in self.calls if called == name]


class Call:
    """An attribute of a chain: called, or gone on with."""

    def __init__(self, chain: Chain, name: str) -> None:
        self._chain = chain
        self._name = name

    def __call__(self, *arguments: Any, **named: Any) -> Chain:
        self._chain.calls.append((self._name, (*arguments, *named.values())))
        return self._chain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._chain, name)


def settings_of(job: DemoJob) -> dict[str, str]:
    found: dict[str, str] = pipeline.builder(job)._options
    return found


def test_the_session_is_small_and_keeps_its_files_in_scratch(job: DemoJob) -> None:
    found, scratch = settings_of(job), job.place.scratch
    assert scratch.is_dir()
    assert found["spark.master"] == "local[2]"
    assert found["spark.local.dir"] == str(scratch)
    assert found["spark.sql.warehouse.dir"] == str(scratch / "warehouse")
    assert found["spark.python.unix.domain.socket.enabled"] == "true"
    assert found["spark.python.unix.domain.socket.dir"] == str(job.place.sockets)


def test_workers_of_a_cluster_get_the_package_and_find_the_driver(job: DemoJob) -> None:
    found = settings_of(dataclasses.replace(job, master="spark://host:7077"))
    assert found["spark.master"] == "spark://host:7077"
    assert not {"spark.driver.host", "spark.driver.bindAddress", "spark.local.dir"} & set(found)
    assert "spark.python.unix.domain.socket.dir" not in found
    assert zipfile.is_zipfile(found["spark.submit.pyFiles"])


class Builder:
    """In place of Spark's: runs a function of the test."""

    def __init__(self, getOrCreate: Callable[[], str]) -> None:
        self.getOrCreate = getOrCreate


def test_what_the_jvm_says_goes_to_the_log_and_ours_stays(
    job: DemoJob, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def start() -> str:
        subprocess.run(["sh", "-c", "echo from the JVM >&2"], check=True)
        return "the session"

    monkeypatch.setattr(pipeline, "builder", lambda job: Builder(start))
    session: Any = pipeline.session(job)
    assert session == "the session"
    os.write(2, b"from us\n")
    assert job.place.spark_log.read_text() == "from the JVM\n"
    assert capfd.readouterr().err == "from us\n"


def test_standard_error_comes_back_when_the_jvm_does_not_start(
    job: DemoJob, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def start() -> str:
        raise OSError("no java")

    monkeypatch.setattr(pipeline, "builder", lambda job: Builder(start))
    with pytest.raises(OSError, check=about(args=("no java",))):
        pipeline.session(job)
    os.write(2, b"still here\n")
    assert capfd.readouterr().err == "still here\n"


def batch_writer(
    job: DemoJob, progress: StreamProgress, monkeypatch: pytest.MonkeyPatch, sent: list[Any]
) -> Callable[[Any, int], None]:
    """The function that Spark is given for its batches. A batch here is a chain with `rows`."""
    stream = Chain()
    monkeypatch.setattr(pipeline, "flights", lambda spark, job: stream)
    monkeypatch.setattr(pipeline, "grouped", lambda batch: batch.rows)
    monkeypatch.setattr(pipeline, "send_summaries", lambda spark, job, found: sent.append(found))
    pipeline.start(Chain(), job, progress)
    assert stream.arguments("option") == [("checkpointLocation", str(job.place.checkpoint))]
    ((write,),) = stream.arguments("foreachBatch")
    assert callable(write)
    return write


def batch(*counts: int) -> Any:
    made: Any = Chain()
    made.rows = [(*ROW, flights, flights, 5 * flights) for flights in counts]
    return made


def test_a_batch_that_runs_again_replaces_what_it_left(job: DemoJob, monkeypatch: pytest.MonkeyPatch) -> None:
    progress, sent = StreamProgress(), list[Any]()
    write = batch_writer(job, progress, monkeypatch, sent)
    first, again, empty = batch(3), batch(4), batch()
    write(first, 0)
    assert (progress.processed, progress.summaries) == (3, 1)
    write(again, 0)
    assert (progress.processed, progress.summaries) == (4, 2)
    write(batch(2), 1)
    assert progress.processed == 6
    write(empty, 2)
    assert (progress.processed, len(sent)) == (6, 3), "a batch without flights sends nothing"
    for made, number in ((first, 0), (again, 0), (empty, 2)):
        assert made.arguments("mode") == [("overwrite",)]
        assert made.arguments("parquet") == [(str(job.place.parquet / f"batch={number:08d}"),)]
        assert len(made.arguments("persist")) == len(made.arguments("unpersist")) == 1
    origins = [[origin for origin, _ in found] for found in sent]
    assert origins == [["JFK"]] * 3


def test_a_failed_batch_counts_nothing_and_frees_its_cache(
    job: DemoJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = StreamProgress()
    write = batch_writer(job, progress, monkeypatch, [])
    failing = batch(3)

    def no_disk(rows: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(pipeline, "grouped", no_disk)
    with pytest.raises(OSError, check=about(args=("no space left",))):
        write(failing, 0)
    assert (progress.processed, progress.summaries) == (0, 0)
    assert len(failing.arguments("unpersist")) == 1


def test_summaries_go_to_their_topic_with_the_origin_as_tag(job: DemoJob) -> None:
    spark = Chain()
    pipeline.send_summaries(spark, job, [("JFK", "{}")])
    assert spark.arguments("createDataFrame") == [([("JFK", "{}")], "tags string, body string")]
    assert spark.arguments("option") == [("nameServer", "127.0.0.1:1"), ("topic", "Summaries")]
    assert spark.arguments("mode") == [("append",)]
    assert len(spark.arguments("save")) == 1
