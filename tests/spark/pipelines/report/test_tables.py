"""A day's tables, of rows that are made by hand."""

from __future__ import annotations

from datetime import date
from typing import Any

from pyspark.sql import SparkSession

from sparrowmq.spark.pipelines.report.report import ORDER
from sparrowmq.spark.pipelines.report.settings import HOUR_MS, Day
from sparrowmq.spark.pipelines.report.tables import tables

DDL = (
    "topic string, broker string, queue_id int, queue_offset bigint, tags string, keys string, at bigint, "
    "born bigint, size bigint, stored_size bigint, host string"
)
DAY = Day(date(2026, 10, 25), "Europe/Berlin")


def row(hours: float, size: int | None, **more: Any) -> tuple[Any, ...]:
    at = int(DAY.start + hours * HOUR_MS)
    values = {
        "topic": "T",
        "broker": "b",
        "queue_id": 0,
        "queue_offset": 7,
        "tags": None,
        "keys": None,
        "at": at,
        "born": at,
        "size": size,
        "stored_size": None,
        "host": None,
        **more,
    }
    return tuple(values.values())


def test_a_long_day_with_odd_messages(spark: SparkSession) -> None:
    found = spark.createDataFrame(
        [
            row(0, 0, keys="a a b"),
            row(24.9, 1, keys=" "),
            row(24.99, 2, born=DAY.start - 1),
            row(3, 3, queue_id=1, keys="a"),
            row(3, 4, broker="c"),
            row(3, 5),
            row(3, 1024),
            row(3, 1025),
            row(1, None, topic="U"),
        ],
        DDL,
    )
    made = {
        name: [row.asDict() for row in frame.sort(*ORDER[name]).collect()]
        for name, frame in tables(found, DAY, top=1).items()
    }
    assert DAY.hours == 25
    assert [(one["hour"], one["messages"]) for one in made["hours"]] == [(0, 1), (3, 5), (24, 2), (1, 1)]
    sizes = {one["size_to"]: one["messages"] for one in made["sizes"] if one["topic"] == "T"}
    assert sizes == {0: 1, 1: 1, 2: 1, 4: 2, 8: 1, 1024: 1, 2048: 1}
    first, second = made["topics"]
    assert (first["queues"], first["queue_skew"], first["born_earlier"]) == (3, 2.25, 1)
    assert (first["distinct_keys"], first["without_key"], first["top_key_share"]) == (2, 6, 0.25)
    assert (first["size_p50"], first["size_max"], first["stored_bytes"]) == (3, 1025, None)
    assert (second["bytes"], second["size_p50"], second["distinct_keys"], second["top_key_share"]) == (
        None, None, 0, 0.0,
    )  # fmt: skip
    (key,) = made["keys"]
    assert (key["key"], key["messages"], key["rank"]) == ("a", 2, 1)
    assert abs(key["share"] - 2 / 3) < 1e-9
    assert [one["host"] for one in made["producers"]] == [None, None]
