"""A program over Spark Connect: `python -m tests.spark.connect_child REMOTE NAMESERVER TOPIC OUT DIRECTORY`.

It reads TOPIC, writes its bodies to topic OUT, streams it to files below DIRECTORY, reads it through a view
of SQL, and prints what it saw as one line of JSON. No JVM belongs to it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from sparrowmq.spark.source import register

QUERY_SECONDS = 120


def _stream(frame: DataFrame, directory: Path) -> None:
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(directory / "checkpoint"))
    query = writer.option("path", str(directory / "out")).trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_SECONDS)


def _error(spark: SparkSession, options: dict[str, str]) -> str:
    try:
        spark.read.format("rocketmq").options(**options).load().count()
    except PySparkException as error:
        return str(error)
    return ""


def main(remote: str, namesrv: str, topic: str, out: str, directory: Path) -> dict[str, object]:
    """What a client gets that only speaks to a server."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    options = {"nameServer": namesrv, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.read.format("rocketmq").options(**options).load()
    frame.select("body").write.format("rocketmq").options(nameServer=namesrv, topic=out).mode("append").save()
    limited = {**options, "maxOffsetsPerTrigger": "8"}
    _stream(spark.readStream.format("rocketmq").options(**limited).load(), directory)
    spark.sql(
        f"CREATE TEMPORARY VIEW seen USING rocketmq OPTIONS (nameServer '{namesrv}', subscribe '{topic}')"
    )
    register(spark)
    found = {
        "client": type(spark).__module__,
        "rows": frame.count(),
        "streamed": spark.read.parquet(str(directory / "out")).count(),
        "sql": spark.sql("SELECT count(*) FROM seen WHERE queue_offset < 3").first()[0],
        "registered": spark.read.format("sparrowmq").options(**options).load().count(),
        "error": _error(spark, {**options, "startingOffset": "earliest"}),
    }
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:5], Path(sys.argv[5]))))
