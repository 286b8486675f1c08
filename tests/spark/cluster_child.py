"""Drivers for `test_cluster`: `python -m tests.spark.cluster_child NAME JSON`; each prints JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession


def session(plan: dict[str, Any]) -> SparkSession:
    """A session on the plan's master with the plan's settings."""
    made = SparkSession.builder.master(plan["master"]).appName("cluster")
    for name, value in plan["conf"].items():
        made = made.config(name, value)
    return made.getOrCreate()


def archive(spark: SparkSession, plan: dict[str, Any]) -> dict[str, Any]:
    """Write and read a topic; where the workers' package came from."""

    def place(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import msgspec

        import sparrowmq

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"place": [sparrowmq.__file__, msgspec.__file__]})

    topic = {"nameServer": plan["namesrv"]}
    rows = spark.range(0, plan["rows"], 1, 4).selectExpr("cast(id as string) as body")
    rows.write.format("rocketmq").options(**topic, topic=plan["topic"]).mode("append").save()
    read = spark.read.format("rocketmq").options(**topic, subscribe=plan["topic"]).load()
    total = read.selectExpr("count(*)", "sum(cast(cast(body as string) as int))").collect()[0]
    places = spark.range(0, 1, 1, 1).mapInArrow(place, "place string").collect()
    found = {"rows": total[0], "sum": total[1], "places": [row["place"] for row in places]}
    return {**found, **pipelines(spark, plan)}


def pipelines(spark: SparkSession, plan: dict[str, Any]) -> dict[str, Any]:
    """What mirror, audit and report say of that topic, their tasks being on other machines."""
    from sparrowmq.spark import AuditSettings, MirrorSettings, ReportSettings, audit, mirror, report

    root, topic = Path(plan["root"]), plan["topic"]
    mirrored = mirror(
        spark,
        MirrorSettings(
            directory=root / "mirror",
            source="here",
            target="there",
            name_server=plan["namesrv"],
            target_name_server=plan["target"],
            topics=(topic,),
        ),
    )
    reader = spark.read.format("rocketmq").option("nameServer", plan["target"])
    arrived = reader.option("subscribe", topic).load().selectExpr("topic", "msg_id as id")
    ledger = str(root / "sent.parquet")
    arrived.selectExpr("*", "current_timestamp() as time").write.parquet(ledger)
    shared: dict[str, Any] = {"topics": (topic,), "name_server": plan["namesrv"]}
    verdict = audit(spark, AuditSettings(directory=root / "audit", ledger=ledger, **shared))
    day = datetime.now(UTC).date()
    reported = report(spark, ReportSettings(directory=root / "report", day=day, **shared))
    return {
        "mirrored": mirrored.rows,
        "audited": [verdict.status.name, verdict.sent, verdict.stored],
        "reported": reported.rows,
    }


def parallel(spark: SparkSession, plan: dict[str, Any]) -> dict[str, Any]:
    """How many tasks read a topic, and how many of them were at work at once: each waits for the others."""
    root, cores = Path(plan["root"]), plan["cores"]

    def meet(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        mine = root / f"{os.getpid()}-{time.monotonic_ns()}"
        mine.touch()
        deadline = time.monotonic() + plan["seconds"]
        while (met := len(list(root.iterdir()))) < cores and time.monotonic() < deadline:
            time.sleep(0.02)
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": [rows], "met": [met]})

    reader = spark.read.format("rocketmq").option("nameServer", plan["namesrv"]).schema("queue_id int")
    read = reader.option("subscribe", plan["topic"]).load()
    tasks = read.mapInArrow(meet, "rows bigint, met bigint").collect()
    return {
        "driver": len(os.sched_getaffinity(0)),
        "rows": [task["rows"] for task in tasks],
        "met": min(task["met"] for task in tasks),
    }


def without(spark: SparkSession, plan: dict[str, Any]) -> dict[str, Any]:
    """What a driver is told that lacks the package, or has it from --py-files only."""
    found: dict[str, Any] = {}
    try:
        spark.read.format("rocketmq").load()
    except Exception as error:  # Py4JJavaError around Spark's own
        found["by name"] = str(error)
    try:
        from sparrowmq.spark.source import register

        register(spark)
    except Exception as error:
        found["registered"] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    request = json.loads(sys.argv[2])
    running = session(request)
    answer = {"archive": archive, "parallel": parallel, "without": without}[sys.argv[1]](running, request)
    running.stop()
    print("answer", json.dumps(answer))
