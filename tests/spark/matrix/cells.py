"""The cells of the fault matrix: what runs, what happens to it, what is another afterwards. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Final


class Scenario(StrEnum):
    """What runs."""

    STREAM = "stream"
    JOB = "job"
    KEYED = "keyed"
    MIRROR = "mirror"
    REPLAY = "replay"
    ARCHIVE = "archive"


class Fault(StrEnum):
    """What happens to it, at a random moment in its middle."""

    DRIVER = "driver"
    EXECUTOR = "executor"
    WORKER = "worker"
    BROKER = "broker"
    LOST = "lost"
    FROZEN = "frozen"


class Change(StrEnum):
    """What is another when it starts again."""

    FEWER = "fewer"
    MORE = "more"
    SETTINGS = "settings"
    LARGER = "larger"
    REMADE = "remade"


class Promise(StrEnum):
    """What the pages promise of a cell. Nothing is ever missing."""

    ONCE = "once"
    AT_LEAST_ONCE = "at least once"
    """Rows have no keys, and are divided otherwise: so said, and refused by `delivery=exactlyOnce`."""
    REFUSED = "refused"
    """An archive of another topic of the same name: a directory of its own goes on."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination."""

    scenario: Scenario
    fault: Fault
    change: Change

    @property
    def id(self) -> str:
        """Its name, as tests and records have it."""
        return f"{self.scenario}-{self.fault}-{self.change}"

    @property
    def promise(self) -> Promise:
        """What must hold."""
        if self.scenario is Scenario.JOB and self.change in (Change.FEWER, Change.MORE):
            return Promise.AT_LEAST_ONCE
        if self.scenario is Scenario.ARCHIVE and self.change is Change.REMADE:
            return Promise.REFUSED
        return Promise.ONCE


def cell_of(name: str) -> Cell:
    """The inverse of `Cell.id`. Raises ValueError."""
    scenario, fault, change = name.split("-")
    return Cell(Scenario(scenario), Fault(fault), Change(change))


def _turn(places: tuple[tuple[int, Scenario], tuple[int, Fault], tuple[int, Change]]) -> int:
    """Cells of one turn have each scenario with each fault, and with all changes in between."""
    (scenario, _), (fault, _), (change, _) = places
    return (scenario + fault + change) % len(Change)


CELLS: Final = tuple(
    Cell(scenario, fault, change)
    for (_, scenario), (_, fault), (_, change) in sorted(
        product(enumerate(Scenario), enumerate(Fault), enumerate(Change)), key=_turn
    )
)
"""All of them; whoever stops early has seen every pair."""
SAMPLE: Final = tuple(
    map(
        cell_of,
        (
            "stream-driver-fewer",
            "job-executor-settings",
            "keyed-broker-more",
            "mirror-frozen-larger",
            "replay-lost-settings",
            "archive-worker-remade",
        ),
    )
)
"""What is run each time: every scenario, every fault and every change."""
