"""What an audit would read and write. Only `dry_run_audit` needs Spark, and reads no message."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import NoRouteError
from sparrowmq.spark.pipelines.audit.messages import stored_columns
from sparrowmq.spark.pipelines.audit.sent import check_ledger
from sparrowmq.spark.pipelines.audit.settings import AuditSettings
from sparrowmq.spark.pipelines.common.steps import Plan, Step, offsets
from sparrowmq.spark.pipelines.query import stored
from sparrowmq.spark.pipelines.query.stored import moment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME: Final = "audit"
VERDICT_FILE: Final = "verdict.json"
FINDINGS: Final = "findings"
Clock = Callable[[], float]


def plan_audit(settings: AuditSettings, now: Clock = time) -> Plan:
    """What `audit` would read and write now. Asks the cluster, starts no Spark, writes nothing."""
    since, until = settings.window(int(now() * 1000))
    steps, rows = [], 0
    window = {"from": moment(since), "to before": moment(until)}
    if settings.needs_trace:
        waiting = _traces_waiting(settings, since, int(now() * 1000))
        rows += waiting
        steps.append(
            Step("read traces", f"{settings.trace_topic} of {settings.trace}", {"messages": waiting})
        )
    if settings.ledger:
        steps.append(Step("read ledger", settings.ledger, {"format": settings.ledger_kind}))
    if settings.spans:
        window = offsets(settings.spans)
    waiting = _stored_waiting(settings, since, until)
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
        Step("compare", f"stored with consumed by {group.name}", {"by": "its traces, or else its offsets"})
        for group in settings.groups
    ]
    steps.append(Step("write", f"{settings.directory}/{VERDICT_FILE}", {"every finding": FINDINGS}))
    return Plan(NAME, tuple(steps), rows)


def _traces_waiting(settings: AuditSettings, since: int, now: int) -> int:
    """Traced messages; none when no broker has their topic: the verdict reports that."""
    try:
        return _waiting(settings.trace, since - int(settings.margin_seconds * 1000), now + 1)
    except NoRouteError:
        return 0


def _stored_waiting(settings: AuditSettings, since: int, until: int) -> int:
    """Number of messages stored in the window, counted by offsets."""
    if settings.spans:
        return sum(map(len, settings.spans))
    margin = int(settings.margin_seconds * 1000)
    return _waiting(settings.stored, since - margin, until + margin)


def _waiting(where: stored.Stored, since: int, until: int) -> int:
    if not where.live:
        return sum(unit.rows for unit in where.ledger.units)
    return sum(map(len, stored.live_spans(where, since, until)))


def dry_run_audit(spark: SparkSession, settings: AuditSettings, now: Clock = time) -> dict[str, int]:
    """Check the settings against topics, archive and ledger, read no message; return how many there are to
    read.

    These are `stored` messages, and `traces` if sends or consumption come from traces. Of a ledger of
    producers only the columns are checked.
    """
    since, until = settings.window(int(now() * 1000))
    columns = stored_columns(settings)
    stored.read(spark, settings.stored, columns, since, until)
    if settings.ledger:
        check_ledger(spark, settings)
    counts = {"stored": _stored_waiting(settings, since, until)}
    if settings.needs_trace:
        counts["traces"] = _traces_waiting(settings, since, int(now() * 1000))
    return counts
