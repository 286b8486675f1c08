"""Stored messages as an audit needs them: which ones are judged, committed offsets of groups, dead
letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.core.names import dlq_topic
from sparrowmq.spark.pipelines.archive.archive import read_archive
from sparrowmq.spark.pipelines.audit.comparison import JudgedWindow
from sparrowmq.spark.pipelines.audit.frames import AuditRun
from sparrowmq.spark.pipelines.audit.settings import AuditSettings
from sparrowmq.spark.pipelines.audit.traces import Traces
from sparrowmq.spark.pipelines.common import reading
from sparrowmq.spark.pipelines.query import stored, trace_records

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of the window and a margin around it: place, id or keys, tags, `at`, `judged`."""

    rows: DataFrame
    by_key: bool
    doubts: tuple[str, ...]
    """Why some may be missing."""

    @property
    def ids(self) -> DataFrame:
        """The messages with `id`; one row for each key if keys identify messages."""
        return self.rows.withColumn("id", id_column(self.by_key)).drop("msg_id", "keys")


def window_of(run: AuditRun) -> JudgedWindow:
    """The messages to judge. Raises `SettingsError` when nothing is stored at the given offsets."""
    settings = run.settings
    late = int(settings.late_seconds * 1000)
    if not settings.spans:
        since, until = settings.window(run.now)
        return JudgedWindow(since, until, run.now, run.margin, late)
    from pyspark.sql import functions as F

    at = F.unix_millis("store_timestamp")
    times: Any = _of_spans(run, ("store_timestamp",)).agg(F.min(at).alias("a"), F.max(at).alias("b")).first()
    if times is None or times["a"] is None:
        raise SettingsError("no messages are stored at the offsets to audit")
    return JudgedWindow(int(times["a"]), int(times["b"]) + 1, run.now, run.margin, late)


def read_messages(run: AuditRun, window: JudgedWindow, traces: Traces) -> Messages:
    """The messages stored now, after `traces` were read: every message traced by then is also stored by then.

    So a message sent in the meantime can only be missing from the traces, which is not a loss.
    """
    from pyspark.sql import functions as F

    settings = run.settings
    since, until = window.since - run.margin, window.until + run.margin
    frame = stored.read(run.spark, settings.stored, stored_columns(settings), since, until).withColumn(
        "at", F.unix_millis("store_timestamp")
    )
    frame = _marked(run, frame) if settings.spans else frame.withColumn("judged", window.has(F.col("at")))
    rows = run.frames.read(frame.drop("store_timestamp"))
    doubts = stored.gaps(settings.stored, window.since, window.until)
    if not settings.live:
        doubts += _end_of_archive(run, window)
    return Messages(rows, settings.by_key, tuple(doubts))


def stored_columns(settings: AuditSettings) -> tuple[str, ...]:
    """The columns of a stored message that an audit needs."""
    return (
        "topic",
        "broker",
        "queue_id",
        "queue_offset",
        "store_timestamp",
        "tags",
        id_name(settings.by_key),
    )


def id_name(by_key: bool) -> str:
    """The column that identifies messages."""
    return "keys" if by_key else "msg_id"


def id_column(by_key: bool) -> Column:
    """The ids in that column: with `by_key` a row for each key."""
    from pyspark.sql import functions as F

    return F.explode(trace_records.keys_of(F.col("keys"))) if by_key else F.col("msg_id")


def dead_letters(run: AuditRun, window: JudgedWindow, group: str) -> DataFrame | None:
    """The ids of the group's dead letters; None when it has none or only the archive is read."""
    settings = run.settings
    if not settings.live:
        return None
    where = settings.stored.of(dlq_topic(group))
    try:
        spans = stored.live_spans(where, window.since, run.now + 1)
    except NoRouteError:
        return None
    if not spans:
        return None
    frame = stored.read_spans(run.spark, where, (id_name(settings.by_key),), spans)
    return frame.select(id_column(settings.by_key).alias("id"))


def committed(run: AuditRun, group: str) -> DataFrame:
    """The group's offsets. Raises `SettingsError` for one that no broker knows."""
    settings = run.settings
    with reading.admin(settings.stored.source_options) as admin:
        if not admin.groups.config(group):
            text = f"no broker knows group {group!r}; see `sparrow group list`"
            raise SettingsError(text, "groups", group)
        progress = [one for topic in settings.topics for one in admin.groups.progress(group, topic)]
    rows = [
        (one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.consumer_offset)
        for one in progress
        if one.queue.topic in settings.topics
    ]
    kinds = "topic string, broker string, queue_id int, committed bigint"
    return run.spark.createDataFrame(rows, kinds)


def _of_spans(run: AuditRun, columns: Sequence[str]) -> DataFrame:
    """The messages stored at the given offsets."""
    from pyspark.sql import functions as F

    settings = run.settings
    if settings.archive is None:
        return stored.read_spans(run.spark, settings.stored, columns, settings.spans)
    place = ("topic", "broker", "queue_id", "queue_offset")
    every = stored.read(run.spark, settings.stored, tuple(dict.fromkeys((*place, *columns))), 0, run.now + 1)
    return _marked(run, every).where(F.col("judged")).select(*columns)


def _marked(run: AuditRun, frame: DataFrame) -> DataFrame:
    """With `judged`: whether a message is at one of the given offsets."""
    from pyspark.sql import functions as F

    rows = [
        (one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.start, one.end)
        for one in run.settings.spans
    ]
    kinds = "topic string, broker string, queue_id int, first_offset bigint, end_offset bigint"
    spans = F.broadcast(run.spark.createDataFrame(rows, kinds))
    judged = (F.col("queue_offset") >= F.col("first_offset")) & (F.col("queue_offset") < F.col("end_offset"))
    joined = frame.join(spans, ["topic", "broker", "queue_id"], "left")
    return joined.withColumn("judged", F.coalesce(judged, F.lit(False))).drop("first_offset", "end_offset")


def _end_of_archive(run: AuditRun, window: JudgedWindow) -> list[str]:
    """Whether an archive alone covers the whole window."""
    from pyspark.sql import functions as F

    archive = str(run.settings.archive)
    archived = read_archive(run.spark, archive).where(F.col("topic").isin(*run.settings.topics))
    newest: Any = archived.agg(F.max(F.unix_millis("store_timestamp")).alias("at")).first()
    if newest is None or newest["at"] is None or newest["at"] < window.until - 1:
        return [f"archive {archive} ends before {stored.moment(window.until)}"]
    return []
