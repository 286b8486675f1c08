"""Charts as SVG: lines with a tooltip at each point and a legend, and bars. No scripts, no network."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 860
HEIGHT: Final = 320
LEFT: Final = 72
RIGHT: Final = 16
TOP: Final = 40
BOTTOM: Final = 44
TICKS: Final = 5
BAR_NAMES_MAX: Final = 14
"""With more bars, only some have labels."""
DOTS_MAX: Final = 60
"""Lines with more points than this are drawn without dots; their tooltips would overlap."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart; `style` is the CSS class of its colour."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its height and its CSS class; `tip` is its tooltip."""

    name: str
    value: float
    style: str = "one"
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its title and the format of its numbers."""

    title: str
    text: Callable[[float], str]


def nice_step(span: float, ticks: int = TICKS) -> float:
    """The step of 1, 2 or 5 times a power of ten that divides `span` into about `ticks` parts."""
    if span <= 0:
        return 1.0
    power: float = 10.0 ** math.floor(math.log10(span / ticks))
    return next(factor * power for factor in (1, 2, 5, 10) if span / (factor * power) <= ticks)


def _bounds(values: Sequence[float]) -> tuple[float, float, float]:
    low, high = min(*values, 0.0), max(*values, 0.0)
    step = nice_step(high - low)
    return math.floor(low / step) * step, max(math.ceil(high / step) * step, step), step


def _ticks(low: float, high: float, step: float) -> list[float]:
    count = round((high - low) / step)
    return [low + i * step for i in range(count + 1)]


def line_chart(title: str, lines: Sequence[Line], x_axis: Axis, y_axis: Axis) -> str:
    """An SVG element; empty text if there are no points."""
    points = [point for line in lines for point in line.points]
    if not points:
        return ""
    x_low, x_high = min(x for x, _ in points), max(x for x, _ in points)
    x_step = nice_step(x_high - x_low, 8)
    x_high = max(x_high, x_low + x_step)
    y_low, y_high, y_step = _bounds([y for _, y in points])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)
        up = (y - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)
        return round(LEFT + across, 1), round(HEIGHT - BOTTOM - up, 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, True)}">']
    for value in _ticks(y_low, y_high, y_step):
        parts += _grid(place(x_low, value)[1], y_axis.text(value))
    first = math.ceil(x_low / x_step) * x_step
    for value in _ticks(first, math.floor(x_high / x_step) * x_step, x_step):
        x, _ = place(value, y_low)
        parts.append(
            f'<text class="tick mid" x="{x}" y="{HEIGHT - BOTTOM + 18}">{escape(x_axis.text(value))}</text>'
        )
    parts += [*_legend(lines), *_titles(x_axis.title, y_axis.title)]
    for line in lines:
        parts += _draw(line, place, x_axis, y_axis)
    return "".join([*parts, "</svg>"])


def bar_chart(title: str, bars: Sequence[Bar], x_title: str, y_axis: Axis) -> str:
    """An SVG element with a bar for each value of 0 or more; empty text if there are none."""
    if not bars:
        return ""
    y_low, y_high, y_step = _bounds([bar.value for bar in bars])

    def up(value: float) -> float:
        return round(HEIGHT - BOTTOM - (value - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM), 1)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title, True)}">']
    for value in _ticks(y_low, y_high, y_step):
        parts += _grid(up(value), y_axis.text(value))
    parts += _titles(x_title, y_axis.title)
    room = (WIDTH - LEFT - RIGHT) / len(bars)
    wide = min(room * 0.75, 60.0)
    named = -(-len(bars) // BAR_NAMES_MAX)
    for number, bar in enumerate(bars):
        middle, top = LEFT + room * (number + 0.5), up(bar.value)
        tip = bar.tip or f"{bar.name}: {y_axis.text(bar.value)}"
        parts.append(
            f'<rect class="{bar.style}" x="{middle - wide / 2:.1f}" y="{top}" width="{wide:.1f}" '
            f'height="{max(0.0, up(0) - top):.1f}"><title>{escape(tip)}</title></rect>'
        )
        if number % named == 0:
            place = f'x="{middle:.1f}" y="{HEIGHT - BOTTOM + 18}"'
            parts.append(f'<text class="tick mid" {place}>{escape(bar.name)}</text>')
    return "".join([*parts, "</svg>"])


def _grid(y: float, text: str) -> list[str]:
    return [
        f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>',
        f'<text class="tick end" x="{LEFT - 8}" y="{y + 4}">{escape(text)}</text>',
    ]


def _titles(x_title: str, y_title: str) -> list[str]:
    return [
        f'<text class="axis" x="{LEFT - 60}" y="{TOP - 14}">{escape(y_title)}</text>',
        f'<text class="axis end" x="{WIDTH - RIGHT}" y="{HEIGHT - 8}">{escape(x_title)}</text>',
    ]


def _legend(lines: Sequence[Line]) -> list[str]:
    parts, x = [], LEFT + 120
    for line in lines:
        parts.append(f'<line class="{line.style}" x1="{x}" x2="{x + 22}" y1="{TOP - 18}" y2="{TOP - 18}"/>')
        parts.append(f'<text class="tick" x="{x + 28}" y="{TOP - 14}">{escape(line.name)}</text>')
        x += 60 + 8 * len(line.name)
    return parts


def _draw(
    line: Line, place: Callable[[float, float], tuple[float, float]], x_axis: Axis, y_axis: Axis
) -> list[str]:
    placed = [place(x, y) for x, y in line.points]
    path = " ".join(f"{x},{y}" for x, y in placed)
    parts = [f'<polyline class="{line.style}" points="{path}"/>']
    if len(placed) <= DOTS_MAX:
        for (x, y), (value_x, value_y) in zip(placed, line.points, strict=True):
            tip = f"{line.name}, {x_axis.text(value_x)}: {y_axis.text(value_y)}"
            parts.append(
                f'<circle class="{line.style}" cx="{x}" cy="{y}" r="3"><title>{escape(tip)}</title></circle>'
            )
    return parts
