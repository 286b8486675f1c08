"""Every message once in an Iceberg table: each micro-batch is merged by topic, broker, queue and offset.

    python examples/spark_merge_iceberg.py 127.0.0.1:9876 /data/lake checkpoint

Runs with Spark 4.1, the newest that a release of Iceberg fits; Spark fetches it. A batch that Spark runs
again, because the program was killed before Spark noted that it was done, finds its rows there and adds none.
Started again, the program goes on at its checkpoint. Spark 4.1 makes one batch a run, after a kill the one
that was cut off: what came meanwhile is merged by the run after it.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession
from shop import TOPIC, send

from sparrowmq.spark.sessions import builder

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
PACKAGE = "org.apache.iceberg.spark"
TABLE = "lake.shop.orders"
KEY = ("topic", "broker", "queue_id", "queue_offset")
COLUMNS = "topic string, broker string, queue_id int, queue_offset bigint, day date, body string"
MERGE = """
    MERGE INTO {table} AS old USING new_orders AS new
    ON old.day = new.day AND old.topic = new.topic AND old.broker = new.broker
        AND old.queue_id = new.queue_id AND old.queue_offset = new.queue_offset
    WHEN NOT MATCHED THEN INSERT *
"""
"""A message's day never changes, so comparing it first skips the files of other days."""


class Orders:
    """The table, as a `foreachBatch` function."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        spark.sql(f"CREATE TABLE IF NOT EXISTS {TABLE} ({COLUMNS}) USING iceberg PARTITIONED BY (day)")

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Merge one batch: one commit of the table, or none."""
        batch.createOrReplaceTempView("new_orders")
        batch.sparkSession.sql(MERGE.format(table=TABLE))

    def rows(self) -> DataFrame:
        """Return the current table."""
        return self.spark.table(TABLE)


def run(spark: SparkSession, namesrv: str, orders: Orders, checkpoint: str) -> None:
    """Merge all stored messages, before Spark 4.2 in one batch, then end."""
    source = spark.readStream.format("rocketmq").option("nameServer", namesrv).option("subscribe", TOPIC)
    rows = (
        source.option("startingOffsets", "earliest")
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


def main(namesrv: str, warehouse: str, checkpoint: str) -> None:
    """Send some orders, and merge all stored ones."""
    send(namesrv)
    spark = (
        builder("merge")
        .config("spark.jars.packages", ICEBERG)
        .config("spark.sql.extensions", f"{PACKAGE}.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.lake", f"{PACKAGE}.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", warehouse)
        # A stream has a separate session: without this, ours would not see the merged rows.
        .config("spark.sql.catalog.lake.cache-enabled", "false")
        .getOrCreate()
    )
    orders = Orders(spark)
    run(spark, namesrv, orders, checkpoint)
    rows = orders.rows()
    print(f"{rows.count()} orders, at {rows.select(*KEY).distinct().count()} places")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
