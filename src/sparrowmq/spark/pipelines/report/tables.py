"""A day's tables about topics: totals, sizes, hours, and the distribution over queues, keys and producers.

Every figure depends only on the stored messages (exact percentiles and counts, sorted rows), so repeating the
report for a day gives the same result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sparrowmq.spark.bodies.schema import SOURCE_COLUMNS
from sparrowmq.spark.pipelines.query.stored import Stored, optional_columns, read
from sparrowmq.spark.pipelines.query.trace_records import keys_of
from sparrowmq.spark.pipelines.report.settings import HOUR_MS, Day

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PLACE: Final = ("topic", "broker", "queue_id", "queue_offset", "store_timestamp")
OPTIONAL: Final = ("tags", "keys", "born_timestamp", "body", "store_size", "born_host")
"""Columns that an archive may lack; figures that need them are null then."""
PERCENTILES: Final = (("size_p50", 0.5), ("size_p95", 0.95), ("size_p99", 0.99))
ORDER: Final = {
    "topics": ("topic",),
    "hours": ("topic", "hour"),
    "sizes": ("topic", "size_to"),
    "queues": ("topic", "broker", "queue_id"),
    "keys": ("topic", "rank"),
    "tags": ("topic", "rank"),
    "producers": ("topic", "rank"),
}
"""The tables and their sort columns."""


def messages(spark: SparkSession, where: Stored, day: Day) -> DataFrame:
    """The messages stored that day: a row for each, with the body's length instead of the body."""
    from pyspark.sql import functions as F

    kept = optional_columns(where, OPTIONAL)
    frame = read(spark, where, (*PLACE, *kept), day.start, day.end)
    for name in OPTIONAL:
        if name not in kept:
            frame = frame.withColumn(name, F.lit(None).cast(SOURCE_COLUMNS[name]))
    host = F.regexp_replace("born_host", r":\d+$", "")
    return frame.select(
        "topic",
        "broker",
        "queue_id",
        "queue_offset",
        "tags",
        "keys",
        F.unix_millis("store_timestamp").alias("at"),
        F.unix_millis("born_timestamp").alias("born"),
        F.length("body").cast("bigint").alias("size"),
        F.col("store_size").cast("bigint").alias("stored_size"),
        host.alias("host"),
    )


def tables(found: DataFrame, day: Day, top: int) -> dict[str, DataFrame]:
    """The tables by name; `found` is the result of `messages`."""
    from pyspark.sql import functions as F

    counts = (F.count("*").alias("messages"), F.sum("size").alias("bytes"))
    hour = F.floor((F.col("at") - day.start) / HOUR_MS).cast("int")
    bucket = F.when(F.col("size") <= 1, F.col("size")).otherwise(
        F.pow(F.lit(2), F.ceil(F.log2("size"))).cast("bigint")
    )
    queues = found.groupBy("topic", "broker", "queue_id").agg(
        *counts, F.min("queue_offset").alias("first_offset"), F.max("queue_offset").alias("last_offset")
    )
    keyed = found.select("topic", "size", F.explode(keys_of(F.col("keys"))).alias("key"))
    keys = keyed.groupBy("topic", "key").agg(*counts)
    return {
        "topics": _topics(found, queues, keys, day),
        "hours": found.withColumn("hour", hour).groupBy("topic", "hour").agg(*counts),
        "sizes": found.withColumn("size_to", bucket).groupBy("topic", "size_to").agg(*counts),
        "queues": _shared(queues),
        "keys": _most(keys, "key", top),
        "tags": _most(
            found.groupBy("topic", "tags").agg(*counts).withColumnRenamed("tags", "tag"), "tag", top
        ),
        "producers": _most(found.groupBy("topic", "host").agg(*counts), "host", top),
    }


def _topics(found: DataFrame, queues: DataFrame, keys: DataFrame, day: Day) -> DataFrame:
    from pyspark.sql import functions as F

    exact = [
        F.expr(f"percentile_disc({share}) within group (order by size)").alias(name)
        for name, share in PERCENTILES
    ]
    base = found.groupBy("topic").agg(
        F.count("*").alias("messages"),
        F.sum("size").alias("bytes"),
        F.sum("stored_size").alias("stored_bytes"),
        *exact,
        F.max("size").alias("size_max"),
        F.timestamp_millis(F.min("at")).alias("first_at"),
        F.timestamp_millis(F.max("at")).alias("last_at"),
        F.count_if(F.col("born") < day.start).alias("born_earlier"),
        F.count_if(F.size(keys_of(F.col("keys"))) == 0).alias("without_key"),
    )
    spread = queues.groupBy("topic").agg(
        F.count("*").alias("queues"),
        (F.max("messages") / F.avg("messages")).alias("queue_skew"),
    )
    named = keys.groupBy("topic").agg(
        F.count("*").alias("distinct_keys"), F.max("messages").alias("top_key_messages")
    )
    share = F.col("top_key_messages") / F.col("messages")
    return (
        base.join(spread, "topic")
        .join(named, "topic", "left")
        .withColumn("distinct_keys", F.coalesce("distinct_keys", F.lit(0)))
        .withColumn("top_key_share", F.coalesce(share, F.lit(0.0)))
        .drop("top_key_messages")
    )


def _shared(counted: DataFrame) -> DataFrame:
    """With `share`, the share of the topic's messages."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    whole: Column = F.sum("messages").over(Window.partitionBy("topic"))
    return counted.withColumn("share", F.col("messages") / whole)


def _most(counted: DataFrame, name: str, top: int) -> DataFrame:
    """The `top` rows of each topic with the most messages, with their share of all and their rank."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy("topic").orderBy(F.desc("messages"), F.asc_nulls_last(name))
    ranked = _shared(counted).withColumn("rank", F.row_number().over(order))
    return ranked.where(F.col("rank") <= top)
