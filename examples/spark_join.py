"""Orders and their payments, from two topics, joined as they arrive: a stream-stream join.

    python examples/spark_join.py 127.0.0.1:9876

A payment may come an hour after its order. The condition on both times says so, and with the watermarks it
lets Spark drop orders that can no longer be paid; without it, Spark would keep all of them forever.
"""

from __future__ import annotations

import sys
import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparrowmq as mq
from sparrowmq.spark.sessions import builder

ORDERS, PAYMENTS = "ExampleJoinOrders", "ExampleJoinPayments"
PAID = {"order-1": 30, "order-3": 8}


def stream(spark: SparkSession, namesrv: str, topic: str, body: str) -> DataFrame:
    """Read a topic's keys, times and bodies; columns are named after the topic's content."""
    source = spark.readStream.format("rocketmq").option("nameServer", namesrv).option("subscribe", topic)
    frame = source.option("startingOffsets", "earliest").load()
    return frame.select(
        F.col("keys").alias(f"{body}_key"),
        F.col("born_timestamp").alias(f"{body}_time"),
        F.col("body").cast("string").alias(body),
    ).withWatermark(f"{body}_time", "10 minutes")


def main(namesrv: str) -> None:
    """Send three orders and two payments, join them."""
    with mq.Admin(namesrv) as admin:
        for topic in (ORDERS, PAYMENTS):
            admin.topics.create(topic, queues=2)
    with mq.Producer("example-shop", namesrv=namesrv) as producer:
        for number in (1, 2, 3):
            producer.send(mq.Message(ORDERS, b"book %d" % number, keys=f"order-{number}"))
        for key, amount in PAID.items():
            producer.send(mq.Message(PAYMENTS, b"%d" % amount, keys=key))

    spark = builder("join").getOrCreate()
    orders = stream(spark, namesrv, ORDERS, "item")
    payments = stream(spark, namesrv, PAYMENTS, "amount")
    in_time = F.expr("amount_time BETWEEN item_time AND item_time + INTERVAL 1 HOUR")
    paid = orders.join(payments, (F.col("item_key") == F.col("amount_key")) & in_time)
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            paid.select("item_key", "item", "amount")
            .writeStream.format("memory")
            .queryName("example_join")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    for row in sorted(spark.table("example_join").collect()):
        print(f"{row.item_key}: {row.item} was paid with {row.amount}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
