"""Snapshots of consumer groups: their position in each queue, stored as Parquet for the daily report.

Brokers only know the current position of a group. A snapshot is a small file, taken without Spark, so a job
can take one every few minutes. The resolution of the day's progress is that of its snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as parquet

from sparrowmq.core.errors import NoRouteError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import dlq_topic, retry_topic
from sparrowmq.spark.pipelines.common import directories, reading
from sparrowmq.spark.pipelines.common.source import between
from sparrowmq.spark.pipelines.report.settings import Day, ReportSettings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sparrowmq import Admin, QueueProgress

SNAPSHOTS: Final = "snapshots"
SCHEMA: Final = pa.schema(
    [
        ("at", pa.int64()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queue_id", pa.int32()),
        ("committed", pa.int64()),
        ("end_offset", pa.int64()),
        ("waits_since", pa.int64()),
    ]
)
"""`at` and `waits_since` (when the oldest waiting message was stored, null without any) are epoch ms."""
DDL: Final = (
    "at bigint, `group` string, topic string, broker string, queue_id int, committed bigint, "
    "end_offset bigint, waits_since bigint"
)


def take_snapshot(settings: ReportSettings, now: float) -> Path:
    """Write a snapshot of the groups. Returns the file. Queries the cluster, starts no Spark."""
    with reading.admin(settings.stored.source_options) as admin:
        found = [
            (group, place)
            for topic in settings.topics
            for group in groups_of(settings, admin, topic)
            for place in admin.groups.progress(group, topic)
            if place.queue.topic == topic
        ]
    since = _waiting_since(settings, [place for _, place in found])
    at = int(now * 1000)
    rows = [
        {
            "at": at,
            "group": group,
            "topic": place.queue.topic,
            "broker": place.queue.broker_name,
            "queue_id": place.queue.queue_id,
            "committed": place.consumer_offset,
            "end_offset": place.broker_offset,
            "waits_since": since.get((place.queue, place.consumer_offset)) if place.lag > 0 else None,
        }
        for group, place in found
    ]
    where = (
        directories.directory(settings.directory, "report") / SNAPSHOTS / f"date={Day.of(now, settings.zone)}"
    )
    where.mkdir(parents=True, exist_ok=True)
    staged, final = where / f"_{at}.new", where / f"{at}.parquet"
    parquet.write_table(pa.Table.from_pylist(rows, SCHEMA), staged)
    staged.rename(final)
    return final


def groups_of(settings: ReportSettings, admin: Admin, topic: str) -> list[str]:
    """The groups of the report that have offsets or members in a topic."""
    found = admin.topics.groups(topic)
    return [group for group in found if not settings.groups or group in settings.groups]


def _waiting_since(
    settings: ReportSettings, places: Iterable[QueueProgress]
) -> dict[tuple[MessageQueue, int], int]:
    """Store time of the message at each lagging offset; several groups may lag in one queue."""
    found: dict[tuple[MessageQueue, int], int] = {}
    wanted: dict[MessageQueue, set[int]] = {}
    for place in places:
        if place.lag > 0:
            wanted.setdefault(place.queue, set()).add(place.consumer_offset)
    while wanted:  # each round handles one offset of each queue
        asked = {queue: offsets.pop() for queue, offsets in wanted.items()}
        times = reading.store_times(settings.stored.source_options, asked)
        found.update({(queue, asked[queue]): at for queue, at in times.items()})
        wanted = {queue: offsets for queue, offsets in wanted.items() if offsets}
    return found


def read_snapshots(spark: SparkSession, directory: str | Path, days: Sequence[Day]) -> DataFrame:
    """The snapshots of some days."""
    root = directories.directory(directory, "report") / SNAPSHOTS
    paths = [str(path) for day in days if (path := root / f"date={day}").is_dir()]
    if not paths:
        return spark.createDataFrame([], DDL)
    return spark.read.schema(DDL).parquet(*paths)


def progress(snapshots: DataFrame, day: Day) -> DataFrame:
    """A row for each snapshot of the day, group and topic: lag in messages and seconds."""
    from pyspark.sql import functions as F

    at = F.col("at")
    return (
        snapshots.where((at >= day.start) & (at < day.end))
        .groupBy("group", "topic", "at")
        .agg(*_sums())
        .withColumn("at", F.timestamp_millis("at"))
    )


def closing(snapshots: DataFrame, day: Day) -> DataFrame:
    """A row for each group and topic: its lag at the end of the day, and the messages it consumed that day.

    The lag is from the last snapshot of the day, or else from the first one after it. Consumed is the
    difference between the day's first and last snapshot, null with fewer than two.
    """
    from pyspark.sql import functions as F

    at = F.col("at")
    inside = (at >= day.start) & (at < day.end)
    sums = snapshots.where(at >= day.start).groupBy("group", "topic", "at").agg(*_sums())
    state = F.struct(*sums.columns)
    last = F.max(F.when(inside, state))
    first = F.min(F.when(inside, state))
    grouped = sums.groupBy("group", "topic").agg(
        F.coalesce(last, F.min(state)).alias("state"),
        (F.when(F.count_if(inside) > 1, last["committed"] - first["committed"])).alias("consumed"),
    )
    return grouped.select(
        "group",
        "topic",
        F.timestamp_millis("state.at").alias("as_of"),
        F.col("state.lag_messages").alias("lag_messages"),
        F.col("state.lag_seconds").alias("lag_seconds"),
        F.col("state.committed").alias("committed"),
        F.col("state.end_offset").alias("end_offset"),
        "consumed",
    )


def _sums() -> list[Column]:
    from pyspark.sql import functions as F

    age = (F.col("at") - F.min("waits_since")) / 1000
    return [
        F.sum(F.greatest(F.col("end_offset") - F.col("committed"), F.lit(0))).alias("lag_messages"),
        F.greatest(F.coalesce(age, F.lit(0.0)), F.lit(0.0)).alias("lag_seconds"),
        F.sum("committed").alias("committed"),
        F.sum("end_offset").alias("end_offset"),
    ]


def returned(options: Mapping[str, str], groups: Iterable[str], day: Day) -> dict[str, tuple[int, int]]:
    """How many messages of each group were stored for retry and as dead letters that day."""
    return {
        group: (
            _count(options, retry_topic(group), day),
            _count(options, dlq_topic(group), day),
        )
        for group in groups
    }


def _count(options: Mapping[str, str], topic: str, day: Day) -> int:
    try:
        return sum(map(len, reading.spans_of(between({**options, "subscribe": topic}, day.start, day.end))))
    except NoRouteError:
        return 0
