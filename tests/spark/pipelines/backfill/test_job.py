"""Backfills in a Spark session: windows as Parquet or by a function, what fails, what is left, and where."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.pipelines.stored_files import mounted
from tests.spark.support import Topics, bodies, numbered
from tests.support import about

from sparrowmq.spark import (
    BackfillSettings,
    Progress,
    Watch,
    backfill_windows,
    dry_run_backfill_windows,
    plan_backfill_windows,
    read_backfill,
)
from sparrowmq.spark.pipelines.backfill.ledger import BackfillError, BackfillLedger
from sparrowmq.spark.pipelines.backfill.windows import Window
from sparrowmq.spark.pipelines.common.files import files_of
from sparrowmq.spark.pipelines.common.queries import PipelineError


def made(topics: Topics, topic: str, place: Path | str, /, **more: Any) -> BackfillSettings:
    return BackfillSettings(
        directory=place, topics=(topic,), name_server=topics.cluster.namesrv, **{"window_rows": 10, **more}
    )


def test_windows_become_parquet_once_and_a_second_run_finds_nothing(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, 34)
    out = tmp_path / "out"
    settings = made(topics, topic, out, parallel=3)
    plan = plan_backfill_windows(settings)
    assert str(plan).startswith("backfill: 2 steps, 34 messages wait")
    assert "windows: 4, of which 0 are done\n     messages of one: 4 to 10\n     at once: 3" in str(plan)
    assert dry_run_backfill_windows(spark, settings) == 34
    assert not out.exists(), "a plan and a dry run write nothing"
    told: list[Progress] = []
    done = backfill_windows(spark, settings, watch=Watch(told.append))
    assert (done.pipeline, done.batches, done.rows, done.lag) == ("backfill", 4, 34, 0)
    assert done.size == sum(path.stat().st_size for path in out.glob("window=*/*"))
    lags = [progress.lag for progress in told]
    assert (lags[0], lags[1]) == (None, 34)
    assert lags[1:] == sorted(lags[1:], key=lambda lag: -(lag or 0))
    found = read_backfill(spark, out)
    assert bodies(found) == numbered(0, 34)
    assert sorted(row["window"] for row in found.select("window").distinct().collect()) == [0, 1, 2, 3]
    assert bodies(spark.read.parquet(str(out))) == numbered(0, 34), "any reader sees the same"
    file = next(out.glob("window=00000000/*.parquet"))
    kind = parquet.read_schema(file).field("store_timestamp").type
    assert kind == pa.timestamp("us", "UTC"), "readers skip files by time"
    topics.send(topic, 5, first=34)
    again = backfill_windows(spark, settings)
    assert (again.batches, again.rows, again.lag) == (0, 0, 0), "what was settled at the start is done"
    assert str(plan_backfill_windows(settings)) == "backfill: nothing to do, 0 messages wait"
    (out / "_backfill" / "done" / "00000001").unlink()  # as if it was killed after the last row
    assert backfill_windows(spark, settings).rows == 10
    assert bodies(spark.read.parquet(str(out))) == numbered(0, 34), "written in place of what there was"


def test_windows_by_time_hold_what_was_stored_then(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    for first in range(0, 30, 5):
        topics.send(topic, 5, first=first)
    seen: list[tuple[Window, list[Any]]] = []

    def write(rows: DataFrame, window: Window) -> int:
        found = rows.selectExpr("cast(body as string) text", "unix_millis(store_timestamp) at").collect()
        seen.append((window, found))
        return len(found)

    settings = made(topics, topic, tmp_path / "out", window_rows=None, window=0.005, parallel=1)
    assert backfill_windows(spark, settings, write).rows == 30
    assert sorted(row["text"] for _, found in seen for row in found) == sorted(numbered(0, 30))
    for window, found in seen:
        assert window.since is None or window.since % 5 == 0
        assert all(row["at"] >= (window.since or 0) for row in found)
        assert all(row["at"] < (window.until or 2**62) for row in found)


def test_a_window_that_fails_is_named_and_done_by_the_next_run(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, 40)
    calls: list[int] = []
    keys: dict[int, set[str]] = {}
    lock = Lock()
    failing = True

    def write(rows: DataFrame, window: Window) -> None:
        with lock:
            calls.append(window.number)
            keys.setdefault(window.number, set()).add(window.key)
        if failing and window.number == 1:
            raise ValueError("no room for it")

    settings = made(topics, topic, tmp_path / "out", parallel=1)
    with pytest.raises(PipelineError, check=about(what="window", value=1, limit=3)):
        backfill_windows(spark, settings, write)
    assert calls == [0, 1], "none is begun after that"
    assert BackfillLedger(files_of(settings.directory, "backfill")).done() == {0}
    failing = False
    backfill_windows(spark, replace(settings, parallel=2), write)
    assert sorted(calls) == [0, 1, 1, 2, 3], "only that one again"
    assert all(len(names) == 1 for names in keys.values()), "its key is the same in every try"
    assert len(set.union(*keys.values())) == 4


def test_a_stop_takes_effect_after_the_current_windows(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, 40)
    settings = made(topics, topic, tmp_path / "out", parallel=1)
    watch = Watch()
    done = backfill_windows(spark, settings, lambda rows, window: watch.stop(), watch)
    assert (done.batches, done.rows, done.lag) == (1, 10, 30)
    assert backfill_windows(spark, settings, lambda rows, window: None).batches == 3


def test_conditions_and_expressions_shape_the_rows(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, 20)
    topics.send(topic, 5, first=20, tags="TagB")
    settings = made(
        topics,
        topic,
        tmp_path / "out",
        columns=("tags", "body"),
        where="tags = 'TagB'",
        select=("cast(body as string) as text", "tags"),
    )
    assert dry_run_backfill_windows(spark, settings) == 5
    assert backfill_windows(spark, settings).rows == 5
    found = read_backfill(spark, tmp_path / "out")
    assert found.columns == ["text", "tags", "window"]
    assert sorted(row["text"] for row in found.collect()) == [f"m{number}" for number in range(20, 25)]
    for wrong in ({"where": "nothing = 1"}, {"select": ("cast(body as strin)",)}):
        with pytest.raises(PipelineError, match=r"nothing|STRIN"):
            backfill_windows(spark, made(topics, topic, tmp_path / "wrong", **wrong))
        assert not (tmp_path / "wrong" / "_backfill" / "backfill.json").exists(), "it can be corrected"
    other = made(topics, topic, tmp_path / "out", where="tags = 'TagA'")
    for refused in (plan_backfill_windows, lambda asked: backfill_windows(spark, asked)):
        with pytest.raises(BackfillError, check=about(setting="columns")):
            refused(other)
    with pytest.raises(BackfillError, check=about(what="windows", value=tmp_path / "other")):
        read_backfill(spark, tmp_path / "other")


def test_result_and_ledger_stand_wherever_spark_can_write(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, 25)
    anywhere = f"{mounted(spark, tmp_path / 'elsewhere')}/out"
    settings = made(topics, topic, anywhere)
    assert "windows: 3, of which 0 are done" in str(plan_backfill_windows(settings))
    assert dry_run_backfill_windows(spark, settings) == 25

    def until_one(progress: Progress) -> None:
        if progress.batches:
            watch.stop()

    watch = Watch(until_one)
    assert backfill_windows(spark, settings, watch=watch).batches in (1, 2)
    assert "of which 0 are done" not in str(plan_backfill_windows(settings))
    done = backfill_windows(spark, settings)
    assert done.lag == 0
    assert bodies(read_backfill(spark, anywhere)) == numbered(0, 25)
    notes = tmp_path / "elsewhere" / "out" / "_backfill"
    assert sorted(path.name for path in (notes / "done").glob("0*")) == ["00000000", "00000001", "00000002"]
    assert json.loads((notes / "done" / "00000002").read_text())["rows"] == 5
    assert done.size > 0
