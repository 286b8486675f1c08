"""`audit`: what was sent against what is stored against what was consumed, every message by name.

Each side is read once, in a stretch of time around the window that is judged, and matched by joins. A side
that may be incomplete (deleted by retention, not traced) is never taken as proof of a loss.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.errors import NoRouteError, SettingsError
from sparrowmq.spark.pipelines import findings, homes, stored
from sparrowmq.spark.pipelines.audit_names import bare, bare_column, within_reach
from sparrowmq.spark.pipelines.audit_settings import AuditedGroup, AuditSettings
from sparrowmq.spark.pipelines.audit_sides import Sides
from sparrowmq.spark.pipelines.queries import plain_errors
from sparrowmq.spark.pipelines.steps import Plan, Step
from sparrowmq.spark.pipelines.stored import moment
from sparrowmq.spark.pipelines.verdict import GroupResult, Range, Verdict, allowed_of, promises
from sparrowmq.spark.pipelines.watch import Watch

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NAME: Final = "audit"
VERDICT_FILE: Final = "verdict.json"
FINDINGS: Final = "findings"
Clock = Callable[[], float]


def plan_audit(settings: AuditSettings, now: Clock = time) -> Plan:
    """What `audit` would read and write now. Asks the cluster, starts no Spark, writes nothing."""
    since, until = settings.window(int(now() * 1000))
    margin = int(settings.margin_seconds * 1000)
    steps, rows = [], 0
    window = {"from": moment(since), "to before": moment(until)}
    if settings.needs_trace:
        try:
            waiting = _waiting(settings.trace, since - margin, int(now() * 1000) + 1)
        except NoRouteError:
            waiting = 0  # the verdict will say so
        rows += waiting
        steps.append(
            Step("read traces", f"{settings.trace_topic} of {settings.trace}", {"messages": waiting})
        )
    if settings.ledger:
        steps.append(Step("read ledger", settings.ledger, {"format": settings.ledger_kind}))
    if settings.spans:
        waiting = sum(map(len, settings.spans))
        window = {str(span.queue): f"offsets {span.start} to before {span.end}" for span in settings.spans}
    else:
        waiting = _waiting(settings.stored, since - margin, until + margin)
    rows += waiting
    steps.append(
        Step(
            "read stored",
            f"{', '.join(settings.topics)} of {settings.stored}",
            {**window, "messages": waiting},
        )
    )
    if settings.with_sent:
        steps.append(Step("compare", "sent with stored"))
    steps += [
        Step(
            "compare", f"stored with consumed by {group.name}", {"by": "trace if it tells, else its offsets"}
        )
        for group in settings.groups
    ]
    steps.append(Step("write", str(Path(settings.directory) / VERDICT_FILE), {"every finding": FINDINGS}))
    return Plan(NAME, tuple(steps), rows)


def _waiting(where: stored.Stored, since: int, until: int) -> int:
    if not where.live:
        return sum(unit.rows for unit in where.ledger.units)
    return sum(map(len, stored.live_spans(where, since, until)))


def dry_run_audit(spark: SparkSession, settings: AuditSettings, now: Clock = time) -> dict[str, int]:
    """Read and decode every side, write nothing; how many rows each has."""
    with ExitStack() as stack:
        sides = Sides(spark, settings, Watch(), int(now() * 1000), stack)
        counts = {"stored": int(sides.stored.count())}
        if sides.sent is not None:
            counts["sent"] = int(sides.sent.count())
        if sides.consumed is not None:
            counts["consumptions"] = int(sides.consumed.count())
        return counts


def audit(
    spark: SparkSession, settings: AuditSettings, watch: Watch | None = None, now: Clock = time
) -> Verdict:
    """Judge, write `verdict.json` and the Parquet files `findings` into the directory, return the verdict.

    Raises `SettingsError` for what cannot be compared, what the cluster answers, and `PipelineError` for what
    Spark could not do.
    """
    watch = watch or Watch()
    watch.begin(NAME)
    directory = homes.directory(settings.directory, "audit")
    waiting = plan_audit(settings, now).rows or 0
    watch.waiting(waiting)
    with plain_errors(), ExitStack() as stack:
        stack.enter_context(homes.locked(directory, "audit", SettingsError))
        (directory / VERDICT_FILE).unlink(missing_ok=True)
        sides = Sides(spark, settings, watch, int(now() * 1000), stack, waiting)
        verdict = _judge(sides, directory / FINDINGS)
        text = json.dumps(verdict.to_json(), indent=1, ensure_ascii=False)
        homes.replace_file(directory / VERDICT_FILE, f"{text}\n")
    watch.waiting(0)
    return verdict


def _judge(sides: Sides, where: Path) -> Verdict:
    """Match the sides, write the findings to `where`, count them."""
    settings, window = sides.settings, sides.window
    by_id = sides.kept(findings.stored_by_id(sides.stored_ids))
    matched = sides.kept(findings.sent_against_stored(sides.sent, by_id, window))
    parts = [findings.of_sends(matched)]
    names: dict[str, bool] = {}
    doubts: dict[str, list[str]] = {}
    consumed: dict[str, int] = {}
    traced = _traced_groups(sides)
    for group in settings.groups:
        by_trace = names[group.name] = bare(group.name) in traced
        rows = sides.kept(_of_group(sides, group, by_id, by_trace))
        doubts[group.name] = list(sides.trace_doubts) if by_trace else []
        consumed[group.name] = int(rows.where("done").count())
        parts.append(findings.of_group(rows))
    shutil.rmtree(where, ignore_errors=True)
    findings.union(parts).write.mode("overwrite").parquet(str(where))
    written = sides.spark.read.parquet(str(where))
    counts = {(row["group"], row["kind"]): int(row["count"]) for row in _counted(written)}
    groups = [
        GroupResult(name, by_trace, _of(counts, name), tuple(doubts[name]))
        for name, by_trace in names.items()
    ]
    sent = None if sides.sent is None else int(matched.where(window.has(_column("sent_at"))).count())
    ranges = _ranges(sides.stored)
    stored_count = sum(one.messages for one in ranges)
    sent_doubts = [] if settings.ledger else [*sides.trace_doubts, *sides.name_doubts]
    if sent == 0 and stored_count:
        sent_doubts.append(f"{settings.ledger or 'traces'} tell of no message that was sent in that time")
    return Verdict(
        since=window.since,
        until=window.until,
        now=window.now,
        topics=settings.topics,
        sources=_sources(settings, names),
        sent=sent,
        stored=stored_count,
        consumed=consumed,
        found=_summed(counts),
        promises=promises(
            _of(counts, None),
            groups,
            allowed_of(settings.allow),
            with_sent=settings.with_sent,
            sent_doubts=sent_doubts,
            stored_doubts=sides.stored_doubts,
        ),
        ranges=ranges,
        shown=_first(written, settings.shown),
    )


def _of_group(sides: Sides, group: AuditedGroup, by_id: DataFrame, by_trace: bool) -> DataFrame:
    """What the group did with each stored message it should have had."""
    from pyspark.sql import functions as F

    dead = sides.dead_letters(group.name)
    mine = by_id.where(F.col("topic").isin(*within_reach(group.name, sides.settings.topics)))
    if group.tags:
        mine = mine.where(F.col("tags").isin(*sorted(group.tags)))
    if by_trace:
        assert sides.consumed is not None
        calls = sides.consumed.where(bare_column(F.col("group")) == bare(group.name)).select("id", "ok", "at")
        found = findings.stored_against_consumed(mine, calls, dead, sides.window)
    else:
        found = findings.stored_against_offsets(mine, sides.committed(group.name), dead, sides.window)
    return found.withColumn("group", F.lit(group.name))


def _traced_groups(sides: Sides) -> set[str]:
    """Groups whose consumption is told by traces."""
    if sides.consumed is None:
        return set()
    found = {row["group"] for row in sides.consumed.select("group").distinct().collect()}
    return {bare(name) for name in found if name}


def _sources(settings: AuditSettings, groups: Mapping[str, bool]) -> dict[str, str]:
    trace = f"traces in {settings.trace_topic}"
    found = {"stored": str(settings.stored)}
    if settings.with_sent:
        found["sent"] = f"ledger {settings.ledger}" if settings.ledger else trace
    for name, by_trace in groups.items():
        found[f"consumed by {name}"] = trace if by_trace else "offsets of the group"
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
    """The judged offsets of each queue."""
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
