"""Spark reads a store directory in parallel, Apache's and ours."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from tests.protocol.archives import CLEAN_5, ledger, unpacked
from tests.spark.support import Topics, bodies, load, numbered

from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.store_reader import FilesPartition, StoreReader

STORE = str(unpacked(CLEAN_5))


@pytest.mark.parametrize(("most", "sizes"), [(None, [1, 1, 1]), ("2", [1, 2]), ("1", [3]), ("9", [1, 1, 1])])
def test_tasks_are_files(most: str | None, sizes: list[int]) -> None:
    options = {"store": STORE, **({"maxPartitions": most} if most else {})}
    reader = StoreReader(ReadOptions.parse(options, "batch", {}), StructType())
    partitions = reader.partitions()
    assert all(isinstance(partition, FilesPartition) for partition in partitions)
    assert [len(partition.files) for partition in partitions] == sizes  # type: ignore[attr-defined]


def test_no_file_no_task() -> None:
    options = ReadOptions.parse({"store": STORE, "endingTimestamp": "0"}, "batch", {})
    reader = StoreReader(options, StructType())
    assert reader.partitions() == []
    assert list(reader.read(None)) == []


def test_a_store_of_apache_s_as_a_table(spark: SparkSession) -> None:
    frame = load(spark, {"store": STORE})
    found = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    assert sum(found.values()) == 3626
    seen = [line for line in ledger(CLEAN_5, "seen") if line["topic"] == "FxPlainB"]
    assert found["FxPlainB"] == len(seen)
    one = frame.where("topic = 'FxPlainB'").selectExpr("sum(length(body))", "count(distinct msg_id)").first()
    assert one is not None
    assert one[0] == sum(line["bodyLen"] for line in seen)
    assert one[1] == len({line["msgId"] for line in seen})


def test_a_store_of_ours_while_its_broker_runs(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 50)
    options = {"store": str(topics.cluster.data), "subscribe": topic}
    frame = load(spark, options, "body binary, queue_offset bigint")
    assert bodies(frame) == numbered(0, 50)
