"""Where stored messages are looked for, and whether all of them are there."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics, bodies, numbered
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.archive import ArchiveSettings, archive
from sparrowmq.spark.pipelines.archive.ledger import ArchiveLedger, ArchiveUnit
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.reading import UnreadQueues
from sparrowmq.spark.pipelines.query import stored
from sparrowmq.spark.pipelines.query.stored import (
    Stored,
    gaps,
    live_spans,
    moment,
    optional_columns,
    read,
)

QUEUES = [MessageQueue("T", "b", number) for number in range(4)]
LIVE = Stored(topics=("T",), name_server="127.0.0.1:1")


def test_where() -> None:
    assert str(LIVE) == "the live log" and LIVE.ledger.units == ()
    assert LIVE.source_options == {"nameServer": "127.0.0.1:1", "subscribe": "T"}
    assert str(Stored(topics=("T",), archive="/a")) == "archive /a and the live log"
    assert str(Stored(topics=("T",), archive="/a", live=False)) == "archive /a"
    with pytest.raises(SettingsError, check=about(setting="topics")):
        Stored(topics=())
    with pytest.raises(SettingsError, check=about(setting="archive", other="live")):
        Stored(topics=("T",), live=False)
    assert moment(1500) == "1970-01-01T00:00:01.500+00:00"


def held(monkeypatch: pytest.MonkeyPatch, firsts: Iterable[int], older: Iterable[MessageQueue]) -> None:
    """A cluster whose queues begin at `firsts` and end at 9; some have messages of before the window."""
    found = dict(zip(QUEUES, firsts, strict=False))
    monkeypatch.setattr(reading, "queues_of", lambda _: UnreadQueues(found, dict.fromkeys(found, 9)))
    monkeypatch.setattr(reading, "spans_of", lambda _: [Span(queue, 0, 1) for queue in older])
    monkeypatch.setattr(stored, "_reaching_brokers", lambda *_: set())


def test_what_retention_may_have_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    held(monkeypatch, [0, 0], [])
    assert gaps(LIVE, 1000, 2000) == []
    held(monkeypatch, [0, 3, 5], [QUEUES[1]])
    (gap,) = gaps(LIVE, 1000, 2000)
    assert gap.startswith(
        "T/b/2: messages before offset 5 were deleted, and the remaining ones were stored after"
    )
    monkeypatch.setattr(stored, "_reaching_brokers", lambda *_: {"b"})
    assert gaps(LIVE, 1000, 2000) == []


def archived(monkeypatch: pytest.MonkeyPatch, *spans: Span) -> None:
    units = [
        ArchiveUnit(number=number, spans=(span,), rows=len(span), size=1) for number, span in enumerate(spans)
    ]
    monkeypatch.setattr(Stored, "ledger", property(lambda _: ArchiveLedger(units)))


def test_what_an_archive_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Stored(topics=("T", "U"), archive="/a", live=False)
    archived(monkeypatch, Span(QUEUES[0], 0, 5), Span(QUEUES[1], 2, 5), Span(QUEUES[1], 7, 9))
    assert gaps(alone, 1000, 2000) == [
        "T/b/1: offsets 5 to 6 are not archived",
        "T/b/1 is archived only from offset 2",
        "topic U is not archived",
    ]
    monkeypatch.setattr(stored, "plan_history", lambda _: None)
    held(monkeypatch, [3, 3], [])
    both = Stored(topics=("T",), archive="/a")
    (gap,) = gaps(both, 1000, 2000)
    assert gap.startswith("T/b/1: messages before offset 3"), "the other queue is archived from its beginning"


def test_a_broker_tells_how_far_back_it_goes(topics: Topics, topic: str) -> None:
    topics.send(topic, 1)
    options = topics.options(topic)
    names = stored._reaching_brokers(options, int(time.time() * 1000) + 10_000)
    assert names == {queue.broker_name for queue in reading.queues_of(options).ends}
    assert stored._reaching_brokers(options, 1) == set()
    assert stored._number(None) == stored._number("x") == -1


def test_reading_from_where_it_is(spark: SparkSession, topics: Topics, topic: str, tmp_path: Path) -> None:
    namesrv = topics.cluster.namesrv
    now = int(time.time() * 1000)
    live = Stored(topics=(topic,), name_server=namesrv)
    assert read(spark, live, ("body",), 0, now + 60_000).count() == 0
    topics.send(topic, 4)
    where = tmp_path / "archive"
    archive(
        spark,
        ArchiveSettings(
            directory=where, topics=(topic,), name_server=namesrv, columns=("body",), compact_batches=0
        ),
    )
    topics.send(topic, 4, first=4)
    assert sum(map(len, live_spans(live, 0, now + 60_000))) == 8
    both = Stored(topics=(topic,), name_server=namesrv, archive=where)
    alone = Stored(topics=(topic,), archive=where, live=False)
    for one, count in ((live, 8), (both, 8), (alone, 4)):
        assert bodies(read(spark, one, ("body",), 0, now + 60_000)) == numbered(0, count)
        assert read(spark, one, ("body",), 0, now).count() == 0
        assert gaps(one, now, now + 60_000) == []
    assert optional_columns(both, ("topic", "tags", "body")) == ["topic", "body"]
    assert optional_columns(live, ("topic", "tags", "body")) == ["topic", "tags", "body"]
    with pytest.raises(SettingsError, check=about(setting="columns", value="tags")):
        read(spark, both, ("topic", "tags"), 0, now)
    assert both.of(topic).archive == where and both.of("Other").archive is None
    assert alone.of("Other").archive == where
