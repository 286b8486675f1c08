"""The result as one self-contained HTML page: charts, tables and the reconciliation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from sparrowmq.cli.demo.reconcile import Reconciliation
from sparrowmq.cli.demo.totals import FlightTotals
from sparrowmq.plots.charts import Axis, Line, line_chart
from sparrowmq.plots.page import STYLES, page, table


@dataclass(frozen=True, slots=True)
class DemoSample:
    """Messages sent, stored and processed so far, `seconds` after the start."""

    seconds: float
    sent: int
    stored: int
    processed: int


@dataclass(frozen=True, slots=True)
class DemoRun:
    """The result of one run of the demo."""

    title: str
    seconds: float
    totals: FlightTotals
    samples: Sequence[DemoSample]
    verdict: Reconciliation
    summaries: int
    summaries_received: int


def _minutes(value: float) -> str:
    return f"{value:+.0f} min" if value else "0 min"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:g} s"


def delay_chart(totals: FlightTotals) -> str:
    """Mean departure delay by scheduled hour, one line for each origin."""
    lines = [
        Line(origin, [(hour, tally.mean_delay) for hour, tally in hours.items() if tally.departed], style)
        for (origin, hours), style in zip(totals.by_hour().items(), STYLES, strict=False)
    ]
    hours = Axis("scheduled hour of departure", lambda hour: f"{hour:.0f}:00")
    return line_chart("Mean departure delay by hour", lines, hours, Axis("mean delay", _minutes))


def flow_chart(samples: Sequence[DemoSample]) -> str:
    """Flights sent, stored and processed over time, and the number of waiting ones."""
    lines = [
        Line("sent", [(s.seconds, s.sent) for s in samples], "one"),
        Line("stored", [(s.seconds, s.stored) for s in samples], "three"),
        Line("processed", [(s.seconds, s.processed) for s in samples], "four"),
        Line("lag", [(s.seconds, max(0, s.stored - s.processed)) for s in samples], "two"),
    ]
    return line_chart("Flights through the system", lines, Axis("time", _seconds), Axis("flights", _count))


def _verdict(verdict: Reconciliation) -> str:
    faults = verdict.faults
    rows = table(
        ("", "flights#"),
        [
            ("in the source", _count(verdict.expected)),
            ("sent and acknowledged", _count(verdict.sent)),
            ("stored in the broker's queues", _count(verdict.stored)),
            ("in Parquet", _count(verdict.parquet.rows)),
            ("duplicates in Parquet", _count(verdict.parquet.duplicates)),
            ("missing in Parquet", _count(verdict.parquet.missing)),
        ],
    )
    if not faults:
        text = "<strong>sent = stored = in Parquet</strong>No duplicate, no gap."
        return f'<div class="verdict good">{text}</div>{rows}'
    items = "".join(f"<li>{escape(fault)}</li>" for fault in faults)
    return f'<div class="verdict bad"><strong>The counts do not match</strong><ul>{items}</ul></div>{rows}'


def render(run: DemoRun) -> str:
    """The page."""
    totals = run.totals
    origins = table(
        ("origin", "flights#", "cancelled#", "mean delay#"),
        [
            (origin, _count(tally.flights), _count(tally.cancelled), f"{tally.mean_delay:+.1f} min")
            for origin, tally in totals.by_origin().items()
        ],
    )
    routes = table(
        ("from", "to", "mostly flown by", "flights#", "mean delay#"),
        [
            (
                r.origin,
                f"{r.dest} {r.dest_name}".strip(),
                r.airline,
                _count(r.tally.flights),
                f"{r.tally.mean_delay:+.1f} min",
            )
            for r in totals.worst_routes()
        ],
    )
    lead = (
        f"{_count(totals.flights)} flights in {run.seconds:.0f} s through name server, broker and a PySpark "
        f"stream of {totals.batches} micro-batches; {run.summaries_received} of {run.summaries} summaries "
        "came back."
    )
    return page(
        run.title,
        lead,
        _verdict(run.verdict),
        f"<h2>Departure delay by hour and origin</h2>{delay_chart(totals)}{origins}",
        f"<h2>The ten worst routes</h2>{routes}",
        f"<h2>Flights through the system, and lag over time</h2>{flow_chart(run.samples)}",
    )
