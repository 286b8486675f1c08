"""What was measured: series of both peers, medians, spread, ratios, and the floors they are judged by."""

from __future__ import annotations

import json
import platform
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.peers import APACHE, KAFKA, OURS

RIVALS: Final = {APACHE: "Apache", KAFKA: "Kafka"}
"""Whom ours is compared with: the first that was measured."""
COLUMNS: Final = {OURS: "ours", APACHE: "Apache RocketMQ", KAFKA: "Kafka"}
LEAST: Final = "at least"
MOST: Final = "at most"


@dataclass
class Series:
    """Values of one quantity, round by round, for each peer (or ceiling)."""

    title: str
    unit: str
    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, peer: str, value: float) -> None:
        """One more value."""
        self.values.setdefault(peer, []).append(value)

    def median(self, peer: str) -> float | None:
        """The median of a peer's values; None without any."""
        found = self.values.get(peer)
        return statistics.median(found) if found else None

    @property
    def rival(self) -> str:
        """Whom ours is compared with."""
        return next((name for name in RIVALS if name in self.values), APACHE)

    @property
    def ratio(self) -> float | None:
        """Our median over the rival's."""
        ours, rival = self.median(OURS), self.median(self.rival)
        return ours / rival if ours is not None and rival else None

    def shown(self, peer: str) -> str:
        """Median and spread as text."""
        found = self.values.get(peer)
        if not found:
            return "–"
        middle = f"{_number(statistics.median(found))} {self.unit}"
        return middle if len(found) == 1 else f"{middle} ({_number(min(found))}…{_number(max(found))})"


@dataclass(frozen=True)
class Floor:
    """A promise: our value, or its ratio to the rival's, stays on one side of a limit."""

    series: str
    sense: str
    limit: float
    absolute: bool = False
    goal: float | None = None
    """What is wished for beyond the limit; told, and never missed."""
    only_goal: bool = False
    """Whether the limit itself is no more than a goal."""

    def judge(self, report: Report) -> tuple[bool, str]:
        """Whether it held, and the sentence that says so; what was not measured does not hold."""
        series = report.series.get(self.series)
        value = None if series is None else series.median(OURS) if self.absolute else series.ratio
        rival = "" if self.absolute else f" × {RIVALS[series.rival if series else APACHE]}"
        what = f"{self.series}: {self.sense} {self.limit:g}{rival}"
        if value is None:
            return False, f"{what}: not measured"
        held = self._holds(value, self.limit)
        said = f"{what}: {_number(value)}"
        if self.goal is not None:
            said += f"; the goal of {self.goal:g} is {'' if self._holds(value, self.goal) else 'not '}reached"
        if self.only_goal:
            return True, f"{said}; a goal, {'' if held else 'not '}reached"
        return held, said

    def _holds(self, value: float, limit: float) -> bool:
        return value >= limit if self.sense == LEAST else value <= limit


class Report:
    """All series of a run."""

    def __init__(self) -> None:
        self.series: dict[str, Series] = {}

    def add(self, title: str, unit: str, peer: str, value: float) -> None:
        """One value of one peer."""
        self.series.setdefault(title, Series(title, unit)).add(peer, value)

    def show(self) -> None:
        """Print the table."""
        others = [name for series in self.series.values() for name in series.values if name != OURS]
        peers = [OURS, *dict.fromkeys(others or [APACHE])]
        rows = [["", *(COLUMNS.get(name, name) for name in peers), "ratio"]]
        for series in self.series.values():
            ratio = "" if series.ratio is None else f"{series.ratio:.2f}"
            rows.append([series.title, *map(series.shown, peers), ratio])
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
        for row in rows:
            print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
        sys.stdout.flush()

    def check(self, floors: list[Floor]) -> bool:
        """Judge the floors, print each verdict; true when all hold."""
        verdicts = [floor.judge(self) for floor in floors]
        for held, sentence in verdicts:
            print(f"{'ok  ' if held else 'MISS'}  {sentence}")
        return all(held for held, _ in verdicts)

    def save(self, path: Path) -> None:
        """Write all values as JSON."""
        series: list[dict[str, Any]] = [
            {"title": one.title, "unit": one.unit, "values": one.values, "ratio": one.ratio}
            for one in self.series.values()
        ]
        machine = {
            "machine": platform.machine(),
            "python": platform.python_version(),
            "system": platform.platform(),
        }
        path.write_text(json.dumps({**machine, "series": series}, indent=1) + "\n")


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3g}"


Turn = Callable[[str], None]


def alternate(rounds: int, peers: list[str], turn: Turn) -> None:
    """Let the peers take turns, the other one first in every second round."""
    for number in range(rounds):
        for peer in peers if number % 2 == 0 else reversed(peers):
            turn(peer)
