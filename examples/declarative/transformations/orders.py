"""Topic Orders as streaming tables, and large orders back to a topic."""

from __future__ import annotations

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

NAMESRV = os.environ.get("SPARROW_NAMESRV", "127.0.0.1:9876")
ORDER = "id bigint, region string, amount double"
LARGE = 1000

spark = SparkSession.active()


@dp.table(comment="Every message of topic Orders, once", partition_cols=["date"])
def messages() -> DataFrame:
    """A streaming table: each message of the topic."""
    orders = spark.readStream.format("rocketmq").option("nameServer", NAMESRV).option("subscribe", "Orders")
    orders = orders.option("startingOffsets", "earliest").option("includeProperties", "false")
    return orders.load().withColumn("date", F.to_date("store_timestamp"))


@dp.table(comment="Bodies that are orders")
def orders() -> DataFrame:
    """A streaming table: the messages that hold an order."""
    body = F.from_json(F.col("body").cast("string"), ORDER)
    read = spark.readStream.table("messages").select("msg_id", "store_timestamp", body.alias("order"))
    return read.where("order.id IS NOT NULL").select("msg_id", "store_timestamp", "order.*")


dp.create_sink("large_orders", "rocketmq", {"nameServer": NAMESRV, "topic": "LargeOrders"})


@dp.append_flow(target="large_orders")
def send_large_orders() -> DataFrame:
    """What goes into the topic of large orders."""
    large = spark.readStream.table("orders").where(F.col("amount") >= LARGE)
    return large.select(
        F.to_json(F.struct("id", "region", "amount")).alias("body"),
        F.lit("large").alias("tags"),
        F.col("id").cast("string").alias("keys"),
    )
