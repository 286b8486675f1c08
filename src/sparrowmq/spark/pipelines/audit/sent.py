"""The sent messages, from traces or from the producers' own files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    found = ledger_rows(spark, settings)
    bad = int(found.where("topic is null or id is null or sent_at is null").count())
    if bad:
        raise SettingsError(
            f"{bad:,} rows of ledger {settings.ledger} have no topic, id or time; correct them, or name "
            f"the right columns with ledger_columns"
        )
    return found


def ledger_rows(spark: SparkSession, settings: AuditSettings, *, infer: bool = True) -> DataFrame:
    """The same without checks; without `infer` all columns of a CSV file are strings, and it is not read."""
    from pyspark.sql import functions as F

    kind = settings.ledger_kind
    reader = spark.read.option("mode", "FAILFAST")
    if kind == "csv":
        reader = reader.option("header", "true").option("inferSchema", str(infer).lower())
    frame = reader.format(kind).load(settings.ledger)
    names = {name: name for name in ("topic", "id", "time")} | dict(settings.ledger_columns)
    chosen = frame.selectExpr(*(f"{expression} as {name}" for name, expression in names.items()))
    is_number = chosen.schema["time"].dataType.typeName() in ("long", "integer", "double", "decimal")
    at = F.col("time").cast("bigint") if is_number else F.unix_millis(F.col("time").cast("timestamp"))
    return chosen.select(
        F.col("topic").cast("string").alias("topic"),
        F.col("id").cast("string").alias("id"),
        at.alias("sent_at"),
        F.lit(True).alias("certain"),
    )
