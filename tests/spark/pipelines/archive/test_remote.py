"""An archive on a file system that Python does not see: every message once, whoever dies or comes between."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipelines.stored_files import MemoryFiles, mounted
from tests.spark.support import Topics, bodies, numbered
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import (
    ArchiveSettings,
    HistorySettings,
    Watch,
    archive,
    backfill,
    history,
    plan_archive,
    plan_history,
    read_archive,
)
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError
from sparrowmq.spark.pipelines.archive.location import Draft
from sparrowmq.spark.pipelines.archive.remote import RemoteStore
from sparrowmq.spark.pipelines.archive.state import CHANGES
from sparrowmq.spark.pipelines.common.files import HadoopFiles

QUEUE = MessageQueue("T", "broker-a", 0)


@pytest.fixture
def settings(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> ArchiveSettings:
    return ArchiveSettings(
        directory=f"{mounted(spark, tmp_path)}/archive",
        topics=(topic,),
        name_server=topics.cluster.namesrv,
        compact_batches=0,
    )


def folders(tmp_path: Path) -> list[str]:
    """What lies in the archive's data."""
    return sorted(path.name for path in (tmp_path / "archive" / "data").iterdir())


def test_every_message_once_run_by_run(
    spark: SparkSession, topics: Topics, topic: str, settings: ArchiveSettings, tmp_path: Path
) -> None:
    topics.send(topic, 20)
    assert "20 messages wait" in str(plan_archive(settings))
    watch = Watch()
    done = archive(spark, settings, watch)
    assert (done.rows, done.batches, done.lag) == (20, 1, 0)
    assert done.size == sum(path.stat().st_size for path in tmp_path.rglob("*.parquet"))
    topics.send(topic, 5, first=20)
    assert archive(spark, settings).rows == 5
    assert archive(spark, settings).rows == 0
    frame = read_archive(spark, settings.directory)
    assert bodies(frame) == numbered(0, 25)
    assert frame.columns[:2] == ["topic", "date"]
    topics.send(topic, 5, first=25)
    both = HistorySettings(directory=settings.directory, name_server=settings.name_server)
    assert bodies(history(spark, both)) == numbered(0, 30)
    assert f"read archive {settings.directory}" in str(plan_history(both))
    # The checkpoint is no part of what is true.
    shutil.rmtree(tmp_path / "archive" / "checkpoint")
    assert archive(spark, settings).rows == 5
    assert bodies(read_archive(spark, settings.directory)) == numbered(0, 30)


def test_a_run_that_dies_around_its_commit(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    settings: ArchiveSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topics.send(topic, 12)
    real = RemoteStore._commit

    def before(*arguments: Any) -> None:
        raise SettingsError("died before")

    def after(*arguments: Any) -> None:
        real(*arguments)
        raise SettingsError("died after")

    for kill, text, rows in ((before, "died before", 0), (after, "died after", 12)):
        monkeypatch.setattr(RemoteStore, "_commit", kill)
        with pytest.raises(SettingsError, check=about(args=(text,))):
            archive(spark, settings)
        assert read_archive(spark, settings.directory).count() == rows
        assert len(folders(tmp_path)) == 1, "what the run before left is gone"
    monkeypatch.setattr(RemoteStore, "_commit", real)
    topics.send(topic, 3, first=12)
    assert archive(spark, settings).rows == 3
    assert bodies(read_archive(spark, settings.directory)) == numbered(0, 15)


def test_who_wrote_before_is_put_out(spark: SparkSession, tmp_path: Path) -> None:
    files = HadoopFiles(f"{mounted(spark, tmp_path)}/archive")
    frame = spark.range(3).selectExpr("'T' topic", "current_date() date", "id queue_offset")

    def draft(number: int) -> Draft:
        spans = (Span(QUEUE, 3 * number, 3 * number + 3),)
        return Draft(number=number, spans=spans, columns={"queue_offset": "bigint"}, expected=3)

    first, second = RemoteStore(files), RemoteStore(files)
    with first.locked():
        first.publish(frame, draft(0))
        with second.locked():
            second.publish(frame, draft(1))
            with pytest.raises(ArchiveError, check=about(what="run")):
                first.publish(frame, draft(1))
        assert [unit.number for unit in second.content().ledger.units] == [0, 1]
        assert len(folders(tmp_path)) == 3
    with second.locked():
        assert len(folders(tmp_path)) == 2, "what nobody names is removed"
    assert second.content().read(spark, second.content().ledger.units).count() == 6
    with (
        second.locked(),
        pytest.raises(ArchiveError, check=about(what="messages", value=3, limit=4)),
    ):
        second.publish(frame, replace(draft(2), expected=4))


def test_small_batches_are_merged_and_columns_may_come(
    spark: SparkSession, topics: Topics, topic: str, settings: ArchiveSettings, tmp_path: Path
) -> None:
    topics.send(topic, 24)
    merging = replace(settings, batch_rows=6, compact_batches=3, columns=("body", "keys"))
    assert archive(spark, merging).batches == 4
    assert [unit.rows for unit in settings.ledger().units] == [18, 6]
    assert len(folders(tmp_path)) == 5, "what was merged stays for those who still read it"
    expression = "cast(substr(cast(body as string), 2) as bigint) as number"
    topics.send(topic, 12, first=24)
    archive(spark, replace(merging, select=(expression,)))
    assert len(folders(tmp_path)) < 8, "until the next merge"
    frame = read_archive(spark, settings.directory)
    assert bodies(frame) == numbered(0, 36)
    assert frame.where("number is null").count() == 24


def test_what_was_left_out_is_filled_in(
    spark: SparkSession, topics: Topics, topic: str, settings: ArchiveSettings
) -> None:
    topics.send(topic, 8)
    late = replace(settings, start="latest", batch_rows=5)
    archive(spark, late)
    topics.send(topic, 4, first=8)
    assert archive(spark, late).rows == 4
    assert backfill(spark, late).rows == 8
    assert bodies(read_archive(spark, settings.directory)) == numbered(0, 12)


def test_notes_do_not_pile_up() -> None:
    """Without Spark: many commits, one after the other, by one run after the other."""
    files = MemoryFiles()
    store = RemoteStore(files)
    with pytest.raises(ArchiveError, check=about(what="archive", value="mem:/archive")):
        store.content()
    for _ in range(5):
        with store.locked():
            for _ in range(CHANGES):
                number = store.content().ledger.next_number
                unit = Draft(number=number, spans=(Span(QUEUE, number, number + 1),), columns={}).unit(1, 1)
                store._commit(store._held().state.with_unit(unit, f"f{number}"))
    assert store.content().ledger.rows == 5 * CHANGES
    assert len(files.names("commits")) < 3 * CHANGES
    for name in files.names("commits")[:-CHANGES]:
        files.delete(f"commits/{name}")
    assert store.content().ledger.rows == 5 * CHANGES
    held = [name for name in files.names("commits") if '"base":null' in (files.read(f"commits/{name}") or "")]
    files.delete(f"commits/{held[-1]}")
    if files.names("commits")[-1] > held[-1]:
        with pytest.raises(ArchiveError, check=about(what="commit")):
            store.content()
