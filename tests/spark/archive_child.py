"""Has a JVM load what most sessions need, and waits for its end: then it has written the archive."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from sparrowmq.spark.sessions import builder


class Some(DataSource):
    """A source of one row."""

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return SomeReader()


class SomeReader(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)


def work(spark: SparkSession, root: Path) -> None:
    """A source in Python, a shuffle, files, and a stream with a checkpoint."""
    spark.dataSource.register(Some)
    rows = spark.range(100).unionByName(spark.read.format("Some").load()).repartition(2, "id")
    rows.mapInArrow(lambda batches: batches, "id bigint").write.parquet(f"{root}/rows")
    spark.read.parquet(f"{root}/rows").selectExpr("count(*)", "max(id)").collect()
    stream = spark.readStream.schema("id bigint").parquet(f"{root}/rows").writeStream
    stream = stream.option("checkpointLocation", f"{root}/checkpoint").trigger(availableNow=True)
    query = stream.foreachBatch(lambda batch, number: batch.write.parquet(f"{root}/copy/{number}")).start()
    query.awaitTermination()


def main() -> None:
    """Run it and end the JVM."""
    spark = builder("archive").getOrCreate()
    gateway: Any = spark.sparkContext._gateway
    with tempfile.TemporaryDirectory() as root:
        work(spark, Path(root))
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    main()
