"""Orders per tenth of a second, by event time: a watermark determines when a window is complete.

    python examples/spark_windows.py 127.0.0.1:9876

A window is emitted once, when the watermark has passed its end; later rows no longer count. `born_timestamp`
is the producers' clock. If you cannot trust their clocks, use `store_timestamp`, the broker's clock.
"""

from __future__ import annotations

import sys
import tempfile
import time

from pyspark.sql import functions as F

import sparrowmq as mq
from sparrowmq.spark.sessions import builder

TOPIC = "ExampleWindows"
ORDERS = 60


def main(namesrv: str) -> None:
    """Send orders and, later, a single one that closes their windows; count the orders per window."""
    with mq.Admin(namesrv) as admin:
        admin.topics.create(TOPIC, queues=2)
    with mq.Producer("example-shop", namesrv=namesrv) as producer:
        for number in range(ORDERS):
            producer.send(mq.Message(TOPIC, b"%d" % number, tags="created" if number % 3 else "paid"))
        time.sleep(0.3)
        producer.send(mq.Message(TOPIC, b"much later"))

    spark = builder("windows").getOrCreate()
    orders = spark.readStream.format("rocketmq").option("nameServer", namesrv).option("subscribe", TOPIC)
    windows = (
        orders.option("startingOffsets", "earliest")
        .schema("tags string, born_timestamp timestamp")
        .load()
        .withWatermark("born_timestamp", "0 seconds")
        .groupBy(F.window("born_timestamp", "100 milliseconds"), "tags")
        .count()
    )
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            windows.writeStream.format("memory")
            .queryName("example_windows")
            .outputMode("append")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.table("example_windows").orderBy("window").show(5, truncate=False)
    totals = spark.table("example_windows").groupBy("tags").sum("count").collect()
    print("in complete windows:", {row[0]: row[1] for row in sorted(totals)})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
