"""Stored messages of a stretch of time: from the live log, an archive, or both; and whether all are there.

What `audit` and `report` stand on. Times are epoch milliseconds of storing, the second one excluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparrowmq import Admin, ClientSettings
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.connections import client_settings
from sparrowmq.spark.faults import DataLossError
from sparrowmq.spark.offsets import Span
from sparrowmq.spark.option_types import LATEST
from sparrowmq.spark.options import ReadOptions
from sparrowmq.spark.pipelines import reading
from sparrowmq.spark.pipelines.archive import read_archive
from sparrowmq.spark.pipelines.archive_home import ArchiveHome, ddl, directory
from sparrowmq.spark.pipelines.history import HistorySettings, history, plan_history
from sparrowmq.spark.pipelines.ledger import Ledger
from sparrowmq.spark.schema import SOURCE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_EARLIEST: Final = "earliestMessageTimeStamp"
"""Under this name brokers tell the store time of the oldest message of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Where messages are looked for: the cluster, an archive, or (with both) each from where it is."""

    topics: tuple[str, ...]
    name_server: str = ""
    directory: str | Path | None = None
    """An archive."""
    live: bool = True
    """Whether the cluster is asked."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""

    def __post_init__(self) -> None:
        if not self.topics:
            raise SettingsError("no topic is named; give one or more")
        if not self.live and self.directory is None:
            raise SettingsError("without the live log an archive is needed: give its directory")

    @property
    def source_options(self) -> dict[str, str]:
        """Options of every read of the live log."""
        named = {"nameServer": self.name_server} if self.name_server else {}
        return {**self.options, **named, "subscribe": ",".join(self.topics)}

    @property
    def ledger(self) -> Ledger:
        """What the archive holds; nothing without one."""
        if self.directory is None:
            return Ledger()
        return ArchiveHome(directory(self.directory)).load()

    def of(self, topic: str) -> Stored:
        """The same for another topic, without the archive where that does not have it."""
        kept = any(queue.topic == topic for queue in self.ledger.queues)
        where = self.directory if kept or not self.live else None
        return replace(self, topics=(topic,), directory=where)

    def __str__(self) -> str:
        if self.directory is None:
            return "the live log"
        return f"archive {self.directory}{' and the live log' if self.live else ''}"


def admin_of(options: Mapping[str, str]) -> Admin:
    """An admin client for the cluster that a read with these options asks; not started yet."""
    return Admin(settings=ClientSettings(**client_settings(ReadOptions.parse(options, None))))


def between(options: Mapping[str, str], since: int, until: int) -> dict[str, str]:
    """Options of a read of what was stored in a stretch of time."""
    return {
        **options,
        "startingTimestamp": str(max(0, since)),
        "startingOffsetsByTimestampStrategy": LATEST,
        "endingTimestamp": str(until),
    }


def live_spans(where: Stored, since: int, until: int) -> list[Span]:
    """What the brokers have of a stretch of time."""
    return reading.spans_of(between(where.source_options, since, until))


def read(spark: SparkSession, where: Stored, columns: Sequence[str], since: int, until: int) -> DataFrame:
    """The messages stored from `since` to before `until`, some of the source's columns.

    Raises `SettingsError` when the archive lacks a column, and what the cluster answers.
    """
    if where.directory is None:
        spans = live_spans(where, since, until)
        return _within(read_spans(spark, where, (*columns, "store_timestamp"), spans), columns, since, until)
    _need_columns(where, columns)
    if not where.live:
        frame = read_archive(spark, where.directory)
        first, last = (datetime.fromtimestamp(at / 1000, UTC).date() for at in (since, until))
        frame = frame.where(frame["topic"].isin(*where.topics) & frame["date"].between(first, last))
        return _within(frame, columns, since, until)
    settings = HistorySettings(
        directory=where.directory,
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
    """Those of `columns` that can be had: an archive has what was kept."""
    if where.directory is None:
        return list(columns)
    kept = {"topic", *where.ledger.columns}
    return [name for name in columns if name in kept]


def _need_columns(where: Stored, columns: Iterable[str]) -> None:
    wanted = list(columns)
    missing = sorted(set(wanted) - set(optional_columns(where, wanted)))
    if missing:
        raise SettingsError(
            f"archive {where.directory} has no column {missing[0]!r}; archive it with that column"
        )


def _within(frame: DataFrame, columns: Sequence[str], since: int, until: int) -> DataFrame:
    from pyspark.sql import functions as F

    at = F.unix_millis("store_timestamp")
    return frame.where((at >= since) & (at < until)).select(*columns)


def gaps(where: Stored, since: int, until: int) -> list[str]:
    """Why messages stored in that time may be missing, in words; nothing when all of them are there.

    Asks the cluster, starts no Spark. Of an archive alone only its beginning can be judged here.
    """
    if where.directory is None:
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
            f"{queue} is archived from offset {start} on only"
            for queue, start in begun.items()
            if start and queue.topic in where.topics
        ]
        return found + [f"topic {topic} is not archived" for topic in absent]
    try:
        plan_history(
            HistorySettings(
                directory=where.directory,
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
    """Queues whose messages of after `since` may have been deleted by retention already."""
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
        f"{queue}: messages before offset {held.firsts[queue]} are deleted, none that is left was stored "
        f"before {moment(since)}"
        for queue in doubtful
    ]


def _holds_older(where: Stored, queues: Sequence[MessageQueue], since: int) -> set[MessageQueue]:
    """Queues that still have a message stored before `since`: nothing after it is deleted there."""
    if not queues:
        return set()
    before = {span.queue for span in live_spans(where, 0, since)}
    return before & set(queues)


def _reaching_brokers(options: Mapping[str, str], since: int) -> set[str]:
    """Brokers whose oldest message of all was stored before `since`, by what they tell."""
    with admin_of(options) as admin:
        return {
            broker.broker_name
            for broker in admin.broker_list()
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
