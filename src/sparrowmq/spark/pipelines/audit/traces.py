"""Records of message trace, as an audit needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrowmq.core.errors import NoRouteError
from sparrowmq.spark.pipelines.audit.comparison import JudgedWindow
from sparrowmq.spark.pipelines.audit.frames import AuditRun
from sparrowmq.spark.pipelines.query import stored, trace_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Traces:
    """Trace records of clients; `records` is None if no trace topic exists."""

    records: DataFrame | None
    doubts: tuple[str, ...] = ()
    """Why some may be missing."""


def read_traces(run: AuditRun, window: JudgedWindow) -> Traces:
    """Traces from the start of the window until now; empty if no side needs traces."""
    if not run.settings.needs_trace:
        return Traces(None)
    where, since = run.settings.trace, window.since - run.margin
    try:
        messages = stored.read(run.spark, where, ("body",), since, run.now + 1)
        gaps = stored.gaps(where, since, run.now)
    except NoRouteError:
        return Traces(None, (f"there is no topic {run.settings.trace_topic} with traces",))
    records = trace_records.records(run.frames.read(messages))
    return Traces(records, tuple(f"traces: {gap}" for gap in gaps))
