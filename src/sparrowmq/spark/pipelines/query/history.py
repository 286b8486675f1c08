"""`history`: an archive and the live log as one table, without a gap or an overlap.

Archived messages are read from the archive, all others from the brokers, by offsets: the archive's own record
of its content is the boundary. Both sides are as of the moment the table is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.bodies.ddl import ddl
from sparrowmq.spark.bodies.schema import SOURCE_COLUMNS
from sparrowmq.spark.cluster.faults import DataLossError
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveLedger, ArchiveUnit, rounds
from sparrowmq.spark.pipelines.archive.location import ArchiveContent, content_of
from sparrowmq.spark.pipelines.archive.rows import NEEDED, UTC_DATE
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.source import WholeSource, between, check_times
from sparrowmq.spark.pipelines.common.steps import AT_MOST, Plan, Step, reads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "history"


@dataclass(frozen=True, slots=True, kw_only=True)
class HistorySettings(WholeSource):
    """Which messages of which archive and cluster; without topics, of all in the archive.

    `fail_on_data_loss`: offsets that are neither archived nor still stored are an error.
    """

    directory: str | Path
    """The archive."""
    since: int | None = None
    """Only messages stored at or after this time, epoch milliseconds."""
    until: int | None = None
    """Only messages stored before this time, epoch milliseconds."""
    select: tuple[str, ...] = ()
    """The archive's `select`, so that the live side has those columns too; otherwise they are null there."""

    def __post_init__(self) -> None:
        check_times(self.since, self.until)


@dataclass(frozen=True, slots=True)
class _Seam:
    """The source of each part: units of the archive as of a moment, and spans of the live log."""

    content: ArchiveContent
    units: tuple[ArchiveUnit, ...]
    topics: tuple[str, ...]
    spans: tuple[Span, ...]


def history(spark: SparkSession, settings: HistorySettings) -> DataFrame:
    """The messages, archived or not, with the archive's columns and `date`, without duplicates.

    The table is a snapshot: create it again to see newer messages. Raises `ArchiveError` without an archive,
    and `DataLossError` when messages were deleted before they were archived.
    """
    seam = _seam(settings)
    columns = seam.content.ledger.columns
    parts: list[DataFrame] = []
    if seam.units:
        archived = seam.content.read(spark, seam.units)
        parts.append(_narrowed(archived.where(archived["topic"].isin(*seam.topics)), settings, dated=True))
    parts += [_live(spark, settings, spans, columns) for spans in rounds(seam.spans)]
    if not parts:
        kinds = {"topic": "string", "date": "date", **columns}
        parts.append(spark.createDataFrame([], ddl(kinds)))
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)


def plan_history(settings: HistorySettings) -> Plan:
    """What `history` would read now. Queries the cluster, starts no Spark.

    Its `rows` are all messages of the batches and offsets that are read, before `since` and `until` are
    applied.
    """
    seam = _seam(settings)
    what = {"batches": len(seam.units), "messages at most": f"{sum(unit.rows for unit in seam.units):,}"}
    steps = [Step("read archive", seam.content.where, what), *reads("read live", seam.spans)]
    rows = sum(unit.rows for unit in seam.units) + sum(map(len, seam.spans))
    return Plan(NAME, tuple(steps), rows, AT_MOST)


def dry_run_history(spark: SparkSession, settings: HistorySettings) -> int:
    """Check the settings against the archive and the topics without reading messages. Returns an upper bound
    of the messages.

    It is exact without `since` and `until`. Raises the errors of `history`.
    """
    history(spark, settings)
    seam = _seam(settings)
    archived = sum(len(s) for unit in seam.units for s in unit.spans if s.queue.topic in seam.topics)
    most = min(archived, sum(unit.rows for unit in seam.units))
    return most + sum(map(len, seam.spans))


def _seam(settings: HistorySettings) -> _Seam:
    content = content_of(settings.directory)
    ledger = content.ledger
    topics = settings.topics or tuple(sorted({queue.topic for queue in ledger.queues}))
    if not topics:
        text = f"{settings.directory} is empty; name the topics, or archive some messages first"
        raise ArchiveError(text, "topics")
    options = {**settings.source_options, "subscribe": ",".join(topics)}
    found = reading.queues_of(options)
    if settings.fail_on_data_loss:
        _check_loss(ledger, found.firsts, topics)
    units = tuple(unit for unit in ledger.units if any(span.queue.topic in topics for span in unit.spans))
    spans: list[Span] = []
    for span in _stored(settings, options, found):
        spans += ledger.missing(span)
    return _Seam(content, units, topics, tuple(sorted(spans)))


def _stored(settings: HistorySettings, options: Mapping[str, str], found: reading.UnreadQueues) -> list[Span]:
    """The brokers' spans for the given time range."""
    if settings.since is None and settings.until is None:
        return [Span(queue, found.firsts[queue], end) for queue, end in found.ends.items()]
    return reading.spans_of(between(options, settings.since, settings.until))


def _check_loss(ledger: ArchiveLedger, firsts: Mapping[MessageQueue, int], topics: Sequence[str]) -> None:
    """Raises `DataLossError` for offsets after a queue's first archived one that are neither archived nor
    stored.
    """
    for queue in ledger.queues:
        covered = ledger.covered(queue)
        if queue.topic not in topics or queue not in firsts or covered[0].start >= firsts[queue]:
            continue
        gone = ledger.missing(Span(queue, covered[0].start, firsts[queue]))
        if gone:
            raise DataLossError(
                f"queue {queue}: offsets {gone[0].start} to {gone[0].end - 1} were deleted before they were "
                "archived; fail_on_data_loss=False continues without them",
                what="offsets",
                value=gone[0],
            )


def _live(
    spark: SparkSession, settings: HistorySettings, spans: Sequence[Span], columns: Mapping[str, str]
) -> DataFrame:
    """Spans of the live log in the shape of the archive."""
    from pyspark.sql import functions as F

    names = dict.fromkeys((*NEEDED, *(columns or SOURCE_COLUMNS)))
    schema = ddl({name: kind for name, kind in SOURCE_COLUMNS.items() if name in names})
    options = reading.assigned(settings.source_options, spans)
    frame = reading.batch(spark, options, schema).selectExpr("*", *settings.select)
    return _narrowed(frame, settings, dated=False).withColumn("date", F.expr(UTC_DATE))


def _narrowed(frame: DataFrame, settings: HistorySettings, *, dated: bool) -> DataFrame:
    """Rows of the given time range; `dated` frames are partitioned by date, which is filtered first."""
    from pyspark.sql import functions as F

    for bound, is_start in ((settings.since, True), (settings.until, False)):
        if bound is None:
            continue
        moment = F.lit(datetime.fromtimestamp(bound / 1000, UTC))
        day = F.lit(datetime.fromtimestamp(bound / 1000, UTC).date())
        stored = frame["store_timestamp"]
        frame = frame.where(stored >= moment if is_start else stored < moment)
        if dated:
            frame = frame.where(frame["date"] >= day if is_start else frame["date"] <= day)
    return frame
