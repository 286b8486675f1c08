"""A program for any version of Spark: read, write, stream; prints what it saw as one line of JSON.

`python -m tests.versions.smoke NAMESERVER TOPIC OUT DIRECTORY` reads TOPIC, which holds 20 JSON bodies, and
writes to topic OUT.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession

from sparrowmq.spark.sessions import builder

QUERY_SECONDS = 120


def _error(work: Any) -> str:
    try:
        work()
    except Exception as error:
        return str(error)
    return ""


def main(namesrv: str, topic: str, out: str, directory: Path) -> dict[str, object]:
    """What the source and the sink do here."""
    spark: SparkSession = builder("versions").getOrCreate()
    options = {"nameServer": namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.read.format("rocketmq").options(**options).load()
    decoded = (
        spark.read.format("rocketmq").options(**options, bodyFormat="json", bodySchema="id bigint").load()
    )

    def run(name: str, source: DataFrame, sink: str, **more: str) -> None:
        writer = source.writeStream.format(sink).options(**more).queryName(name)
        writer = writer.option("checkpointLocation", str(directory / name))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(QUERY_SECONDS)
        finally:
            query.stop()

    def stream(**more: str) -> DataFrame:
        return spark.readStream.format("rocketmq").options(**options, **more).load()

    def write() -> None:
        bodies = frame.select("body")
        bodies.write.format("rocketmq").options(nameServer=namesrv, topic=out).mode("append").save()

    write()
    spark.sql(
        f"CREATE TEMPORARY VIEW seen USING rocketmq OPTIONS (nameServer '{namesrv}', subscribe '{topic}')"
    )
    run("plain", stream(), "memory")
    run("plain2", stream(), "parquet", path=str(directory / "out"))
    return {
        "version": pyspark.__version__,
        "rows": frame.count(),
        "ids": sorted(row[0] for row in decoded.select("body.id").collect()),
        "pruned": frame.where("queue_id = 0 AND queue_offset < 3").count(),
        "streamed": spark.table("plain").count(),
        "view": spark.table("seen").count(),
        "files": spark.read.parquet(str(directory / "out")).count(),
        "limit": _error(lambda: run("limited", stream(maxOffsetsPerTrigger="5"), "memory")),
        "sink": _error(
            lambda: run("sink", stream().select("body"), "rocketmq", nameServer=namesrv, topic=out)
        ),
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:4], Path(sys.argv[4]))))
