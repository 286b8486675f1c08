"""The archive: every message once, for any reader, whatever happens between write and commit."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pyarrow.dataset as dataset
import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics, bodies, numbered
from tests.support import about

from sparrowmq.core.errors import SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import Watch
from sparrowmq.spark.offsets.offsets import Span, StreamOffset
from sparrowmq.spark.pipelines.archive.archive import (
    ArchiveSettings,
    archive,
    backfill,
    dry_run_archive,
    dry_run_backfill,
    plan_archive,
    plan_backfill,
    read_archive,
)
from sparrowmq.spark.pipelines.archive.directory import ArchiveDirectory
from sparrowmq.spark.pipelines.archive.job import ArchiveJob
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError
from sparrowmq.spark.pipelines.archive.plan import parts
from sparrowmq.spark.pipelines.common import reading


@pytest.fixture
def settings(topics: Topics, topic: str, tmp_path: Path) -> ArchiveSettings:
    return ArchiveSettings(
        directory=tmp_path / "archive", topics=(topic,), name_server=topics.cluster.namesrv, compact_batches=0
    )


def home(settings: ArchiveSettings) -> ArchiveDirectory:
    """The archive's directory."""
    return ArchiveDirectory(Path(settings.directory))


def changed(settings: ArchiveSettings, **values: Any) -> ArchiveSettings:
    from dataclasses import replace

    return replace(settings, **values)


def plain(settings: ArchiveSettings) -> list[str]:
    """What a reader without Spark finds, sorted by number."""
    files = dataset.dataset(home(settings).data, format="parquet", partitioning="hive")
    found = [body.decode() for body in files.to_table(["body"])["body"].to_pylist()]
    return sorted(found, key=lambda text: int(text[1:]))


def test_every_message_once_run_by_run(
    spark: SparkSession, topics: Topics, topic: str, settings: ArchiveSettings
) -> None:
    topics.send(topic, 20)
    before = str(plan_archive(settings))
    assert "20 messages wait" in before
    assert f"read {topic}" in before and "offsets 0 to before 5" in before
    assert dry_run_archive(spark, settings) == 20
    assert not home(settings).root.exists()

    watch = Watch()
    held = changed(settings, group=f"archive_of_{topic}"[:100], hold_hours=5)
    done = archive(spark, held, watch)
    assert (done.rows, done.batches, done.lag) == (20, 1, 0)
    assert done.size == sum(path.stat().st_size for path in home(settings).data.rglob("*.parquet"))
    assert _held(topics, topic) == 0

    topics.send(topic, 5, first=20)
    assert _held(topics, topic) == 5
    assert archive(spark, held).rows == 5
    assert _held(topics, topic) == 0
    assert plain(settings) == numbered(0, 25)

    frame = read_archive(spark, settings.directory)
    assert bodies(frame) == numbered(0, 25)
    assert frame.columns[:2] == ["topic", "date"]
    row = frame.selectExpr(
        "min(topic) t", "count(distinct topic) n", "bool_and(date = to_date(store_timestamp)) d"
    )
    assert row.first() == (topic, 1, True)
    assert frame.schema["store_timestamp"].dataType.simpleString() == "timestamp"


def _held(topics: Topics, topic: str) -> int:
    """Messages that brokers keep until they are archived."""
    (hold,) = [hold for hold in topics.admin.holds.list() if hold.topic == topic]
    return hold.messages


def test_a_hold_that_fails_is_asked_for_again_with_the_next_batch(
    settings: ArchiveSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[Any] = [frozenset({("T", "a")}), SparrowError("away"), frozenset({("T", "a"), ("T", "b")})]

    def hold(options: dict[str, str], group: str, hours: int) -> Any:
        assert (group, hours) == ("g", 5)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(reading, "hold", hold)
    monkeypatch.setattr(reading, "prepare", lambda options, group: None)
    held = changed(settings, group="g", hold_hours=5)
    with held.store.locked():
        job = ArchiveJob(cast(SparkSession, None), held, held.store, Watch())
        job.prepare()
        old, new = Span(MessageQueue("T", "a", 0), 0, 1), Span(MessageQueue("T", "b", 0), 0, 1)
        job._hold_new([old])
        assert len(answers) == 2
        job._hold_new([old, new])
        assert "retention of messages of [('T', 'b')] is not secured yet: SparrowError('away')" in caplog.text
        job._hold_new([old, new])
        job._hold_new([old, new])
    assert not answers


def test_a_run_that_dies_around_publishing(
    spark: SparkSession,
    topics: Topics,
    topic: str,
    settings: ArchiveSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = ArchiveDirectory.publish

    def before(*arguments: Any) -> None:
        raise SettingsError("died before")

    def after(*arguments: Any) -> None:
        real(*arguments)
        raise SettingsError("died after")

    topics.send(topic, 12)
    for number, (publish, rows) in enumerate(((before, 0), (after, 12))):
        monkeypatch.setattr(ArchiveDirectory, "publish", publish)
        with pytest.raises(SettingsError, check=about(args=(("died before", "died after")[number],))):
            archive(spark, settings)
        assert home(settings).load().rows == rows
    monkeypatch.setattr(ArchiveDirectory, "publish", real)
    topics.send(topic, 3, first=12)
    assert archive(spark, settings).rows == 3
    assert plain(settings) == numbered(0, 15)

    # Without its checkpoint it goes on where the archive ends.
    shutil.rmtree(home(settings).root / "checkpoint")
    topics.send(topic, 4, first=15)
    assert archive(spark, settings).rows == 4
    assert plain(settings) == numbered(0, 19)


def test_small_batches_are_merged_and_columns_may_come(
    spark: SparkSession, topics: Topics, topic: str, settings: ArchiveSettings
) -> None:
    topics.send(topic, 24)
    merging = changed(settings, batch_rows=6, compact_batches=3, columns=("body", "keys"))
    done = archive(spark, merging)
    assert (done.rows, done.batches) == (24, 4)
    units = home(settings).load().units
    assert [unit.rows for unit in units] == [18, 6]
    assert [unit.number for unit in units] == [2, 3]
    assert plain(settings) == numbered(0, 24)

    topics.send(topic, 2, first=24)
    expression = "cast(substr(cast(body as string), 2) as bigint) as number"
    archive(spark, changed(merging, select=(expression,)))
    frame = read_archive(spark, settings.directory)
    assert frame.where("number is null").count() == 24
    assert frame.where("number in (24, 25) and keys is not null").count() == 2

    with pytest.raises(ArchiveError, check=about(what="type", value="number", other="bigint")):
        topics.send(topic, 1, first=26)
        archive(spark, changed(merging, select=("1 as number",)))


def test_what_was_left_out_is_filled_in(
    spark: SparkSession, topics: Topics, topic: str, settings: ArchiveSettings
) -> None:
    topics.send(topic, 8)
    late = changed(settings, start="latest", batch_rows=5)
    assert archive(spark, late).rows == 0
    topics.send(topic, 4, first=8)
    assert archive(spark, late).rows == 4
    plan = plan_backfill(late)
    assert (plan.pipeline, plan.rows) == ("backfill", 8)
    assert [step.action for step in plan.steps] == ["read", "write"]
    assert plan.steps[1].details["batches"] == "2 batches, then the end"
    assert "offsets 0 to before 2" in str(plan)
    assert dry_run_backfill(spark, late) == 8
    assert plain(settings) == numbered(8, 12), "nothing was written"
    lags: list[int | None] = []
    done = backfill(spark, late, watch=Watch(lambda progress: lags.append(progress.lag)))
    assert (done.rows, done.batches, done.lag) == (8, 2, 0)
    assert [lag for lag in dict.fromkeys(lags) if lag is not None] == [8, 3, 0]
    assert str(plan_backfill(late)) == "backfill: nothing to do, 0 messages wait"
    assert (plan_backfill(late).rows, dry_run_backfill(spark, late, since=0)) == (0, 0)
    assert plain(settings) == numbered(0, 12)
    topics.send(topic, 2, first=12)
    assert backfill(spark, late, since=0, until=2**40).rows == 0
    assert archive(spark, late).rows == 2
    assert plain(settings) == numbered(0, 14)


def test_a_topic_that_got_fewer_queues_is_archived_to_its_end_with_and_without_a_checkpoint(
    spark: SparkSession, topics: Topics, topic: str, settings: ArchiveSettings
) -> None:
    """SparrowMQ's brokers serve bulk reads of queues that left the topic."""
    topics.send(topic, 16)
    archive(spark, settings)
    topics.send(topic, 16, first=16)
    topics.admin.topics.create(topic, queues=2, force=True)
    for _ in range(2):
        archive(spark, settings)
        assert plain(settings) == numbered(0, 32)
        shutil.rmtree(home(settings).root / "checkpoint", ignore_errors=True)


def test_an_archive_says_what_it_lacks_of_a_lost_broker(
    settings: ArchiveSettings, caplog: pytest.LogCaptureFixture
) -> None:
    lost, kept = MessageQueue("T", "broker-b", 0), MessageQueue("T", "broker-a", 0)
    without = changed(settings, options={"lostBrokers": "broker-b"})
    with without.store.locked():
        offsets = home(settings).root / "checkpoint" / "offsets"
        offsets.mkdir(parents=True)
        last = StreamOffset({lost: 5, kept: 5}, ends={lost: 9, kept: 9})
        (offsets / "0").write_text(f"v1\n{{}}\n{json.dumps(last.to_json())}")
        for one in (settings, without):
            ArchiveJob(cast(SparkSession, None), one, one.store, Watch()).prepare()
    (record,) = [record for record in caplog.records if "with a gap" in record.message]
    assert record.message.endswith(
        "goes on with a gap because of option lostBrokers: 4 unread messages cannot be read any more: "
        "T/broker-b/0 offsets 5 to 8 (its broker is lost)"
    )
    spans = [Span(lost, 0, 5), Span(kept, 0, 5)]
    assert reading.without_lost(without.source_options, spans) == spans[1:]
    assert reading.without_lost(settings.source_options, spans) == spans


def test_wrong_settings(settings: ArchiveSettings, tmp_path: Path) -> None:
    for values, setting in (
        ({"topics": ()}, "topics"),
        ({"pattern": "x"}, "topics"),
        ({"start": "middle"}, "start"),
        ({"every": -1}, "every"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"hold_hours": 5}, "hold_hours"),
        ({"columns": ("boddy",)}, "columns"),
    ):
        with pytest.raises(SettingsError, check=about(setting=setting)):
            changed(settings, **values)
    with pytest.raises(SettingsError, check=about(what="read", value="nosuch://x/y/archive.json")):
        plan_archive(changed(settings, directory="nosuch://x/y"))
    assert changed(settings, topics=(), pattern="T.*").source_options["subscribePattern"] == "T.*"


def test_wrong_columns(spark: SparkSession, topics: Topics, topic: str, settings: ArchiveSettings) -> None:
    topics.send(topic, 1)
    for expression in ("1 as batch", "1 as date", "body", "'x' as Date", "'x' as Batch", "'x' as TOPIC"):
        column = expression.rpartition(" ")[2]
        with pytest.raises(SettingsError, check=about(setting="select", value=column)):
            dry_run_archive(spark, changed(settings, select=(expression,)))
    with pytest.raises(ArchiveError, check=about(what="archive")):
        read_archive(spark, settings.directory)


def test_columns_of_any_name_are_read_back(
    spark: SparkSession, topics: Topics, topic: str, settings: ArchiveSettings
) -> None:
    order = "named_struct('order-id', 'x', 'price.net', array(named_struct('a`b', queue_offset)))"
    odd = changed(settings, select=(f"{order} as `the ``order``.`",), compact_batches=2)
    for number in range(3):
        topics.send(topic, 1, first=number)
        archive(spark, odd)
    assert len(odd.ledger().units) < 3
    frame = read_archive(spark, odd.directory)
    assert frame.selectExpr("`the ``order``.`.`price.net`[0].`a``b` = queue_offset").distinct().collect() == [
        (True,)
    ]
    assert frame.count() == 3


def test_pieces_of_a_backfill() -> None:
    queues = [MessageQueue("T", "b", number) for number in range(3)]
    spans = [Span(queue, 10, 10 + 4 * number) for number, queue in enumerate(queues)]
    pieces = list(parts(spans, 5))
    assert [sum(map(len, piece)) for piece in pieces] == [5, 5, 2]
    found = Counter((one.queue, o) for piece in pieces for one in piece for o in range(one.start, one.end))
    assert set(found.values()) == {1}
    assert sum(found.values()) == 12
