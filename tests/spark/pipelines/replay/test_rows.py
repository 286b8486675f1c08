"""What a replay sends of a message: what its user gave it, and nothing of the journey it made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import SYSTEM_PROPERTIES, MessageQueue
from sparrowmq.spark import ArchiveSettings, archive
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.replay.directory import Part, Replay, ReplayError
from sparrowmq.spark.pipelines.replay.replay import dry_run_replay, replay
from sparrowmq.spark.pipelines.replay.rows import _places, _sent, check_reproducible, sources
from sparrowmq.spark.pipelines.replay.settings import ReplaySettings

QUEUES = [MessageQueue("T", broker, number) for broker in ("a", "b") for number in range(2)]
TARGETS = tuple(MessageQueue("Out", "c", number) for number in range(3))
REPLAY = Replay("id", {}, tuple(Span(queue, 0, 9) for queue in QUEUES), {"T": TARGETS})
SETTINGS = ReplaySettings(home="h", to="Out", topics=("T",), ids="keep")


def sent(spark: SparkSession, settings: ReplaySettings, properties: dict[str, str] | None) -> Any:
    """What is sent of one message."""
    frame = spark.createDataFrame(
        [("T", "a", 1, 7, "ID", "tag", "k1 k2", b"body", "body", properties, {"broker": "c", "queue": 2})],
        "topic string, broker string, queue_id int, queue_offset bigint, msg_id string, tags string, "
        "keys string, body binary, text string, properties map<string,string>, "
        "_place struct<broker: string, queue: int>",
    )
    return _sent(frame, settings, REPLAY).first()


def test_the_first_journey_is_left_out(spark: SparkSession) -> None:
    past = dict.fromkeys((*SYSTEM_PROPERTIES, "__STARTDELIVERTIME", "SPARROW_REPLAY", "SPARROW_ORIGIN"), "x")
    row = sent(spark, SETTINGS, {**past, "mine": "1", "__SHARDINGKEY": "s"})
    marks = {"SPARROW_REPLAY": "id", "SPARROW_ORIGIN": "T/a/1/7"}
    assert row["properties"] == {"mine": "1", **marks}
    assert (row["body"], row["tags"], row["keys"]) == (b"body", "tag", "k1 k2")
    assert (row["sharding_key"], row["broker"], row["queue_id"], row["msg_id"]) == ("s", "c", 2, "ID")
    bare = replace(SETTINGS, mark=False, ids="renew", keep_order=False)
    row = sent(spark, bare, None)
    assert row["properties"] == {}
    assert set(row.asDict()) == {"body", "tags", "keys", "sharding_key", "properties"}


def test_queues_go_to_queues_in_rounds() -> None:
    assert sources(REPLAY, "T") == QUEUES
    part = Part(0, (Span(QUEUES[1], 2, 4), Span(QUEUES[3], 0, 9)), 1)
    assert _places(REPLAY, part) == (
        '{"a/1": {"first": 2, "end": 4, "broker": "c", "queue": 1}, '
        '"b/1": {"first": 0, "end": 9, "broker": "c", "queue": 0}}'
    )


@pytest.mark.parametrize(
    ("expression", "named"),
    [
        ("rand() > 2", "an expression"),
        ("uuid() = 'x'", "an expression"),
        ("now() is null", "now()"),
        ("current_date() is null", "current_date()"),
        ("current_timestamp is null", "current_timestamp()"),
        ("unix_timestamp() = 1", "current_timestamp()"),
    ],
)
def test_rows_must_be_the_same_in_every_try(spark: SparkSession, expression: str, named: str) -> None:
    frame = spark.range(3)
    check_reproducible(frame.where("id > 1"))
    with pytest.raises(SettingsError, check=about(setting="where", value=named)):
        check_reproducible(frame.where(expression))


def test_an_archive_without_some_columns(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.cluster.create_topic(f"{topic}_out", queues=1)
    topics.send(topic, 3)
    namesrv = topics.cluster.namesrv
    kept = ArchiveSettings(
        directory=tmp_path / "archive", topics=(topic,), name_server=namesrv, columns=("body", "tags")
    )
    archive(spark, kept)
    settings = ReplaySettings(
        home=tmp_path / "home", to=f"{topic}_out", archive=kept.directory, name_server=namesrv
    )
    with pytest.raises(ReplayError, check=about(setting="archive", what="keys")):
        replay(spark, settings)
    given = replace(settings, values={"keys": "null", "properties": "null"})
    with pytest.raises(ReplayError, check=about(setting="archive", what="msg_id")):
        replay(spark, replace(given, ids="keep"))
    assert dry_run_replay(spark, given) == 3
    assert replay(spark, replace(given, where="1 = 0")).rows == 0
    other = replace(given, home=tmp_path / "other", tags="TagA || TagB")
    assert replay(spark, other).rows == 3
    assert {one.tags for one in topics.read(f"{topic}_out")} == {"TagA"}
    with pytest.raises(ReplayError, check=about(setting="topics", value="Nowhere")):
        replay(spark, replace(settings, home=tmp_path / "third", topics=("Nowhere",)))
