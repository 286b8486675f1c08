"""What is found about messages, for every way their sides can look."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from sparrowmq.spark.pipelines.audit import comparison
from sparrowmq.spark.pipelines.audit.comparison import JudgedWindow

WINDOW = JudgedWindow(since=1000, until=2000, now=5000, margin=100, late=300)
STORED = (
    "topic string, id string, at bigint, broker string, queue_id int, queue_offset bigint, "
    "tags string, judged boolean"
)


def stored(spark: SparkSession, *rows: tuple[str, int] | tuple[str, int, bool]) -> DataFrame:
    """Messages by id, store time and whether they are judged (by default those of the window)."""
    made = [
        ("T", row[0], row[1], "b", 0, number, "x", row[2] if len(row) > 2 else 1000 <= row[1] < 2000)
        for number, row in enumerate(rows)
    ]
    return comparison.stored_by_id(spark.createDataFrame(made, STORED))


def kinds(found: DataFrame) -> dict[str, list[str]]:
    """The findings by id."""
    return {row["id"]: sorted(row["kinds"]) for row in found.collect()}


def test_sent_against_stored(spark: SparkSession) -> None:
    sent = spark.createDataFrame(
        [
            ("T", "well", 1500, True),
            ("T", "well", 1510, True),
            ("T", "lost", 1500, True),
            ("T", "lost too early", 999, True),
            ("T", "lost too late", 2000, True),
            ("T", "delayed", 1500, False),
            ("T", "twice", 1500, True),
            ("T", "slow", 1999, True),
            ("U", "elsewhere", 1500, True),
        ],
        "topic string, id string, sent_at bigint, certain boolean",
    )
    held = stored(
        spark,
        ("well", 1501),
        ("twice", 1501),
        ("twice", 2050),
        ("slow", 2010),
        ("stranger", 1600),
        ("strange and twice", 1600),
        ("strange and twice", 1600),
        ("early stranger", 950),
        ("elsewhere", 1500),
    )
    matched = comparison.sent_against_stored(sent, held, WINDOW)
    of_topic = {key: value for key, value in kinds(matched.where("topic = 'T'")).items() if value}
    assert of_topic == {
        "lost": ["lost"],
        "delayed": ["undecided"],
        "twice": ["stored_twice"],
        "stranger": ["unknown"],
        "strange and twice": ["stored_twice", "unknown"],
        "elsewhere": ["unknown"],
    }
    assert kinds(matched.where("topic = 'U'")) == {"elsewhere": ["lost"]}
    listed = {row["id"]: row for row in comparison.of_sends(matched).collect()}
    assert (listed["twice"]["count"], listed["twice"]["queue_offset"]) == (2, 1)
    assert listed["lost"]["stored_at"] is None
    assert listed["lost"]["sent_at"].timestamp() == 1.5
    assert tuple(listed["lost"].asDict()) == comparison.COLUMNS
    recent = JudgedWindow(since=1000, until=2000, now=1650, margin=100, late=300)
    assert kinds(comparison.sent_against_stored(sent, held, recent))["stranger"] == ["undecided"]
    doubles = comparison.sent_against_stored(None, held, WINDOW)
    assert {key for key, value in kinds(doubles).items() if value} == {"twice", "strange and twice"}


def test_stored_against_consumed(spark: SparkSession) -> None:
    calls: list[tuple[str, bool | None, int | None]] = [
        ("well", True, 1600),
        ("on time", True, 1800),
        ("late", True, 1801),
        ("twice", True, 1600),
        ("twice", True, 1700),
        ("retried", False, 1600),
        ("retried", True, 1700),
        ("begun and ended", None, 1600),
        ("begun and ended", True, 1700),
        ("failed", False, 1600),
        ("begun", None, 1600),
        ("dead", False, 1600),
        ("not stored", True, 1600),
        ("outside", True, 1600),
        ("bad all over", False, 1600),
        ("bad all over", True, 2600),
        ("bad all over", True, 2700),
    ]
    names = dict.fromkeys(name for name, _, _ in calls if name not in ("not stored", "outside"))
    held = stored(
        spark, *((name, 1500) for name in names), ("missed", 1500), ("dead untraced", 1500), ("outside", 2500)
    )
    consumed = spark.createDataFrame(calls, "id string, ok boolean, at bigint")
    dead = spark.createDataFrame([("dead",), ("dead untraced",), ("dead",)], "id string")
    found = comparison.stored_against_consumed(held, consumed, dead, WINDOW)
    assert {key: value for key, value in kinds(found).items() if value} == {
        "late": ["late"],
        "twice": ["consumed_twice"],
        "retried": ["retried"],
        "begun and ended": ["retried"],
        "failed": ["failed"],
        "begun": ["failed"],
        "dead": ["failed"],
        "dead untraced": ["failed"],
        "missed": ["missed"],
        "bad all over": ["consumed_twice", "late", "retried"],
    }
    done = {row["id"] for row in found.where("done").collect()}
    assert done == {"well", "on time", "late", "twice", "retried", "begun and ended", "bad all over"}
    from pyspark.sql import functions as F

    listed = comparison.of_group(found.withColumn("group", F.lit("g"))).collect()
    assert {row["group"] for row in listed} == {"g"} and tuple(listed[0].asDict()) == comparison.COLUMNS
    details = {row["id"]: row["detail"] for row in listed}
    assert (details["dead untraced"], details["begun"]) == ("dead letter", "its end is not recorded")
    assert details["failed"] is None
    soon = JudgedWindow(since=1000, until=2000, now=1700, margin=100, late=300)
    undecided = kinds(comparison.stored_against_consumed(held, consumed, None, soon))
    assert [undecided[name] for name in ("missed", "failed", "begun", "well")] == [["undecided"]] * 3 + [[]]


def test_stored_against_offsets(spark: SparkSession) -> None:
    held = stored(spark, *((f"m{number}", 1500) for number in range(4)), ("outside", 900))
    committed = spark.createDataFrame(
        [("T", "b", 0, 2)], "topic string, broker string, queue_id int, committed bigint"
    )
    found = comparison.stored_against_offsets(held, committed, None, WINDOW)
    assert kinds(found) == {"m0": [], "m1": [], "m2": ["missed"], "m3": ["missed"]}
    dead = spark.createDataFrame([("m1",)], "id string")
    assert kinds(comparison.stored_against_offsets(held, committed, dead, WINDOW))["m1"] == ["failed"]
    none: Any = spark.createDataFrame([], committed.schema)
    soon = JudgedWindow(since=1000, until=2000, now=1700, margin=100, late=300)
    assert set(map(tuple, kinds(comparison.stored_against_offsets(held, none, None, soon)).values())) == {
        ("undecided",)
    }


@pytest.mark.usefixtures("spark")
def test_every_kind_is_of_sends_or_of_groups() -> None:
    assert {*comparison.OF_SENDS, *comparison.OF_GROUPS, comparison.Kind.UNDECIDED} == set(comparison.Kind)
