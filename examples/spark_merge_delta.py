"""Every message once in a Delta table: each micro-batch is merged by topic, broker, queue and offset.

    python examples/spark_merge_delta.py 127.0.0.1:9876 /data/orders checkpoint

Runs with Spark 4.2, the newest that a release of Delta Lake fits; Spark fetches it. A batch that Spark runs
again, because the program was killed before Spark noted that it was done, finds its rows there and adds none.
Started again, the program goes on at its checkpoint.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from shop import TOPIC, send

from sparrowmq.spark.sessions import builder

DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"
KEY = ("topic", "broker", "queue_id", "queue_offset")
COLUMNS = "topic string, broker string, queue_id int, queue_offset bigint, day date, body string"
MERGE = """
    MERGE INTO delta.`{path}` AS old USING new_orders AS new
    ON old.day = new.day AND old.topic = new.topic AND old.broker = new.broker
        AND old.queue_id = new.queue_id AND old.queue_offset = new.queue_offset
    WHEN NOT MATCHED THEN INSERT *
"""
"""A message's day never changes, so comparing it first skips the files of other days."""


class Orders:
    """The table at a path, as a `foreachBatch` function."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.path = path
        spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{path}` ({COLUMNS}) USING delta PARTITIONED BY (day)")

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Merge one batch: one commit of the table, or none."""
        batch.createOrReplaceTempView("new_orders")
        batch.sparkSession.sql(MERGE.format(path=self.path))

    def rows(self) -> DataFrame:
        """Return the current table."""
        return self.spark.read.format("delta").load(self.path)


def run(spark: SparkSession, namesrv: str, orders: Orders, checkpoint: str) -> None:
    """Merge all stored messages, in small batches, then end."""
    source = spark.readStream.format("rocketmq").option("nameServer", namesrv).option("subscribe", TOPIC)
    rows = (
        source.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 400)
        .load()
        .selectExpr(*KEY, "to_date(store_timestamp) AS day", "cast(body AS string) AS body")
    )
    query = (
        rows.writeStream.foreachBatch(orders)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(namesrv: str, path: str, checkpoint: str) -> None:
    """Send some orders, and merge all stored ones."""
    send(namesrv)
    spark = (
        builder("merge")
        .config("spark.jars.packages", DELTA)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", "2")  # 50 are for tables of many files
        .getOrCreate()
    )
    orders = Orders(spark, path)
    run(spark, namesrv, orders, checkpoint)
    rows = orders.rows()
    print(f"{rows.count()} orders, at {rows.select(*KEY).distinct().count()} places")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
