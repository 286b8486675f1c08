"""One table over archive and live log: each message once, whatever was archived, deleted or left out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics, bodies, numbered
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster.faults import DataLossError
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.archive import ArchiveSettings, archive, backfill
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveLedger, ArchiveUnit
from sparrowmq.spark.pipelines.query.history import (
    HistorySettings,
    _check_loss,
    dry_run_history,
    history,
    plan_history,
)


@pytest.fixture
def settings(topics: Topics, topic: str, tmp_path: Path) -> HistorySettings:
    return HistorySettings(
        directory=tmp_path / "archive", topics=(topic,), name_server=topics.cluster.namesrv
    )


def archived(settings: HistorySettings, **more: Any) -> ArchiveSettings:
    values: dict[str, Any] = {"compact_batches": 0, **more}
    return ArchiveSettings(
        directory=settings.directory, topics=settings.topics, name_server=settings.name_server, **values
    )


def test_the_seam_moves_and_nothing_is_seen_twice(
    spark: SparkSession, topics: Topics, topic: str, settings: HistorySettings
) -> None:
    topics.send(topic, 10)
    late = archived(settings, start="latest")
    archive(spark, late)
    topics.send(topic, 10, first=10)
    archive(spark, late)
    topics.send(topic, 10, first=20)
    # 0 to 9 are live only, 10 to 19 archived and live, 20 to 29 live only
    frame = history(spark, settings)
    assert bodies(frame) == numbered(0, 30)
    plan = plan_history(settings)
    assert str(plan).startswith("history: 2 steps, 30 messages at most\n")
    assert "messages at most: 10" in str(plan)
    assert dry_run_history(spark, settings) == 30
    backfill(spark, late)
    archive(spark, late)
    whole = history(spark, settings)
    assert [step.action for step in plan_history(settings).steps] == ["read archive"]
    assert bodies(frame) == numbered(0, 30), "a table stays what it was"
    assert bodies(whole.where("date = to_date(store_timestamp) and topic is not null")) == numbered(0, 30)


def test_times_narrow_both_sides(
    spark: SparkSession, topics: Topics, topic: str, settings: HistorySettings
) -> None:
    def now() -> int:
        time.sleep(0.002)
        return int(time.time() * 1000)

    topics.send(topic, 4)
    first = now()
    topics.send(topic, 4, first=4)
    archive(spark, archived(settings))
    topics.send(topic, 4, first=8)
    second = now()
    topics.send(topic, 4, first=12)

    def seen(**values: int) -> list[str]:
        narrowed = HistorySettings(
            directory=settings.directory, topics=settings.topics, name_server=settings.name_server, **values
        )
        return bodies(history(spark, narrowed))

    assert seen(since=first) == numbered(4, 16)
    assert seen(until=second) == numbered(0, 12)
    assert seen(since=first, until=second) == numbered(4, 12)
    assert seen(since=now()) == []


def test_columns_of_the_archive_on_the_live_side(
    spark: SparkSession, topics: Topics, topic: str, settings: HistorySettings
) -> None:
    select = ("cast(body as string) as text",)
    topics.send(topic, 3)
    archive(spark, archived(settings, select=select, columns=("body",)))
    topics.send(topic, 3, first=3)
    assert history(spark, settings).where("text is null").count() == 3
    full = HistorySettings(
        directory=settings.directory, name_server=settings.name_server, topics=settings.topics, select=select
    )
    assert sorted(row["text"] for row in history(spark, full).select("text").collect()) == numbered(0, 6)


def test_what_is_nowhere_any_more_is_said() -> None:
    queue = MessageQueue("T", "b", 0)
    units = [
        ArchiveUnit(number=0, spans=(Span(queue, 5, 8),), rows=3, size=1),
        ArchiveUnit(number=1, spans=(Span(queue, 10, 12),), rows=2, size=1),
    ]
    ledger = ArchiveLedger(units)
    for first in (0, 5, 8):
        _check_loss(ledger, {queue: first}, ["T"])
    with pytest.raises(DataLossError, check=about(what="offsets", value=Span(queue, 8, 9))):
        _check_loss(ledger, {queue: 9}, ["T"])
    with pytest.raises(DataLossError, check=about(what="offsets", value=Span(queue, 8, 10))):
        _check_loss(ledger, {queue: 20}, ["T"])
    _check_loss(ledger, {queue: 20}, ["other"])
    _check_loss(ledger, {}, ["T"])


def test_wrong_settings(settings: HistorySettings, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, check=about(setting="since", value=2)):
        HistorySettings(directory=tmp_path, since=2, until=2)
    with pytest.raises(ArchiveError, check=about(what="archive")):
        plan_history(settings)
    with archived(settings).store.locked():
        pass
    with pytest.raises(ArchiveError, check=about(setting="topics")):
        plan_history(HistorySettings(directory=settings.directory))
