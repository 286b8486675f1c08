"""The Spark job: flights from a topic, joined with airlines and airports, to Parquet and to summaries.

Each micro-batch overwrites a directory of its own, named after the batch's id, so a batch that Spark runs
again replaces what it left behind: every flight stands in Parquet exactly once (spark:E-04).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.cli.demo.flights import read_table
from sparrowmq.cli.demo.totals import Totals, groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

EVENT_SCHEMA: Final = (
    "row int, scheduled string, departed string, dep_delay int, arr_delay int, carrier string, flight int, "
    "tailnum string, origin string, dest string, air_time int, distance int, hour int"
)
BATCH_ROWS_MAX: Final = 60_000
"""Flights of one micro-batch at most: big enough that the fixed cost of a batch does not count."""
CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
"""Plain renames are enough on one machine and save 50 ms a batch (spark:S-41)."""


@dataclass(slots=True)
class Progress:
    """What the stream has done; written by Spark's callback thread, read by the screen."""

    totals: Totals = field(default_factory=Totals)
    processed: int = 0
    summaries: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class Job:
    """Where the job reads and writes."""

    namesrv: str
    flights_topic: str
    summary_topic: str
    data: Path
    parquet: Path
    checkpoint: Path
    scratch: Path


def session(job: Job) -> SparkSession:
    """A local Spark session that is quiet, binds the loopback address only and keeps its files in scratch."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.local.dir": str(job.scratch),
        "spark.sql.warehouse.dir": str(job.scratch / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINTS,
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_quiet_log(job.scratch)}",
    }
    builder = SparkSession.builder.master("local[2]").appName("sparrow demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _quiet_log(scratch: Path) -> str:
    """A log configuration that silences Spark's first lines (spark:T-01)."""
    scratch.mkdir(parents=True, exist_ok=True)
    path = scratch / "log4j2.properties"
    path.write_text(
        "rootLogger.level = error\nrootLogger.appenderRef.stderr.ref = console\n"
        "appender.console.type = Console\nappender.console.name = console\n"
        "appender.console.target = SYSTEM_ERR\n"
        "appender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex\n"
    )
    return path.as_uri()


def flights(spark: SparkSession, job: Job) -> DataFrame:
    """The stream of flights with names of airline and destination."""
    from pyspark.sql import functions as F

    airlines = spark.createDataFrame(
        read_table(job.data, "airlines", ("carrier", "name")), "carrier string, airline string"
    )
    airports = spark.createDataFrame(
        read_table(job.data, "airports", ("faa", "name")), "dest string, dest_name string"
    )
    source = (
        spark.readStream.format("rocketmq")
        .option("nameServer", job.namesrv)
        .option("subscribe", job.flights_topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", BATCH_ROWS_MAX)
        .load()
    )
    event = F.from_json(F.col("body").cast("string"), EVENT_SCHEMA).alias("event")
    queue = F.concat_ws("/", "broker", "queue_id").alias("queue")
    return (
        source.select(event, queue, "queue_offset", "store_timestamp")
        .select("event.*", "queue", "queue_offset", "store_timestamp")
        .join(F.broadcast(airlines), "carrier", "left")
        .join(F.broadcast(airports), "dest", "left")
    )


def grouped(batch: DataFrame) -> list[Any]:
    """One row for each origin, destination, airline and hour, as `totals.Group` wants it."""
    from pyspark.sql import functions as F

    names = (
        F.coalesce("dest_name", F.lit("")).alias("dest_name"),
        F.coalesce("airline", "carrier").alias("airline"),
    )
    return (
        batch.groupBy("origin", "dest", *names, "hour")
        .agg(F.count("*"), F.count("dep_delay"), F.coalesce(F.sum("dep_delay"), F.lit(0)))
        .collect()
    )


def start(spark: SparkSession, job: Job, progress: Progress) -> StreamingQuery:
    """Start the stream; `progress` moves with every batch that is done."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            batch.write.mode("overwrite").parquet(str(job.parquet / f"batch={batch_id:08d}"))
            found = groups(grouped(batch))
            with progress.lock:
                progress.totals.replace(batch_id, found)
                progress.processed = progress.totals.flights
                summaries = progress.totals.summaries(batch_id) if found else []
            if summaries:
                send_summaries(spark, job, summaries)
                with progress.lock:
                    progress.summaries += len(summaries)
        finally:
            batch.unpersist()

    return (
        flights(spark, job)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(job.checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )


def send_summaries(spark: SparkSession, job: Job, summaries: list[tuple[str, str]]) -> None:
    """Send the running totals back to a topic; the origin is the tag."""
    (
        spark.createDataFrame(summaries, "tags string, body string")
        .coalesce(1)
        .write.format("rocketmq")
        .option("nameServer", job.namesrv)
        .option("topic", job.summary_topic)
        .mode("append")
        .save()
    )
