"""`sql`: topics as tables, live, archived or both; naming a topic in a query is enough.

Only the topics in a query are looked up. Each table is a snapshot from the moment of the query: all uses
of it and all later reads of the result have the same messages.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.bodies.ddl import quoted
from sparrowmq.spark.pipelines.archive.archive import read_archive
from sparrowmq.spark.pipelines.archive.ledger import ArchiveLedger
from sparrowmq.spark.pipelines.archive.location import content_of
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.steps import AT_MOST, Plan, Step
from sparrowmq.spark.pipelines.query.history import HistorySettings, history, plan_history
from sparrowmq.spark.pipelines.query.statements import names_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "sql"
TEXT: Final = "text"
"""An additional column of every table: the body as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSettings:
    """The source of tables: the cluster, an archive, or both (then each message is read once)."""

    name_server: str = ""
    """`host:port;…`; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR`."""
    directory: str | Path | None = None
    """An archive; its topics are tables, too."""
    live: bool = True
    """Whether to query the cluster."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""

    def __post_init__(self) -> None:
        if not self.live and self.directory is None:
            text = "without the live log a query needs an archive: give its directory"
            raise SettingsError(text, "directory", other="live")


def mentioned(query: str, tables: Collection[str]) -> list[str]:
    """The tables that a query may name, ignoring case as SQL does.

    Raises `SettingsError` when a name matches two topics that differ only in case.
    """
    words = {name.lower() for name in names_in(query)}
    found = sorted((t for t in tables if t.lower() in words), key=lambda t: (t.lower(), t))
    for one, other in pairwise(found):
        if one.lower() == other.lower():
            raise SettingsError(
                f"topics {one!r} and {other!r} differ only in case, which SQL ignores; read them with "
                f"spark.read.format('{reading.FORMAT}')",
                what="topic",
                value=one,
                other=other,
            )
    return found


def tables_of(settings: SqlSettings) -> list[str]:
    """The topics that can be tables, sorted. Raises `ArchiveError`, `TransportError`, …"""
    found: set[str] = set()
    if settings.live:
        with reading.admin({**_options(settings), "subscribe": "any"}) as admin:
            found.update(admin.topics.list())
    found.update(_archived(settings))
    return sorted(found)


def sql(
    spark: SparkSession, query: str, settings: SqlSettings, tables: Collection[str] | None = None
) -> DataFrame:
    """The result of a query over topics as tables (temporary views of the session).

    `tables` are the existing topics, if known. Tables have the source's columns and `text`. Raises the errors
    of `tables_of`, and Spark's for a wrong query.
    """
    known = tables_of(settings) if tables is None else tables
    archived = _archived(settings)
    for name in mentioned(query, known):
        frame = _table(spark, name, settings, name in archived)
        if "body" in frame.columns and TEXT not in frame.columns:
            frame = frame.withColumn(TEXT, frame["body"].cast("string"))
        frame.createOrReplaceTempView(quoted(name))
    return spark.sql(query)


def plan_sql(query: str, settings: SqlSettings, tables: Collection[str] | None = None) -> Plan:
    """The tables that a query would read, their sources, and the maximum read of each. Starts no Spark.

    Conditions on times and offsets in the query reduce it. Raises the errors of `sql`.
    """
    known = tables_of(settings) if tables is None else tables
    archived = _archived(settings)
    steps, rows = [], 0
    for name in mentioned(query, known):
        if name not in archived:
            waiting = sum(map(len, reading.spans_of({**_options(settings), "subscribe": name})))
            steps.append(Step("read", name, {"live": f"{waiting:,} messages"}))
        elif settings.live:
            planned = plan_history(_both(settings, name))
            waiting = planned.rows or 0
            steps.append(Step("read", name, {"archive and live": f"{waiting:,} messages at most"}))
        else:
            waiting = _archived_rows(settings, name)
            steps.append(Step("read", name, {"archive": f"{waiting:,} messages at most"}))
        rows += waiting
    return Plan(NAME, tuple(steps), rows, AT_MOST)


def dry_run_sql(
    spark: SparkSession, query: str, settings: SqlSettings, tables: Collection[str] | None = None
) -> list[tuple[str, str]]:
    """Have Spark analyse a query without reading messages. Returns the columns of its result with their
    types, in order.

    Raises the errors of `sql`.
    """
    return [(one.name, one.dataType.simpleString()) for one in sql(spark, query, settings, tables).schema]


def _archived_rows(settings: SqlSettings, name: str) -> int:
    """Messages of the archive's batches that contain messages of a topic."""
    units = _ledger(settings).units
    return sum(unit.rows for unit in units if any(span.queue.topic == name for span in unit.spans))


def _both(settings: SqlSettings, name: str) -> HistorySettings:
    """A topic, archived and live."""
    assert settings.directory is not None
    return HistorySettings(
        directory=settings.directory,
        topics=(name,),
        name_server=settings.name_server,
        options=settings.options,
    )


def _table(spark: SparkSession, name: str, settings: SqlSettings, is_archived: bool) -> DataFrame:
    if settings.directory is None or not is_archived:
        return reading.batch(spark, reading.fixed({**_options(settings), "subscribe": name}))
    if settings.live:
        return history(spark, _both(settings, name))
    frame = read_archive(spark, settings.directory)
    return frame.where(frame["topic"] == name)


def _archived(settings: SqlSettings) -> set[str]:
    return set() if settings.directory is None else {queue.topic for queue in _ledger(settings).queues}


def _ledger(settings: SqlSettings) -> ArchiveLedger:
    """The archive's topics."""
    assert settings.directory is not None
    return content_of(settings.directory).ledger


def _options(settings: SqlSettings) -> dict[str, str]:
    named = {"nameServer": settings.name_server} if settings.name_server else {}
    return {**settings.options, **named}
