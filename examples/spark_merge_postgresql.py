"""Every message once in PostgreSQL: micro-batches by JDBC into a staging table, from there in one statement.

    python examples/spark_merge_postgresql.py 127.0.0.1:9876 postgresql://shop@127.0.0.1:5432/shop checkpoint

Needs `pip install 'psycopg[binary]'`; Spark fetches the JDBC driver. A message is named by topic, broker,
queue and offset. A batch that Spark runs again, because the program was killed before Spark noted that it was
done, finds its rows there and adds none. Started again, the program goes on at its checkpoint.
"""

from __future__ import annotations

import sys
from urllib.parse import urlsplit

import psycopg
from pyspark.sql import DataFrame, SparkSession
from shop import TOPIC, send

from sparrowmq.spark.sessions import builder

DRIVER = "org.postgresql:postgresql:42.7.14"
KEY = "topic, broker, queue_id, queue_offset"
CREATE = f"""
    CREATE TABLE IF NOT EXISTS orders (
        topic text, broker text, queue_id int, queue_offset bigint, stored timestamptz, body text,
        PRIMARY KEY ({KEY})
    )
"""
MERGE = "INSERT INTO orders SELECT * FROM orders_stage ON CONFLICT DO NOTHING"


class Orders:
    """The table, as a `foreachBatch` function."""

    def __init__(self, url: str) -> None:
        self.url = url
        place = urlsplit(url)
        self.jdbc = f"jdbc:postgresql://{place.hostname}:{place.port or 5432}{place.path}"
        self.properties = {
            "driver": "org.postgresql.Driver",
            "user": place.username or "",
            "password": place.password or "",
        }
        with psycopg.connect(url) as connection:
            connection.execute(CREATE)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Merge one batch. Tasks write the staging table in parallel; an earlier attempt left nothing."""
        batch.write.jdbc(self.jdbc, "orders_stage", mode="overwrite", properties=self.properties)
        with psycopg.connect(self.url) as connection:  # one transaction: all of it, or nothing
            connection.execute(MERGE)

    def count(self) -> int:
        """Return the number of rows in the table."""
        with psycopg.connect(self.url) as connection:
            found = connection.execute("SELECT count(*) FROM orders").fetchone()
            return found[0] if found else 0


def run(spark: SparkSession, namesrv: str, orders: Orders, checkpoint: str) -> None:
    """Merge all stored messages, in small batches, then end."""
    source = spark.readStream.format("rocketmq").option("nameServer", namesrv).option("subscribe", TOPIC)
    rows = (
        source.option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 200)
        .load()
        .selectExpr(*KEY.split(", "), "store_timestamp AS stored", "cast(body AS string) AS body")
    )
    query = (
        rows.writeStream.foreachBatch(orders)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def main(namesrv: str, url: str, checkpoint: str) -> None:
    """Send some orders, and merge all stored ones."""
    send(namesrv)
    orders = Orders(url)
    spark = builder("merge").config("spark.jars.packages", DRIVER).getOrCreate()
    run(spark, namesrv, orders, checkpoint)
    print(f"{orders.count()} orders")
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:4])
