"""The sides of an audit: what was sent, stored and consumed, each read and decoded once.

A side is a value created from the sides that must be read before it, so no side can be read too early.

    window ──► traces ──► messages      what is traced by then is stored by then
                  ├─────► sent
                  └─────► consumed
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparrowmq.spark.pipelines.audit.comparison import JudgedWindow
from sparrowmq.spark.pipelines.audit.frames import AuditRun
from sparrowmq.spark.pipelines.audit.messages import Messages, read_messages, window_of
from sparrowmq.spark.pipelines.audit.sent import SentRows, read_sent
from sparrowmq.spark.pipelines.audit.traces import Traces, read_traces
from sparrowmq.spark.pipelines.query import trace_records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Sides:
    """What was sent, stored and consumed."""

    window: JudgedWindow
    traces: Traces
    sent: SentRows
    consumed: DataFrame | None
    """Ends of consumption from traces; None when no group is judged by traces."""
    stored: Messages


def read_sides(run: AuditRun) -> Sides:
    """Read every side. Raises `SettingsError` and the cluster's errors."""
    window = window_of(run)
    traces = read_traces(run, window)
    return Sides(
        window,
        traces,
        sent=read_sent(run, window, traces),
        consumed=_consumed(run, traces),
        stored=read_messages(run, window, traces),
    )


def _consumed(run: AuditRun, traces: Traces) -> DataFrame | None:
    if not run.settings.groups or traces.records is None:
        return None
    return trace_records.consumptions(traces.records, by_key=run.settings.by_key)
