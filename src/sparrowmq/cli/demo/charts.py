"""Line charts as SVG: axes, lines with a tooltip at each point, a legend. No scripts, no network."""

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
DOTS_MAX: Final = 60
"""Lines with more points than this are drawn without dots; their tooltips would overlap."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart; `style` is the CSS class that gives its colour."""

    name: str
    points: Sequence[tuple[float, float]]
    style: str


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis: its title and how its numbers are written."""

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
    """An SVG element; an empty text when there is nothing to draw."""
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
        _, y = place(x_low, value)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 8}" y="{y + 4}">{escape(y_axis.text(value))}</text>')
    first = math.ceil(x_low / x_step) * x_step
    for value in _ticks(first, math.floor(x_high / x_step) * x_step, x_step):
        x, _ = place(value, y_low)
        parts.append(
            f'<text class="tick mid" x="{x}" y="{HEIGHT - BOTTOM + 18}">{escape(x_axis.text(value))}</text>'
        )
    parts += _legend(lines)
    parts.append(f'<text class="axis" x="{LEFT - 60}" y="{TOP - 14}">{escape(y_axis.title)}</text>')
    parts.append(f'<text class="axis end" x="{WIDTH - RIGHT}" y="{HEIGHT - 8}">{escape(x_axis.title)}</text>')
    for line in lines:
        parts += _draw(line, place, x_axis, y_axis)
    return "".join([*parts, "</svg>"])


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
