"""Stored messages of a time range, from the live log, an archive, or both; and whether they are complete.

`audit` and `report` use it. Times are store times in epoch milliseconds; the end is excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.ddl import ddl
from sparrowmq.spark.bodies.schema import SOURCE_COLUMNS
from sparrowmq.spark.cluster.faults import DataLossError
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.archive import read_archive
from sparrowmq.spark.pipelines.archive.ledger import ArchiveLedger
from sparrowmq.spark.pipelines.archive.location import content_of
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.source import Source, between
from sparrowmq.spark.pipelines.query.history import HistorySettings, history, plan_history

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EARLIEST: Final = "earliestMessageTimeStamp"
"""The name under which brokers report the store time of their oldest message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSource(Source):
    """Stored messages of topics, in the cluster, in an archive, or in both."""

    archive: str | Path | None = None
    """An archive to read in addition to the live log."""
    live: bool = True
    """Whether the live log is read; without it an archive is needed."""

    @property
    def stored(self) -> Stored:
        """Where stored messages are."""
        return Stored(
            topics=self.topics,
            name_server=self.name_server,
            archive=self.archive,
            live=self.live,
            options=self.options,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored(StoredSource):
    """The source of messages: the cluster, an archive, or both (then each message is read once)."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise SettingsError("no topic is given; give one or more", "topics")
        if not self.live and self.archive is None:
            text = "without the live log an archive is needed: give its directory"
            raise SettingsError(text, "archive", other="live")

    @property
    def ledger(self) -> ArchiveLedger:
        """The archive's content; None without an archive."""
        if self.archive is None:
            return ArchiveLedger()
        return content_of(self.archive).ledger

    def of(self, topic: str) -> Stored:
        """The same for another topic, without the archive if that does not have the topic."""
        kept = any(queue.topic == topic for queue in self.ledger.queues)
        where = self.archive if kept or not self.live else None
        return replace(self, topics=(topic,), archive=where)

    def __str__(self) -> str:
        if self.archive is None:
            return "the live log"
        return f"archive {self.archive}{' and the live log' if self.live else ''}"


def live_spans(where: Stored, since: int, until: int) -> list[Span]:
    """The brokers' spans for a time range."""
    return reading.spans_of(between(where.source_options, since, until))


def read(spark: SparkSession, where: Stored, columns: Sequence[str], since: int, until: int) -> DataFrame:
    """The messages stored from `since` to before `until`, with some of the source's columns.

    Raises `SettingsError` when the archive lacks a column, and the cluster's errors.
    """
    if where.archive is None:
        spans = live_spans(where, since, until)
        return _within(read_spans(spark, where, (*columns, "store_timestamp"), spans), columns, since, until)
    _need_columns(where, columns)
    if not where.live:
        frame = read_archive(spark, where.archive)
        first, last = (datetime.fromtimestamp(at / 1000, UTC).date() for at in (since, until))
        frame = frame.where(frame["topic"].isin(*where.topics) & frame["date"].between(first, last))
        return _within(frame, columns, since, until)
    settings = HistorySettings(
        directory=where.archive,
        topics=where.topics,
        name_server=where.name_server,
        since=since,
        until=until,
        fail_on_data_loss=False,
        options=where.options,
    )
    return history(spark, settings).select(*columns)


def read_spans(
    spark: SparkSession, where: Stored, columns: Sequence[str], spans: Iterable[Span]
) -> DataFrame:
    """Some columns of spans of the live log, each queue at most once."""
    names = dict.fromkeys(columns)
    schema = ddl({name: kind for name, kind in SOURCE_COLUMNS.items() if name in names})
    wanted = list(spans)
    if not wanted:
        return spark.createDataFrame([], schema)
    return reading.batch(spark, reading.assigned(where.source_options, wanted), schema)


def optional_columns(where: Stored, columns: Iterable[str]) -> list[str]:
    """The available ones of `columns`: an archive has those that were kept."""
    if where.archive is None:
        return list(columns)
    kept = {"topic", *where.ledger.columns}
    return [name for name in columns if name in kept]


def _need_columns(where: Stored, columns: Iterable[str]) -> None:
    wanted = list(columns)
    missing = sorted(set(wanted) - set(optional_columns(where, wanted)))
    if missing:
        raise SettingsError(
            f"archive {where.archive} has no column {missing[0]!r}; archive it with that column",
            "columns",
            missing[0],
        )


def _within(frame: DataFrame, columns: Sequence[str], since: int, until: int) -> DataFrame:
    from pyspark.sql import functions as F

    at = F.unix_millis("store_timestamp")
    return frame.where((at >= since) & (at < until)).select(*columns)


def gaps(where: Stored, since: int, until: int) -> list[str]:
    """Why messages stored in that time range may be missing, as text; empty when it is complete.

    Queries the cluster, starts no Spark. For an archive without a cluster only its beginning can be checked
    here.
    """
    if where.archive is None:
        return _live_gaps(where, since)
    ledger = where.ledger
    found: list[str] = []
    for queue in ledger.queues:
        spans = ledger.covered(queue)
        if queue.topic not in where.topics:
            continue
        if not where.live and len(spans) > 1:
            found.append(f"{queue}: offsets {spans[0].end} to {spans[1].start - 1} are not archived")
    absent = sorted(set(where.topics) - {queue.topic for queue in ledger.queues})
    if not where.live:
        begun = {queue: ledger.covered(queue)[0].start for queue in ledger.queues}
        found += [
            f"{queue} is archived only from offset {start}"
            for queue, start in begun.items()
            if start and queue.topic in where.topics
        ]
        return found + [f"topic {topic} is not archived" for topic in absent]
    try:
        plan_history(
            HistorySettings(
                directory=where.archive,
                topics=where.topics,
                name_server=where.name_server,
                options=where.options,
            )
        )
    except DataLossError as error:
        found.append(str(error))
    archived = {queue for queue in ledger.queues if ledger.covered(queue)[0].start == 0}
    return found + _live_gaps(where, since, archived)


def _live_gaps(where: Stored, since: int, but: Iterable[MessageQueue] = ()) -> list[str]:
    """Queues whose messages after `since` may already have been deleted by retention."""
    options = where.source_options
    held = reading.queues_of(options)
    doubtful = sorted(queue for queue in set(held.firsts) - set(but) if held.firsts[queue] > 0)
    if not doubtful:
        return []
    older = _holds_older(where, [queue for queue in doubtful if held.ends[queue] > held.firsts[queue]], since)
    doubtful = [queue for queue in doubtful if queue not in older]
    if doubtful:
        reaching = _reaching_brokers(options, since)
        doubtful = [queue for queue in doubtful if queue.broker_name not in reaching]
    return [
        f"{queue}: messages before offset {held.firsts[queue]} were deleted, and the remaining ones were "
        f"stored after {moment(since)}"
        for queue in doubtful
    ]


def _holds_older(where: Stored, queues: Sequence[MessageQueue], since: int) -> set[MessageQueue]:
    """Queues that still have a message stored before `since`: nothing after it is deleted there."""
    if not queues:
        return set()
    before = {span.queue for span in live_spans(where, 0, since)}
    return before & set(queues)


def _reaching_brokers(options: Mapping[str, str], since: int) -> set[str]:
    """Brokers whose oldest message was stored before `since`, as they report."""
    with reading.admin(options) as admin:
        return {
            broker.broker_name
            for broker in admin.brokers.list()
            if broker.broker_id == 0 and 0 <= _number(broker.runtime.get(_EARLIEST)) < since
        }


def _number(text: Any) -> int:
    try:
        return int(text)
    except (TypeError, ValueError):
        return -1


def moment(at: int) -> str:
    """A time as text, UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds")
