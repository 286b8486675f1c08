"""A driver of its own: `python -m tests.spark.matrix.driver` runs one `Plan` for each line of its input.

Its JVM starts with it, so it is ready when a plan comes. How a run ended is in the plan's file `answer`. Who
asked for it kills it, or lets it end with its input.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from tests.spark.matrix.plan import SIZE, SOURCE, TARGET, Plan

from sparrowmq.spark import (
    ArchiveSettings,
    MirrorSettings,
    ReplaySettings,
    archive,
    mirror,
    register,
    replay,
)
from sparrowmq.spark.sessions import builder

FORMAT: Final = "rocketmq"


def body(number: Column) -> Column:
    """The body of a row, as the source's messages have theirs."""
    return F.rpad(F.concat(F.lit("m"), F.lpad(number.cast("string"), 9, "0")), SIZE, "x")


def stream(spark: SparkSession, plan: Plan) -> None:
    """A topic into another, by a query of micro-batches."""
    options = {
        "nameServer": plan.source,
        "subscribe": SOURCE,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(plan.batch),
        "failOnDataLoss": "false",
        **plan.read,
    }
    frame = spark.readStream.format(FORMAT).schema("body binary").options(**options).load()
    writer = frame.writeStream.format(FORMAT).options(nameServer=plan.target, topic=TARGET, **plan.write)
    query = writer.option("checkpointLocation", f"{plan.home}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()


def job(spark: SparkSession, plan: Plan) -> None:
    """Spark's own rows into a topic, known by their place."""
    rows = spark.range(0, plan.rows, 1, plan.partitions).select(body(F.col("id")).alias("body"))
    if plan.tries_exactly_once:
        _must_be_refused(rows, plan)
    _write(rows, plan)


def _must_be_refused(rows: DataFrame, plan: Plan) -> None:
    try:
        _write(rows, plan, delivery="exactlyOnce")
    except PySparkException as error:
        assert "delivery=exactlyOnce" in str(error), error
        return
    raise AssertionError("a job without keys was taken with delivery=exactlyOnce")


def keyed(spark: SparkSession, plan: Plan) -> None:
    """The same rows behind a shuffle, known by a key."""
    rows = spark.range(0, plan.rows, 1, plan.partitions).repartition(plan.partitions, "id")
    _write(rows.select(body(F.col("id")).alias("body"), "id"), plan, idempotenceKey="id")


def _write(rows: DataFrame, plan: Plan, **more: str) -> None:
    named = {"nameServer": plan.target, "topic": TARGET, "jobId": "nightly"}
    options = {**named, "planLocation": f"{plan.home}/plans", **plan.write, **more}
    rows.write.format(FORMAT).options(**options).mode("append").save()


def run_mirror(spark: SparkSession, plan: Plan) -> None:
    """A topic to another cluster."""
    settings = MirrorSettings(
        directory=f"{plan.home}/mirror",
        source="here",
        target="there",
        name_server=plan.source,
        target_name_server=plan.target,
        topics=(SOURCE,),
        batch_rows=plan.batch,
        fail_on_data_loss=False,
        options=plan.read,
        target_options=plan.write,
    )
    mirror(spark, settings)


def run_replay(spark: SparkSession, plan: Plan) -> None:
    """What a topic holds to another, in parts."""
    settings = ReplaySettings(
        home=f"{plan.home}/replay",
        to=TARGET,
        topics=(SOURCE,),
        name_server=plan.source,
        batch_rows=plan.batch,
        tasks=plan.replay_tasks,
        options={name: value for name, value in plan.read.items() if name != "pollIntervalMs"},
        to_options=plan.write,
    )
    replay(spark, settings)


def run_archive(spark: SparkSession, plan: Plan) -> None:
    """A topic to Parquet."""
    settings = ArchiveSettings(
        directory=f"{plan.home}/archive",
        topics=(SOURCE,),
        name_server=plan.source,
        batch_rows=plan.batch // 2,
        columns=("topic", "broker", "queue_id", "queue_offset", "store_timestamp", "body"),
        compact_batches=plan.compact_batches,
        fail_on_data_loss=False,
        options=plan.read,
    )
    archive(spark, settings)


RUNS: Final = {
    "stream": stream,
    "job": job,
    "keyed": keyed,
    "mirror": run_mirror,
    "replay": run_replay,
    "archive": run_archive,
}


def answered(plan: Plan) -> str:
    """Run a plan; the error that ended it, empty when it ended well."""
    made = builder("matrix", plan.master)
    here = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    for name, value in {**here, **plan.conf}.items():
        made = made.config(name, value)
    spark = made.getOrCreate()
    try:
        register(spark)
        RUNS[plan.scenario](spark, plan)
    except Exception as error:  # whatever it was, who asked judges it
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"
    finally:
        spark.stop()
    return ""


def main() -> None:
    """Take plans until the input ends."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    SparkContext._ensure_initialized()
    for line in sys.stdin:
        plan = Plan.from_json(line)
        draft, said = Path(f"{plan.answer}.draft"), answered(plan)
        draft.write_text(json.dumps({"error": said}))
        draft.rename(plan.answer)


if __name__ == "__main__":
    main()
