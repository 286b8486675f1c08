"""A stream of one topic to Parquet, every message once, for `spark-submit` on any cluster.

    spark-submit … stream_to_parquet.py NAMESERVER TOPIC DIRECTORY CHECKPOINT [--once]

Each micro-batch is a directory of its own; one that Spark runs again, after a driver was killed, overwrites
its own. `--once` ends with what is there now.
"""

from __future__ import annotations

import argparse

from pyspark.sql import DataFrame, SparkSession


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description="A stream of one topic to Parquet.")
    for name in ("nameserver", "topic", "directory", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("--once", action="store_true", help="end with what is there now")
    parser.add_argument("--every", default="10 seconds", help="how often a batch begins")
    return parser.parse_args()


def main() -> None:
    """Run the stream until it is stopped."""
    asked = arguments()
    spark = SparkSession.builder.appName(f"{asked.topic} to Parquet").getOrCreate()
    rows = (
        spark.readStream.format("rocketmq")
        .option("nameServer", asked.nameserver)
        .option("subscribe", asked.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load()
    )

    def write(batch: DataFrame, batch_id: int) -> None:
        batch.write.mode("overwrite").parquet(f"{asked.directory}/batch={batch_id:08d}")

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", asked.checkpoint)
    once = {"availableNow": True} if asked.once else {"processingTime": asked.every}
    writer.trigger(**once).start().awaitTermination()


if __name__ == "__main__":
    main()
