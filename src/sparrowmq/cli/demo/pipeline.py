"""The Spark job: flights from a topic, joined with airlines and airports, to Parquet and to summaries.

Each micro-batch overwrites its own directory, named after the batch's id, so a batch that Spark runs again
replaces its earlier output: every flight is in Parquet exactly once (spark:E-04).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.cli.demo.flights import read_table
from sparrowmq.cli.demo.totals import FlightTotals, groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from sparrowmq.cli.demo.traffic import TrafficPlan
    from sparrowmq.cli.demo.workplace import Workplace

EVENT_SCHEMA: Final = (
    "row int, scheduled string, departed string, dep_delay int, arr_delay int, carrier string, flight int, "
    "tailnum string, origin string, dest string, air_time int, distance int, hour int"
)
PACKAGE_ZIP: Final = "sparrowmq.zip"
BATCH_ROWS_MAX: Final = 60_000
"""Maximum flights of one micro-batch: enough to make the fixed cost of a batch negligible."""


@dataclass(slots=True)
class StreamProgress:
    """The progress of the stream; written by Spark's callback thread, read by the screen."""

    totals: FlightTotals = field(default_factory=FlightTotals)
    processed: int = 0
    summaries: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@dataclass(frozen=True, slots=True)
class DemoJob:
    """What the job reads and writes, and where."""

    plan: TrafficPlan
    place: Workplace
    master: str = "local[2]"


def builder(job: DemoJob) -> SparkSession.Builder:
    """Of a quiet session: local files go to the scratch directory; a cluster's workers get this package."""
    from sparrowmq.spark import sessions
    from sparrowmq.spark.interpreter import is_local
    from sparrowmq.spark.shipping import package_zip

    scratch = job.place.scratch
    scratch.mkdir(parents=True, exist_ok=True)
    made = sessions.builder("sparrow demo", job.master)
    made = made.config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
    if not is_local(job.master):
        return made.config("spark.submit.pyFiles", str(package_zip(scratch / PACKAGE_ZIP)))
    made = made.config("spark.local.dir", str(scratch))
    return made.config("spark.python.unix.domain.socket.dir", str(job.place.sockets))


def session(job: DemoJob) -> SparkSession:
    """Start Spark; what its JVM and its workers say goes to the log."""
    from sparrowmq.spark.sessions import standard_error_to

    made = builder(job)
    with standard_error_to(job.place.spark_log):
        return made.getOrCreate()


def flights(spark: SparkSession, job: DemoJob) -> DataFrame:
    """The stream of flights with names of airline and destination."""
    from pyspark.sql import functions as F

    airlines = spark.createDataFrame(
        read_table(job.plan.data, "airlines", ("carrier", "name")), "carrier string, airline string"
    )
    airports = spark.createDataFrame(
        read_table(job.plan.data, "airports", ("faa", "name")), "dest string, dest_name string"
    )
    source = (
        spark.readStream.format("rocketmq")
        .option("nameServer", job.plan.namesrv)
        .option("subscribe", job.plan.flights_topic)
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
    """One row for each origin, destination, airline and hour, as required by `totals.Group`."""
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


def start(spark: SparkSession, job: DemoJob, progress: StreamProgress) -> StreamingQuery:
    """Start the stream; every finished batch updates `progress`."""

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.persist()
        try:
            batch.write.mode("overwrite").parquet(str(job.place.parquet / f"batch={batch_id:08d}"))
            found = groups(grouped(batch))
            with progress.lock:
                progress.totals.replace(batch_id, found)
                summaries = progress.totals.summaries(batch_id) if found else []
            if summaries:
                send_summaries(spark, job, summaries)
            with progress.lock:
                progress.summaries += len(summaries)
                progress.processed = progress.totals.flights
        finally:
            batch.unpersist()

    return (
        flights(spark, job)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(job.place.checkpoint))
        .trigger(processingTime="0 seconds")
        .start()
    )


def send_summaries(spark: SparkSession, job: DemoJob, summaries: list[tuple[str, str]]) -> None:
    """Send the running totals back to a topic; the origin is the tag."""
    (
        spark.createDataFrame(summaries, "tags string, body string")
        .coalesce(1)
        .write.format("rocketmq")
        .option("nameServer", job.plan.namesrv)
        .option("topic", job.plan.summary_topic)
        .mode("append")
        .save()
    )
