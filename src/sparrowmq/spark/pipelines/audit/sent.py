"""The sent messages, from traces or from the producers' own files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.audit import comparison
from sparrowmq.spark.pipelines.audit.comparison import JudgedWindow
from sparrowmq.spark.pipelines.audit.frames import AuditRun
from sparrowmq.spark.pipelines.audit.messages import id_column, id_name
from sparrowmq.spark.pipelines.audit.names import bare_column, known_topics, namesakes, shared
from sparrowmq.spark.pipelines.audit.settings import AuditSettings
from sparrowmq.spark.pipelines.audit.traces import Traces
from sparrowmq.spark.pipelines.query import stored, trace_records

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SPECIAL: Final = re.compile(r"[\[\]{}*?\\]")


@dataclass(frozen=True, slots=True)
class SentRows:
    """Sends as `topic`, `id`, `sent_at` (epoch ms) and `certain`; None when they are not judged."""

    rows: DataFrame | None
    doubts: tuple[str, ...] = ()
    """Whether the topic of some sends is unknown."""


def read_sent(run: AuditRun, window: JudgedWindow, traces: Traces) -> SentRows:
    """The sends of the window and a margin around it."""
    settings = run.settings
    if not settings.with_sent:
        return SentRows(None)
    if settings.ledger:
        return SentRows(_within(run, window, read_ledger(run.spark, settings)))
    if traces.records is None:
        kinds = "topic string, id string, sent_at bigint, certain boolean"
        return SentRows(run.spark.createDataFrame([], kinds))
    return _attributed(run, window, trace_records.sends(traces.records, by_key=settings.by_key))


def _within(run: AuditRun, window: JudgedWindow, sends: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return sends.where(F.col("topic").isin(*run.settings.topics) & _near(run, window))


def _near(run: AuditRun, window: JudgedWindow) -> Column:
    from pyspark.sql import functions as F

    at = F.col("sent_at")
    return (at >= window.since - run.margin) & (at < window.until + run.margin)


def _attributed(run: AuditRun, window: JudgedWindow, sends: DataFrame) -> SentRows:
    """Traced sends with their topics: traces have names without namespaces.

    If topics share a name, a send was for the one that has its message. A send whose message is in none of
    them is not certain.
    """
    from pyspark.sql import functions as F

    topics = run.settings.topics
    names = namesakes(topics, known_topics(run.settings.stored))
    name_of = {topic: name for name, those in names.items() for topic in those}
    firsts = {name_of[topic]: topic for topic in reversed(topics)}
    pairs = F.create_map(*(F.lit(text) for pair in firsts.items() for text in pair))
    named = sends.withColumn("name", bare_column(F.col("topic")))
    named = named.withColumn("topic", F.try_element_at(pairs, F.col("name"))).where("topic is not null")
    several = shared(names)
    if not several:
        return SentRows(_within(run, window, named.drop("name")))
    places = run.frames.persist(_places(run, window, several, name_of))
    found = run.frames.persist(named.where(_near(run, window)).join(places, ["name", "id"], "left"))
    lone = F.col("name").isin(*(name for name, those in names.items() if len(those) == 1))
    known = lone | F.col("place").isNotNull()
    strays = int(found.where(~known & F.col("certain")).count())
    doubt = (
        f"{strays:,} traced sends are stored in none of {', '.join(several)}: traces do not name the topic "
        f"they were sent to"
    )
    rows = found.select(
        F.coalesce("place", "topic").alias("topic"),
        "id",
        "sent_at",
        (F.col("certain") & known).alias("certain"),
    )
    return SentRows(_within(run, window, rows), (doubt,) if strays else ())


def _places(
    run: AuditRun, window: JudgedWindow, topics: Sequence[str], names: Mapping[str, str]
) -> DataFrame:
    """Which of some topics has a message: `name`, `id`, `place`."""
    from pyspark.sql import functions as F

    since, until = window.since - run.margin, window.until + run.margin
    by_key = run.settings.by_key
    frames = []
    for topic in topics:
        frame = stored.read(run.spark, run.settings.stored.of(topic), (id_name(by_key),), since, until)
        frames.append(
            frame.select(
                F.lit(names[topic]).alias("name"), id_column(by_key).alias("id"), F.lit(topic).alias("place")
            ).distinct()
        )
    return comparison.union(frames)


def read_ledger(spark: SparkSession, settings: AuditSettings) -> DataFrame:
    """The producers' files as `topic`, `id`, `sent_at` (epoch ms) and `certain`.

    Raises `SettingsError` when rows lack one of them.
    """
    found = ledger_rows(settings, _frames(spark, settings))
    bad = int(found.where("topic is null or id is null or sent_at is null").count())
    if bad:
        raise SettingsError(
            f"{bad:,} rows of ledger {settings.ledger} have no topic, id or time; correct them, or name "
            f"the right columns with ledger_columns",
            "ledger_columns",
            bad,
        )
    return found


def check_ledger(spark: SparkSession, settings: AuditSettings) -> None:
    """Raise Spark's errors for a ledger without the columns, by the header of one of its files."""
    ledger_rows(settings, [_frame(spark, settings, settings.ledger)])


def ledger_rows(settings: AuditSettings, frames: Iterable[DataFrame]) -> DataFrame:
    """The rows of a ledger's files as `topic`, `id`, `sent_at` and `certain`."""
    from pyspark.sql import functions as F

    names = {name: name for name in ("topic", "id", "time")} | dict(settings.ledger_columns)
    expressions = [f"{expression} as {name}" for name, expression in names.items()]
    found = []
    for frame in frames:
        chosen = frame.selectExpr(*expressions)
        found.append(
            chosen.select(
                F.col("topic").cast("string").alias("topic"),
                F.col("id").cast("string").alias("id"),
                _millis(chosen.schema["time"].dataType.typeName()).alias("sent_at"),
                F.lit(True).alias("certain"),
            )
        )
    return comparison.union(found)


def _millis(kind: str) -> Column:
    """The column `time` of a type as epoch milliseconds; text is a number of them or a timestamp."""
    from pyspark.sql import functions as F

    if kind in ("long", "integer", "double", "decimal"):
        return F.col("time").cast("bigint")
    if kind == "string":
        number = F.col("time").try_cast("decimal(38,3)").cast("bigint")
        return F.coalesce(number, F.unix_millis(F.col("time").try_cast("timestamp")))
    return F.unix_millis(F.col("time").cast("timestamp"))


def _frame(spark: SparkSession, settings: AuditSettings, where: str | Sequence[str]) -> DataFrame:
    """Files of a ledger. Values of CSV and JSON are text: a guessed type would change ids like 000123."""
    reader = (
        spark.read.option("mode", "FAILFAST").option("header", "true").option("primitivesAsString", "true")
    )
    return reader.format(settings.ledger_kind).load(where if isinstance(where, str) else list(where))


def _frames(spark: SparkSession, settings: AuditSettings) -> list[DataFrame]:
    """The files, those with equal columns in one table: Spark takes all CSV files to have one header."""
    if settings.ledger_kind != "csv":
        return [_frame(spark, settings, settings.ledger)]
    files = _by_header(spark, settings.ledger)
    if len(files) < 2:
        return [_frame(spark, settings, settings.ledger)]
    return [_frame(spark, settings, those) for those in files]


def _by_header(spark: SparkSession, where: str) -> list[list[str]]:
    """CSV files, grouped by their first lines."""
    from pyspark.sql import functions as F

    lines = spark.read.text(where).select("value", F.col("_metadata.file_path").alias("file"))
    lines = lines.withColumn("line", F.monotonically_increasing_id()).where(F.trim("value") != "")
    headers = lines.groupBy("file").agg(F.min_by("value", "line").alias("header"))
    groups = headers.groupBy("header").agg(F.collect_list("file").alias("files"))
    return [sorted(map(_path, row["files"])) for row in groups.collect()]


def _path(address: str) -> str:
    """A file's address as a path to load, which Spark takes for a pattern."""
    return _SPECIAL.sub(r"\\\g<0>", unquote(address))
