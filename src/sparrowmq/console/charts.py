"""Charts of figures over time: the positions of lines, marks and labels, and the values as a table. Pure.

Lines differ in dashes and marks, not only in colour. Unknown values are gaps. The template converts this to
SVG, with words in the reader's language; the style sheet sets colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, pairwise
from typing import Any, Final

from sparrowmq.console import shown
from sparrowmq.coordinator.history.grains import UNKNOWN, Figure, coarser
from sparrowmq.plots.charts import nice_step

WIDTH: Final = 600
HEIGHT: Final = 220
LEFT: Final = 72
RIGHT: Final = 16
TOP: Final = 12
BOTTOM: Final = 28
POINTS_MAX: Final = 180
"""Maximum number of points of a line; each covers several steps when there are more."""
LINES_MAX: Final = 6
MARKS: Final = 5
"""Number of marks of a line, in addition to the last point."""
TICKS: Final = 4
LEAST_STEPS: Final = {"number": 1.0, "rate": 0.1}
"""Steps between grid lines, chosen so that no two have the same label."""
DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
KINDS: Final = {
    "cluster-in": "rate",
    "cluster-out": "rate",
    "topic-in": "rate",
    "topic-out": "rate",
    "group-lag": "number",
    "queue-lag": "number",
    "group-age": "span",
    "broker-in": "rate",
    "broker-out": "rate",
    "broker-disk": "percent",
    "broker-log": "bytes",
    "service-took": "span",
    "service-failed": "number",
}
"""How the values of a figure are shown."""
SECONDS_STEPS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800)
SHAPES: Final = (
    "M-3.500 0a3.500 3.500 0 1 0 7 0a3.500 3.500 0 1 0 -7 0Z",
    "M-3.500 -3.500H3.500V3.500H-3.500Z",
    "M0 -4.500L4.500 3.500H-4.500Z",
    "M0 -4.500L4.500 0L0 4.500L-4.500 0Z",
    "M-4.500 -3.500H4.500L0 4.500Z",
    "M-4 -1.300H-1.300V-4H1.300V-1.300H4V1.300H1.300V4H-1.300V1.300H-4Z",
)
"""Marks: circle, square, triangle, diamond, triangle on its tip, cross."""


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """One line; `number` selects its dashes, mark and colour, `key` the words for its name."""

    key: str
    name: str
    number: int
    path: str
    marks: Sequence[tuple[float, float]]
    shape: str
    last: str
    peak: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One chart. `rows` are the values as texts, `None` if unknown, the oldest first."""

    key: str
    kind: str
    lines: Sequence[DrawnLine]
    across: Sequence[tuple[float, str]]
    times: Sequence[tuple[float, int, str]]
    rows: Sequence[tuple[int, Sequence[str | None]]]
    form: str
    """Whether times are shown as `time` or `day`."""
    left_out: int = 0
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM

    @property
    def is_empty(self) -> bool:
        """Whether all values in this time are unknown."""
        return not any(line.path for line in self.lines)


NAMED: Final = frozenset({"chart.worst", "chart.queues"})
"""Charts whose lines are named after objects, not after figures."""


def chart(key: str, series: Sequence[dict[str, Any]], found: dict[str, Any]) -> Chart:
    """A chart of series of one kind, from the API's answer `found`; if there are many, those with the highest
    peaks.
    """
    kind = KINDS[series[0]["figure"]] if series else "number"
    lines = [(one, [UNKNOWN if value is None else value for value in one["values"]]) for one in series]
    if len(lines) > LINES_MAX:
        lines = sorted(lines, key=lambda line: -_peak(line[1]))[:LINES_MAX]
    chosen, step = [], 1
    for one, values in lines:
        points, step = coarser(Figure(one["figure"]), values, POINTS_MAX)
        chosen.append((one, points))
    step_ms, end_ms = found["step_ms"] * step, found["end_ms"]
    count = len(chosen[0][1]) if chosen else 0
    top, ticks = scale(max((_peak(points) for _, points in chosen), default=0.0), kind)
    drawn = [
        _line(one, points, number, (top, kind), is_named=key in NAMED)
        for number, (one, points) in enumerate(chosen)
    ]
    times = [end_ms - (count - 1 - place) * step_ms for place in range(count)]
    texts = [[said(kind, value) for value in points] for _, points in chosen]
    rows = [(at, [column[place] for column in texts]) for place, at in enumerate(times)]
    span = count * step_ms
    form = "day" if span > 2 * DAY_MS else "time"
    return Chart(
        key, kind, drawn, [(_y(value, top), said(kind, value) or "") for value in ticks],
        _times(times, span, form), rows, form, len(series) - len(chosen),
    )  # fmt: skip


def scale(peak: float, kind: str) -> tuple[float, list[float]]:
    """The end of the scale, and the values that have a grid line."""
    if kind == "percent":
        return 100.0, [0.0, 25.0, 50.0, 75.0, 100.0]
    peak = peak if peak > 0 else 1.0
    if kind == "span":
        step = next((float(one) for one in SECONDS_STEPS if peak <= one * TICKS), 0.0)
        step = step if step and peak >= 1 else nice_step(peak, TICKS) if peak < 1 else _days(peak)
    elif kind == "bytes":
        unit = 1024.0 ** max(0, min(5, (int(peak).bit_length() - 1) // 10))
        step = nice_step(peak / unit, TICKS) * unit
    else:
        step = max(LEAST_STEPS.get(kind, 0.0), nice_step(peak, TICKS))
    count = max(1, -(-peak // step))
    return count * step, [step * tick for tick in range(int(count) + 1)]


def said(kind: str, value: float) -> str | None:
    """A value for display; None for an unknown one."""
    if value != value:
        return None
    if value == 0:
        return "0"
    if kind == "span":
        return shown.span(value * 1000)
    if kind == "percent":
        return f"{value:.4g}\u202f%"
    if kind == "bytes":
        return shown.size(value)
    return shown.rate(value) if kind == "rate" else shown.count(round(value))


def _days(peak: float) -> float:
    return 86_400.0 * max(0.5, nice_step(peak / 86_400, TICKS))


def _peak(points: Sequence[float]) -> float:
    """The highest value, at least 0. An unknown one is never the highest: comparisons with NaN are false."""
    return max(chain((0.0,), points))


def _line(
    one: dict[str, Any], points: Sequence[float], number: int, scale_: tuple[float, str], *, is_named: bool
) -> DrawnLine:
    top, kind = scale_
    placed = [
        None if value != value else (_x(place, len(points)), _y(value, top))
        for place, value in enumerate(points)
    ]
    known = [value for value in points if value == value]
    return DrawnLine(
        f"chart.{one['figure']}",
        one["name"] if is_named else "",
        number,
        _path(placed),
        _marks(placed, number),
        SHAPES[number],
        (said(kind, points[-1]) if points else None) or "",
        said(kind, max(known)) or "" if known else "",
    )


def _path(placed: Sequence[tuple[float, float] | None]) -> str:
    """The path: it restarts after each gap; a single point is a line of length 0, drawn as a dot."""
    parts: list[str] = []
    if not placed:
        return ""
    for before, here, after in zip([None, *placed[:-1]], placed, [*placed[1:], None], strict=True):
        if here is None:
            continue
        parts.append(f"{'M' if before is None else 'L'}{here[0]:g} {here[1]:g}")
        if before is None and after is None:
            parts.append("h0")
    return "".join(parts)


def _marks(placed: Sequence[tuple[float, float] | None], number: int) -> list[tuple[float, float]]:
    """Positions of a line's marks: different from those of other lines, and at its last point."""
    if not placed:
        return []
    gap = max(1, len(placed) // MARKS)
    wanted = {number * gap // LINES_MAX + gap * turn for turn in range(MARKS)}
    last = max((place for place, point in enumerate(placed) if point is not None), default=-1)
    return [point for place, point in enumerate(placed) if point and (place in wanted or place == last)]


def _times(times: Sequence[int], span: int, form: str) -> list[tuple[float, int, str]]:
    """The labelled times, round ones in UTC; the browser shows them in the reader's time zone."""
    if not times:
        return []
    step = 3 * DAY_MS if form == "day" else 3 * HOUR_MS if span > 2 * HOUR_MS else 600_000
    found = []
    for place, (before, at) in enumerate(pairwise([times[0] - 1, *times])):
        if at // step != before // step:
            text = datetime.fromtimestamp(at // step * step / 1000, UTC)
            label = text.strftime("%m-%d" if form == "day" else "%H:%M")
            found.append((_x(place, len(times)), at // step * step, label))
    return found


def _x(place: int, count: int) -> float:
    return round(LEFT + place / max(1, count - 1) * (WIDTH - LEFT - RIGHT), 1)


def _y(value: float, top: float) -> float:
    return round(HEIGHT - BOTTOM - min(1.0, max(0.0, value / top)) * (HEIGHT - TOP - BOTTOM), 1)
