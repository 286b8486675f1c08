"""A day's report as one HTML page. Pure: figures from Spark in, text out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

from sparrowmq.plots.charts import Axis, Bar, Line, bar_chart, line_chart
from sparrowmq.plots.page import STYLES, page, table
from sparrowmq.spark.pipelines.report.settings import HOUR_MS, Day

TOPICS_MAX: Final = 30
"""Topics with a separate section; the overview table and the Parquet files have the others."""
QUEUES_MAX: Final = 64
"""Maximum bars of one chart."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a page: rows of each table, as written."""

    day: Day
    topics: Sequence[Row] = ()
    hours: Sequence[Row] = ()
    sizes: Sequence[Row] = ()
    queues: Sequence[Row] = ()
    keys: Sequence[Row] = ()
    tags: Sequence[Row] = ()
    producers: Sequence[Row] = ()
    groups: Sequence[Row] = ()
    progress: Sequence[Row] = ()
    source: str = ""
    doubts: Sequence[str] = field(default_factory=tuple)
    """Why messages of the day may be missing."""
    is_over: bool = True

    def of(self, name: str, topic: str) -> list[Row]:
        """The rows of a table about one topic."""
        rows: Sequence[Row] = getattr(self, name)
        return [row for row in rows if row["topic"] == topic]


def render(content: Content) -> str:
    """The page."""
    day, found = content.day, content.topics
    lead = (
        f"{_count(_sum(found, 'messages'))} messages with {_bytes(_sum(found, 'bytes'))} in {len(found)} "
        f"topics, stored from midnight to midnight in {day.zone}, read from {content.source}."
    )
    by_size = sorted(found, key=lambda row: (-row["messages"], row["topic"]))
    return page(
        f"Messages on {day}",
        lead,
        _notes(content),
        _overview(by_size),
        "<h2>Messages by hour</h2>" + _hours(content, [row["topic"] for row in by_size[: len(STYLES)]]),
        _groups(content),
        *(_topic(content, row) for row in by_size[:TOPICS_MAX]),
        _left_out(len(found) - TOPICS_MAX),
    )


def _notes(content: Content) -> str:
    notes = list(content.doubts)
    if not content.is_over:
        notes.insert(0, "the day is not over; run it again after midnight")
    if not notes:
        return '<div class="verdict good"><strong>The day is complete</strong>No message is missing.</div>'
    items = "".join(f"<li>{escape(note)}</li>" for note in notes[:10])
    return f'<div class="verdict bad"><strong>The day is not complete</strong><ul>{items}</ul></div>'


def _overview(topics: Iterable[Row]) -> str:
    columns = (
        "topic", "messages#", "bodies#", "half#", "95 %#", "99 %#", "largest#",
        "busiest queue#", "top key#", "born earlier#",
    )  # fmt: skip
    rows = [
        (
            row["topic"],
            _count(row["messages"]),
            _bytes(row["bytes"]),
            *(_bytes(row[name]) for name in ("size_p50", "size_p95", "size_p99", "size_max")),
            f"{row['queue_skew']:.2f} × mean",
            _percent(row["top_key_share"]),
            _count(row["born_earlier"]),
        )
        for row in topics
    ]
    return "<h2>Topics</h2>" + _wide(table(columns, rows))


def _wide(text: str) -> str:
    return f'<div style="overflow-x:auto">{text}</div>'


def _hours(content: Content, topics: Sequence[str]) -> str:
    lines = []
    for topic, style in zip(topics, STYLES, strict=False):
        counts = {row["hour"]: row["messages"] for row in content.of("hours", topic)}
        points = [(float(hour), float(counts.get(hour, 0))) for hour in range(content.day.hours)]
        lines.append(Line(topic, points, style))
    hours = Axis("hour of storing", lambda hour: content.day.hour_name(int(hour)))
    return line_chart("Messages by hour", lines, hours, Axis("messages", _count))


def _groups(content: Content) -> str:
    if not content.groups:
        return "<h2>Consumer groups</h2><p>No groups were recorded that day.</p>"
    columns = (
        "group", "topic", "as of", "lag#", "oldest waits#", "consumed#", "retries#", "dead letters#",
    )  # fmt: skip
    rows = [
        (
            row["group"],
            row["topic"],
            "–" if row["as_of"] is None else f"{row['as_of']:%Y-%m-%d %H:%M} UTC",
            _count(row["lag_messages"]),
            _seconds(row["lag_seconds"]),
            _count(row["consumed"]),
            _count(row["retries"]),
            _count(row["dead_letters"]),
        )
        for row in content.groups
    ]
    made = "<h2>Consumer groups</h2>" + _wide(table(columns, rows))
    return (
        made
        + _lag_chart(content, "lag_messages", "Lag over the day, messages", _count)
        + _lag_chart(content, "lag_seconds", "Lag over the day, age of the oldest", _seconds)
    )


def _lag_chart(content: Content, name: str, title: str, text: Callable[[float], str]) -> str:
    series: dict[str, list[tuple[float, float]]] = {}
    for row in content.progress:
        hour = (row["at"].timestamp() * 1000 - content.day.start) / HOUR_MS
        series.setdefault(f"{row['group']} · {row['topic']}", []).append((hour, float(row[name])))
    most = sorted(series, key=lambda key: (-max(value for _, value in series[key]), key))[: len(STYLES)]
    if not any(len(series[key]) > 1 for key in most):
        return ""
    lines = [Line(key, series[key], style) for key, style in zip(most, STYLES, strict=False)]
    hours = Axis("hour", lambda hour: content.day.hour_name(int(hour)))
    return f"<h3>{escape(title)}</h3>" + line_chart(title, lines, hours, Axis("", text))


def _topic(content: Content, row: Row) -> str:
    topic = row["topic"]
    sizes = [
        Bar(f"≤ {_bytes(one['size_to'])}", one["messages"], "three")
        for one in content.of("sizes", topic)
        if one["size_to"] is not None
    ]
    queues = content.of("queues", topic)
    names = {one["broker"] for one in queues}
    bars = [
        Bar(
            f"{one['broker']}/{one['queue_id']}" if len(names) > 1 else str(one["queue_id"]),
            one["messages"],
            "two" if one["share"] * len(queues) > 1.5 else "one",
            f"{one['broker']} queue {one['queue_id']}: {_count(one['messages'])}, {_percent(one['share'])}",
        )
        for one in queues[:QUEUES_MAX]
    ]
    keys = f"{_count(row['distinct_keys'])} different keys, {_count(row['without_key'])} messages without"
    return "".join(
        (
            f"<h2>{escape(topic)}</h2>",
            "<h3>Sizes of bodies</h3>",
            bar_chart("Sizes of bodies", sizes, "bytes", Axis("messages", _count)),
            "<h3>Queues</h3>",
            bar_chart("Messages by queue", bars, "queue", Axis("messages", _count)),
            f"<h3>Keys</h3><p>{escape(keys)}</p>",
            _ranked("key", content.of("keys", topic), "key"),
            "<h3>Tags</h3>",
            _ranked("tag", content.of("tags", topic), "tag"),
            "<h3>Producers</h3>",
            _ranked("host", content.of("producers", topic), "born at"),
        )
    )


def _ranked(name: str, rows: Sequence[Row], title: str) -> str:
    if not rows:
        return "<p>None.</p>"
    return table(
        (title, "messages#", "share#", "bodies#"),
        [
            (
                "(none)" if row[name] is None else row[name],
                _count(row["messages"]),
                _percent(row["share"]),
                _bytes(row["bytes"]),
            )
            for row in rows
        ],
    )


def _left_out(count: int) -> str:
    return f"<p>{count} more topics are in the tables beside this page.</p>" if count > 0 else ""


def _sum(rows: Iterable[Row], name: str) -> int:
    return sum(row[name] or 0 for row in rows)


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "–"
    if value < 120:
        return f"{value:,.0f} s"
    return f"{value / 60:,.0f} min" if value < 7200 else f"{value / 3600:,.1f} h"


def _bytes(value: float | None) -> str:
    if value is None:
        return "–"
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" or value >= 100 else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TB"
