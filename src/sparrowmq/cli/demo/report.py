"""The result as one HTML page that needs nothing else: charts, tables and the reconciliation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from sparrowmq.cli.demo.charts import Axis, Line, line_chart
from sparrowmq.cli.demo.reconcile import Verdict
from sparrowmq.cli.demo.totals import Totals

STYLES: Final = ("one", "two", "three", "four")

CSS: Final = """
:root {
  color-scheme: light dark; --ink: #1c2430; --soft: #5b6878; --line: #d9dfe7; --page: #fff; --box: #f5f7fa;
  --one: #2166c4; --two: #d1602b; --three: #2b8a4b; --four: #8a4bb8; --good: #1f7a3f; --bad: #b3261e;
}
@media (prefers-color-scheme: dark) { :root {
  --ink: #e6ebf2; --soft: #9aa7b8; --line: #333d4a; --page: #12171e; --box: #1b222c;
  --one: #6aa5f5; --two: #f0925f; --three: #63c788; --four: #c08ae8; --good: #63c788; --bad: #ff8a80;
} }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); margin: 0 auto;
  padding: 2rem 1.25rem; max-width: 920px; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; }
p.lead { color: var(--soft); margin: .3rem 0 1.2rem; }
.verdict { border-left: 5px solid; padding: .7rem 1rem; background: var(--box); }
.verdict.good { border-color: var(--good); } .verdict.bad { border-color: var(--bad); }
.verdict strong { display: block; } .verdict.good strong { color: var(--good); }
.verdict.bad strong { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; } .n { text-align: right; }
svg { width: 100%; height: auto; } svg text { fill: var(--soft); font: 13px system-ui, sans-serif; }
.end { text-anchor: end; } .mid { text-anchor: middle; } .grid { stroke: var(--line); }
polyline { fill: none; stroke-width: 2.2; stroke-linejoin: round; } svg line { stroke-width: 2.2; }
svg line.grid { stroke-width: 1; } circle { stroke: none; }
""" + "".join(
    f"polyline.{name}, line.{name} {{ stroke: var(--{name}); }} circle.{name} {{ fill: var(--{name}); }}\n"
    for name in STYLES
)


@dataclass(frozen=True, slots=True)
class Sample:
    """Messages sent, stored and processed so far, `seconds` after the start."""

    seconds: float
    sent: int
    stored: int
    processed: int


@dataclass(frozen=True, slots=True)
class Run:
    """What one run of the demo brought."""

    title: str
    seconds: float
    totals: Totals
    samples: Sequence[Sample]
    verdict: Verdict
    summaries: int
    summaries_received: int


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    head = "".join(
        f'<th class="{"n" if name.endswith("#") else ""}">{escape(name.rstrip("#"))}</th>' for name in columns
    )
    body = []
    for row in rows:
        cells = (
            f'<td class="{"n" if name.endswith("#") else ""}">{escape(str(value))}</td>'
            for name, value in zip(columns, row, strict=True)
        )
        body.append(f"<tr>{''.join(cells)}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _minutes(value: float) -> str:
    return f"{value:+.0f} min" if value else "0 min"


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    return f"{value:g} s"


def delay_chart(totals: Totals) -> str:
    """Mean departure delay by scheduled hour, one line for each origin."""
    lines = [
        Line(origin, [(hour, tally.mean_delay) for hour, tally in hours.items() if tally.departed], style)
        for (origin, hours), style in zip(totals.by_hour().items(), STYLES, strict=False)
    ]
    hours = Axis("scheduled hour of departure", lambda hour: f"{hour:.0f}:00")
    return line_chart("Mean departure delay by hour", lines, hours, Axis("mean delay", _minutes))


def flow_chart(samples: Sequence[Sample]) -> str:
    """Flights sent, stored and processed over time, and how many wait."""
    lines = [
        Line("sent", [(s.seconds, s.sent) for s in samples], "one"),
        Line("stored", [(s.seconds, s.stored) for s in samples], "three"),
        Line("processed", [(s.seconds, s.processed) for s in samples], "four"),
        Line("lag", [(s.seconds, max(0, s.stored - s.processed)) for s in samples], "two"),
    ]
    return line_chart("Flights through the system", lines, Axis("time", _seconds), Axis("flights", _count))


def _verdict(verdict: Verdict) -> str:
    faults = verdict.faults
    rows = _table(
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
    return f'<div class="verdict bad"><strong>The books do not balance</strong><ul>{items}</ul></div>{rows}'


def render(run: Run) -> str:
    """The page."""
    totals = run.totals
    origins = _table(
        ("origin", "flights#", "cancelled#", "mean delay#"),
        [
            (origin, _count(tally.flights), _count(tally.cancelled), f"{tally.mean_delay:+.1f} min")
            for origin, tally in totals.by_origin().items()
        ],
    )
    routes = _table(
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
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(run.title)}</title><style>{CSS}</style></head><body>
<h1>{escape(run.title)}</h1><p class="lead">{escape(lead)}</p>
{_verdict(run.verdict)}
<h2>Departure delay by hour and origin</h2>{delay_chart(totals)}{origins}
<h2>The ten worst routes</h2>{routes}
<h2>Flights through the system, and lag over time</h2>{flow_chart(run.samples)}
</body></html>
"""
