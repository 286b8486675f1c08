"""Drivers for `test_cluster`: `python -m tests.spark.cluster_child archive|without JSON`; prints JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
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
    return {"rows": total[0], "sum": total[1], "places": [row["place"] for row in places]}


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
    answer = {"archive": archive, "without": without}[sys.argv[1]](running, request)
    running.stop()
    print("answer", json.dumps(answer))
