"""The source in SQL: views keep their options, tables are given them in the query (spark:B-11, B-12)."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.spark.support import Topics, bodies, numbered


def test_a_view_is_read_and_written(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 10)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW orders (tags string, body binary) USING rocketmq "
        f"OPTIONS (nameServer '{topics.cluster.namesrv}', subscribe '{topic}', topic '{topic}', "
        "sql92 'n >= 4 OR n IS NULL')"
    )
    assert bodies(spark.table("orders")) == numbered(4, 10)
    spark.sql("INSERT INTO orders SELECT 'late', cast('m99' AS binary)")
    spark.catalog.dropTempView("orders")
    assert bodies(spark.read.format("rocketmq").options(**topics.options(topic)).load())[-1] == "m99"


def test_a_table_takes_its_options_in_the_query(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 10)
    name = f"t_{topic}".lower()
    options = f"nameServer = '{topics.cluster.namesrv}', subscribe = '{topic}'"
    fields = "queue_id int, queue_offset bigint, body binary"
    spark.sql(f"CREATE TABLE {name} ({fields}) USING rocketmq")
    try:
        assert bodies(spark.sql(f"SELECT * FROM {name} WITH ({options})")) == numbered(0, 10)
        with pytest.raises(PySparkException, match=r"give them in the query \(SELECT … FROM t WITH \(…\)\)"):
            spark.sql(f"SELECT * FROM {name}").collect()
    finally:
        spark.sql(f"DROP TABLE {name}")
