"""`sql`: topics as tables, live, archived or both; a query names them and they are there.

Only what a query names is looked up. Each table is a snapshot of the moment the query was given.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparrowmq import Admin, ClientSettings
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.connections import client_settings
from sparrowmq.spark.options import ReadOptions
from sparrowmq.spark.pipelines import reading
from sparrowmq.spark.pipelines.archive import read_archive
from sparrowmq.spark.pipelines.archive_home import ArchiveHome, directory
from sparrowmq.spark.pipelines.history import HistorySettings, history, plan_history
from sparrowmq.spark.pipelines.ledger import Ledger
from sparrowmq.spark.pipelines.steps import AT_MOST, Plan, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "sql"
TEXT: Final = "text"
"""A column that every table has beside the source's: the body as text."""
_NAME: Final = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|`((?:[^`]|``)+)`|([\w]+)")
"""Strings and comments are passed over; then a quoted name, or a plain one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSettings:
    """Where tables come from: the cluster, an archive, or (with both) each message once from where it is."""

    name_server: str = ""
    """`host:port;…`; by default from `SPARROW_NAMESRV` or `NAMESRV_ADDR`."""
    directory: str | Path | None = None
    """An archive; its topics are tables, too."""
    live: bool = True
    """Whether the cluster is asked at all."""
    options: Mapping[str, str] = field(default_factory=dict)
    """More options of the source."""

    def __post_init__(self) -> None:
        if not self.live and self.directory is None:
            raise SettingsError("without the live log a query needs an archive: give its directory")


def names_in(query: str) -> set[str]:
    """Every word of a query that may name a table, quoted ones without their quotes."""
    return {
        quoted.replace("``", "`") if quoted else plain
        for quoted, plain in _NAME.findall(query)
        if quoted or plain
    }


def mentioned(query: str, tables: Collection[str]) -> list[str]:
    """The tables that a query may name, as SQL compares names: in any case.

    Raises `SettingsError` when a name stands for two topics that differ only in case.
    """
    words = {name.lower() for name in names_in(query)}
    found = sorted((t for t in tables if t.lower() in words), key=lambda t: (t.lower(), t))
    for one, other in pairwise(found):
        if one.lower() == other.lower():
            raise SettingsError(
                f"topics {one!r} and {other!r} differ only in case, which SQL does not tell apart; read "
                f"them with spark.read.format('{reading.FORMAT}')"
            )
    return found


def tables_of(settings: SqlSettings) -> list[str]:
    """The topics that can be tables, sorted. Raises `ArchiveError`, `TransportError`, …"""
    found: set[str] = set()
    if settings.live:
        with Admin(settings=ClientSettings(**_connection(settings))) as admin:
            found.update(admin.topic_list())
    found.update(_archived(settings))
    return sorted(found)


def sql(
    spark: SparkSession, query: str, settings: SqlSettings, tables: Collection[str] | None = None
) -> DataFrame:
    """The result of a query over topics as tables (temporary views of the session).

    `tables` are the topics there are, if known. Tables have the source's columns and `text`. Raises as
    `tables_of`, and what Spark raises on a wrong query.
    """
    known = tables_of(settings) if tables is None else tables
    archived = _archived(settings)
    for name in mentioned(query, known):
        frame = _table(spark, name, settings, name in archived)
        if "body" in frame.columns and TEXT not in frame.columns:
            frame = frame.withColumn(TEXT, frame["body"].cast("string"))
        quoted = name.replace("`", "``")
        frame.createOrReplaceTempView(f"`{quoted}`")
    return spark.sql(query)


def plan_sql(query: str, settings: SqlSettings, tables: Collection[str] | None = None) -> Plan:
    """Which tables a query would read, from where and how much of each at most. Starts no Spark.

    Conditions of the query on times and offsets make it less. Raises as `sql`.
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
    """Have Spark look a query over, and read no message: its result's columns with their types, in order.

    Raises as `sql`.
    """
    return [(one.name, one.dataType.simpleString()) for one in sql(spark, query, settings, tables).schema]


def _archived_rows(settings: SqlSettings, name: str) -> int:
    """Messages of the archive's batches that have some of a topic."""
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
        return reading.batch(spark, {**_options(settings), "subscribe": name})
    if settings.live:
        return history(spark, _both(settings, name))
    frame = read_archive(spark, settings.directory)
    return frame.where(frame["topic"] == name)


def _archived(settings: SqlSettings) -> set[str]:
    return set() if settings.directory is None else {queue.topic for queue in _ledger(settings).queues}


def _ledger(settings: SqlSettings) -> Ledger:
    """What the archive says it has."""
    assert settings.directory is not None
    return ArchiveHome(directory(settings.directory)).load()


def _options(settings: SqlSettings) -> dict[str, str]:
    named = {"nameServer": settings.name_server} if settings.name_server else {}
    return {**settings.options, **named}


def _connection(settings: SqlSettings) -> dict[str, Any]:
    """How the cluster is spoken to: name servers, account, TLS."""
    return client_settings(ReadOptions.parse({**_options(settings), "subscribe": "any"}, None))
