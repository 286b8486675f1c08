"""The rows of a part as a replay sends them: filtered, transformed, without the properties of their first
delivery.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.columnar.schema import DEFAULT_COLUMNS
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import PROPERTY_START_DELIVER_TIME, SYSTEM_PROPERTIES, MessageQueue
from sparrowmq.spark.bodies.ddl import ddl
from sparrowmq.spark.bodies.schema import SOURCE_COLUMNS
from sparrowmq.spark.pipelines.archive.location import content_of
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.common.queries import explain
from sparrowmq.spark.pipelines.replay.directory import Part, Replay, ReplayError
from sparrowmq.spark.pipelines.replay.settings import DEFAULTS, ReplaySettings

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


MARK_REPLAY: Final = "SPARROW_REPLAY"
"""Property of replayed messages: the id of the replay."""
MARK_ORIGIN: Final = "SPARROW_ORIGIN"
"""Property of replayed messages: topic/broker/queue/offset of the source message."""
TEXT: Final = "text"
"""A column for conditions and expressions: the body as text."""
_TYPES: Final = dict.fromkeys(("tags", "keys", "sharding_key"), "string") | {
    "properties": "map<string,string>"
}
_PLACE: Final = "_place"
_PLACES: Final = "map<string, struct<first: bigint, end: bigint, broker: string, queue: int>>"
_CLOCK: Final = re.compile(r"\b(current_timestamp|current_date|current_time|localtimestamp|now|curdate)\(")
_OFF: Final = (*SYSTEM_PROPERTIES, PROPERTY_START_DELIVER_TIME, MARK_REPLAY, MARK_ORIGIN)


def part_rows(
    spark: SparkSession, settings: ReplaySettings, options: Mapping[str, str], replay: Replay, part: Part
) -> DataFrame:
    """The rows of a part for the sink, in the same order each time.

    `options` are the source's. Raises `ReplayError` for columns that an archive lacks, `SettingsError` for
    wrong expressions, and for those whose values change between runs.
    """
    from pyspark.sql import functions as F

    frame = _live(spark, options, part) if settings.archive is None else _archived(spark, settings, part)
    key = F.concat_ws("/", "broker", "queue_id")
    places = F.from_json(F.lit(_places(replay, part)), _PLACES)
    frame = frame.withColumn(TEXT, frame["body"].cast("string")).withColumn(_PLACE, places[key])
    frame = _narrowed(frame, settings)
    if settings.archive is not None:
        # Files are merged from time to time: only the order within queues is the same every time.
        frame = frame.where(f"queue_offset >= {_PLACE}.first and queue_offset < {_PLACE}.end")
        frame = frame.repartition(part.tasks, "broker", "queue_id")
        frame = frame.sortWithinPartitions("broker", "queue_id", "queue_offset")
    return _sent(frame, settings, replay)


def check_reproducible(frame: DataFrame) -> None:
    """Raises `SettingsError` for rows that would change in another attempt: sent ones could not be
    recognised. It cannot check this over Spark Connect.
    """
    java: Any = getattr(frame, "_jdf", None)
    if java is None:
        return
    plan = java.queryExecution().analyzed()
    clock = _CLOCK.search(str(plan.toString()))
    if clock is not None or not plan.deterministic():
        what = f"{clock[1]}()" if clock is not None else "an expression"
        raise SettingsError(
            f"{what} in where or values is not deterministic, so a restart could not know what was sent; "
            f"give a constant, or an expression of the message's columns",
            "where",
            what,
        )


def _live(spark: SparkSession, options: Mapping[str, str], part: Part) -> DataFrame:
    # The division into tasks must not depend on the session: tasks name the messages they send.
    own = {"maxPartitions": str(part.tasks), "pushFilters": "false"}
    chosen = {**reading.assigned(options, part.spans), **own}
    return reading.batch(spark, chosen, ddl({name: SOURCE_COLUMNS[name] for name in DEFAULT_COLUMNS}))


def _archived(spark: SparkSession, settings: ReplaySettings, part: Part) -> DataFrame:
    from pyspark.sql import functions as F

    assert settings.archive is not None
    content = content_of(settings.archive)
    wanted = {span.queue: span for span in part.spans}
    units = []
    for unit in content.ledger.units:
        near = ((span, wanted[span.queue]) for span in unit.spans if span.queue in wanted)
        if any(span.start < mine.end and mine.start < span.end for span, mine in near):
            units.append(unit)
    frame = content.read(spark, units)
    frame = frame.where(frame["topic"] == part.topic)
    if "body" not in frame.columns:
        text = f"archive {settings.archive} has no column body, so there is nothing to send"
        raise ReplayError(text, "archive", what="body")
    for name in ("tags", "keys", "properties", "msg_id"):
        if name in frame.columns:
            continue
        if name not in settings.values and (name != "msg_id" or settings.ids == "keep"):
            way = "renew ids" if name == "msg_id" else f"give a value for it, such as {name}=null"
            text = f"archive {settings.archive} has no column {name}; {way} to send without it"
            raise ReplayError(text, "archive", what=name)
        frame = frame.withColumn(name, F.lit(None).cast(SOURCE_COLUMNS[name]))
    tags = [tag.strip() for tag in settings.tags.split("||") if tag.strip() not in ("", "*")]
    return frame.where(frame["tags"].isin(*tags)) if tags else frame


def _places(replay: Replay, part: Part) -> str:
    """For each queue of the part its offsets and its target queue."""
    targets = replay.targets[part.topic]
    numbers = {queue: number for number, queue in enumerate(sources(replay, part.topic))}
    found = {}
    for span in part.spans:
        to = targets[numbers[span.queue] % len(targets)]
        found[f"{span.queue.broker_name}/{span.queue.queue_id}"] = {
            "first": span.start,
            "end": span.end,
            "broker": to.broker_name,
            "queue": to.queue_id,
        }
    return json.dumps(found)


def sources(replay: Replay, topic: str) -> list[MessageQueue]:
    """The replayed queues of a topic, sorted: the first goes to the target's first, and so on."""
    return sorted({span.queue for span in replay.spans if span.queue.topic == topic})


def _narrowed(frame: DataFrame, settings: ReplaySettings) -> DataFrame:
    from pyspark.sql import functions as F

    stored = frame["store_timestamp"]
    if settings.since is not None:
        frame = frame.where(stored >= F.lit(datetime.fromtimestamp(settings.since / 1000, UTC)))
    if settings.until is not None:
        frame = frame.where(stored < F.lit(datetime.fromtimestamp(settings.until / 1000, UTC)))
    if not settings.where:
        return frame
    with _told("where", settings.where):
        return frame.where(settings.where)


def _sent(frame: DataFrame, settings: ReplaySettings, replay: Replay) -> DataFrame:
    from pyspark.sql import functions as F

    chosen: dict[str, Column] = {}
    for name, usual in DEFAULTS.items():
        text = settings.values.get(name, usual)
        with _told(name, text):
            chosen[name] = F.expr(text).cast(_TYPES[name]) if name in _TYPES else F.expr(text)
            if name in settings.values:
                frame.select(chosen[name])
    nothing = F.from_json(F.lit("{}"), _TYPES["properties"])
    properties = F.coalesce(chosen["properties"], nothing)
    properties = F.map_filter(properties, lambda name, value: ~name.isin(*_OFF))
    if settings.mark:
        origin = F.concat_ws("/", "topic", "broker", "queue_id", "queue_offset")
        marks = F.create_map(F.lit(MARK_REPLAY), F.lit(replay.id), F.lit(MARK_ORIGIN), origin)
        properties = F.map_concat(properties, marks)
    columns = [chosen[name].alias(name) for name in ("body", "tags", "keys", "sharding_key")]
    columns.append(properties.alias("properties"))
    if settings.names_queues:
        columns += [F.col(f"{_PLACE}.broker").alias("broker"), F.col(f"{_PLACE}.queue").alias("queue_id")]
    if settings.ids == "keep":
        columns.append(F.col("msg_id"))
    return frame.select(*columns)


@contextmanager
def _told(name: str, text: str) -> Iterator[None]:
    """Raise Spark's error about an expression with the setting's name."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise SettingsError(f"{name}={text!r}: {explain(error)}", name, text) from None
