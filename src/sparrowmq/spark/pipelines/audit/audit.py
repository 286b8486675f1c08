"""`audit`: what was sent against what is stored against what was consumed, every message by name.

Each side is read once, in a stretch of time around the window that is judged, and matched by joins. A side
that may be incomplete (deleted by retention, not traced) is never taken as proof of a loss.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Any

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.audit import comparison
from sparrowmq.spark.pipelines.audit.frames import AuditRun, Frames
from sparrowmq.spark.pipelines.audit.messages import committed, dead_letters
from sparrowmq.spark.pipelines.audit.names import bare, bare_column, within_reach
from sparrowmq.spark.pipelines.audit.plan import FINDINGS, NAME, VERDICT_FILE, Clock
from sparrowmq.spark.pipelines.audit.plan import dry_run_audit as dry_run_audit
from sparrowmq.spark.pipelines.audit.plan import plan_audit as plan_audit
from sparrowmq.spark.pipelines.audit.settings import AuditedGroup, AuditSettings
from sparrowmq.spark.pipelines.audit.sides import Sides, read_sides
from sparrowmq.spark.pipelines.audit.verdict import GroupResult, Range, Verdict, allowed_of, promises
from sparrowmq.spark.pipelines.common import directories
from sparrowmq.spark.pipelines.common.files import LocalFiles, files_of
from sparrowmq.spark.pipelines.common.queries import plain_errors
from sparrowmq.spark.pipelines.common.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


def audit(
    spark: SparkSession, settings: AuditSettings, watch: Watch | None = None, now: Clock = time
) -> Verdict:
    """Judge, write `verdict.json` and the Parquet files `findings` into the directory, return the verdict.

    Raises `SettingsError` if the settings cannot be compared, the cluster's errors, and `PipelineError` for
    errors of Spark.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    files = files_of(settings.directory, "audit")
    waiting = plan_audit(settings, now).rows or 0
    watch.waiting(waiting)
    with plain_errors(), ExitStack() as stack:
        if isinstance(files, LocalFiles):
            stack.enter_context(directories.locked(files.root, "audit", SettingsError))
        files.delete(VERDICT_FILE)
        frames = stack.enter_context(Frames(watch, waiting))
        run = AuditRun(spark, settings, frames, int(now() * 1000))
        verdict = _judge(run, read_sides(run), f"{files.location}/{FINDINGS}")
        text = json.dumps(verdict.to_json(), indent=1, ensure_ascii=False)
        files.replace(VERDICT_FILE, f"{text}\n")
    watch.waiting(0)
    return verdict


@dataclass(frozen=True, slots=True)
class _Group:
    """What one group did with the messages it should have received."""

    name: str
    by_trace: bool
    rows: DataFrame
    consumed: int
    doubts: tuple[str, ...]


def _judge(run: AuditRun, sides: Sides, where: str) -> Verdict:
    """Match the sides, write the findings to `where`, count them."""
    settings, window = run.settings, sides.window
    by_id = run.frames.persist(comparison.stored_by_id(sides.stored.ids))
    matched = run.frames.persist(comparison.sent_against_stored(sides.sent.rows, by_id, window))
    traced = _traced_groups(sides)
    groups = [_of_group(run, sides, group, by_id, bare(group.name) in traced) for group in settings.groups]
    parts = [comparison.of_sends(matched), *(comparison.of_group(group.rows) for group in groups)]
    comparison.union(parts).write.mode("overwrite").parquet(where)
    written = run.spark.read.parquet(where)
    counts = {(row["group"], row["kind"]): int(row["count"]) for row in _counted(written)}
    sent = None if sides.sent.rows is None else int(matched.where(window.has(_column("sent_at"))).count())
    ranges = _ranges(sides.stored.rows)
    stored_count = sum(one.messages for one in ranges)
    sent_doubts = [] if settings.ledger else [*sides.traces.doubts, *sides.sent.doubts]
    if sent == 0 and stored_count:
        sent_doubts.append(f"{settings.ledger or 'traces'}: no sent message is recorded for that time")
    return Verdict(
        since=window.since,
        until=window.until,
        now=window.now,
        topics=settings.topics,
        sources=_sources(settings, groups),
        sent=sent,
        stored=stored_count,
        consumed={group.name: group.consumed for group in groups},
        found=_summed(counts),
        promises=promises(
            _of(counts, None),
            [GroupResult(one.name, one.by_trace, _of(counts, one.name), one.doubts) for one in groups],
            allowed_of(settings.allow),
            with_sent=settings.with_sent,
            sent_doubts=sent_doubts,
            stored_doubts=sides.stored.doubts,
        ),
        ranges=ranges,
        shown=_first(written, settings.shown),
    )


def _of_group(run: AuditRun, sides: Sides, group: AuditedGroup, by_id: DataFrame, by_trace: bool) -> _Group:
    """Match a group: by its traces if there are any, else by its committed offsets."""
    from pyspark.sql import functions as F

    dead = dead_letters(run, sides.window, group.name)
    mine = by_id.where(F.col("topic").isin(*within_reach(group.name, run.settings.topics)))
    if group.tags:
        mine = mine.where(F.col("tags").isin(*sorted(group.tags)))
    if by_trace:
        assert sides.consumed is not None
        calls = sides.consumed.where(bare_column(F.col("group")) == bare(group.name)).select("id", "ok", "at")
        found = comparison.stored_against_consumed(mine, calls, dead, sides.window)
    else:
        found = comparison.stored_against_offsets(mine, committed(run, group.name), dead, sides.window)
    rows = run.frames.persist(found.withColumn("group", F.lit(group.name)))
    doubts = sides.traces.doubts if by_trace else ()
    return _Group(group.name, by_trace, rows, int(rows.where("done").count()), doubts)


def _traced_groups(sides: Sides) -> set[str]:
    """Groups whose consumption is recorded in traces."""
    if sides.consumed is None:
        return set()
    found = {row["group"] for row in sides.consumed.select("group").distinct().collect()}
    return {bare(name) for name in found if name}


def _sources(settings: AuditSettings, groups: Iterable[_Group]) -> dict[str, str]:
    trace = f"traces in {settings.trace_topic}"
    found = {"stored": str(settings.stored)}
    if settings.with_sent:
        found["sent"] = f"ledger {settings.ledger}" if settings.ledger else trace
    for group in groups:
        found[f"consumed by {group.name}"] = trace if group.by_trace else "offsets of the group"
    return found


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(name)


def _counted(written: DataFrame) -> list[Any]:
    return list(written.groupBy("group", "kind").count().collect())


def _of(counts: Mapping[tuple[str | None, str], int], group: str | None) -> dict[str, int]:
    return {kind: count for (name, kind), count in counts.items() if name == group}


def _summed(counts: Mapping[tuple[str | None, str], int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for (_, kind), count in counts.items():
        found[kind] = found.get(kind, 0) + count
    return found


def _ranges(frame: DataFrame) -> tuple[Range, ...]:
    """The offsets of each queue that are judged."""
    from pyspark.sql import functions as F

    rows = (
        frame.where("judged")
        .groupBy("topic", "broker", "queue_id")
        .agg(
            F.min("queue_offset").alias("first"),
            F.max("queue_offset").alias("last"),
            F.count("*").alias("messages"),
        )
        .orderBy("topic", "broker", "queue_id")
        .collect()
    )
    return tuple(Range(**row.asDict()) for row in rows)


def _first(written: DataFrame, count: int) -> list[dict[str, Any]]:
    """The first findings as JSON values."""
    from pyspark.sql import functions as F

    order = ("kind", "topic", "group", "stored_at", "sent_at", "id")
    rows = written.orderBy(*order).limit(count).select(F.to_json(F.struct("*")).alias("text")).collect()
    return [json.loads(row["text"]) for row in rows]
