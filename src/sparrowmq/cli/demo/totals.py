"""The results of the pipeline: departure delays per origin and hour, and per route.

The pipeline groups each micro-batch by origin, destination, carrier and hour; this module adds up the groups.
A batch that Spark runs again replaces its earlier result, so totals count every flight once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

ROUTES_SHOWN: Final = 10
ROUTE_FLIGHTS_MIN: Final = 100
"""A route needs this many flights in the full data to be ranked; fewer rows need proportionally fewer."""
FULL_ROWS: Final = 336_776


@dataclass(frozen=True, slots=True)
class Group:
    """Flights of one origin, destination, carrier and scheduled hour within one micro-batch."""

    origin: str
    dest: str
    dest_name: str
    airline: str
    hour: int
    flights: int
    departed: int
    delay_minutes: int


@dataclass(slots=True)
class FlightTally:
    """Flights and their delays; the mean is over those that departed."""

    flights: int = 0
    departed: int = 0
    delay_minutes: int = 0

    def add(self, group: Group) -> None:
        """Add one group."""
        self.flights += group.flights
        self.departed += group.departed
        self.delay_minutes += group.delay_minutes

    @property
    def cancelled(self) -> int:
        """Flights that did not depart."""
        return self.flights - self.departed

    @property
    def mean_delay(self) -> float:
        """Mean departure delay in minutes; 0 if none departed."""
        return self.delay_minutes / self.departed if self.departed else 0.0


@dataclass(frozen=True, slots=True)
class Route:
    """One route with its tally and the airline that flies it most."""

    origin: str
    dest: str
    dest_name: str
    airline: str
    tally: FlightTally


class FlightTotals:
    """The groups of all batches, by batch id."""

    def __init__(self) -> None:
        self._batches: dict[int, list[Group]] = {}

    def replace(self, batch: int, groups: Iterable[Group]) -> None:
        """Set the groups of a batch, replacing earlier ones."""
        self._batches[batch] = list(groups)

    def _groups(self) -> Iterable[Group]:
        return (group for groups in self._batches.values() for group in groups)

    @property
    def flights(self) -> int:
        """Flights counted so far."""
        return sum(group.flights for group in self._groups())

    @property
    def batches(self) -> int:
        """Batches that contained flights."""
        return sum(1 for groups in self._batches.values() if groups)

    def by_origin(self) -> dict[str, FlightTally]:
        """Tallies by origin, sorted."""
        found: dict[str, FlightTally] = {}
        for group in self._groups():
            found.setdefault(group.origin, FlightTally()).add(group)
        return dict(sorted(found.items()))

    def by_hour(self) -> dict[str, dict[int, FlightTally]]:
        """Tallies by origin and scheduled hour of departure, sorted."""
        found: dict[str, dict[int, FlightTally]] = {}
        for group in self._groups():
            found.setdefault(group.origin, {}).setdefault(group.hour, FlightTally()).add(group)
        return {origin: dict(sorted(hours.items())) for origin, hours in sorted(found.items())}

    def worst_routes(self, count: int = ROUTES_SHOWN) -> list[Route]:
        """The routes with the highest mean delay, the worst first, among those with enough flights."""
        tallies: dict[tuple[str, str, str], FlightTally] = {}
        airlines: dict[tuple[str, str, str], dict[str, int]] = {}
        for group in self._groups():
            key = (group.origin, group.dest, group.dest_name)
            tallies.setdefault(key, FlightTally()).add(group)
            counts = airlines.setdefault(key, {})
            counts[group.airline] = counts.get(group.airline, 0) + group.flights
        enough = max(1, ROUTE_FLIGHTS_MIN * self.flights // FULL_ROWS)
        ranked = sorted(
            (key for key, tally in tallies.items() if tally.departed >= enough),
            key=lambda key: (-tallies[key].mean_delay, key),
        )
        return [Route(*key, _most(airlines[key]), tallies[key]) for key in ranked[:count]]

    def summaries(self, batch: int) -> list[tuple[str, str]]:
        """Origin and JSON text of the summary messages to send after a batch."""
        return [
            (
                origin,
                json.dumps(
                    {
                        "batch": batch,
                        "origin": origin,
                        "flights": tally.flights,
                        "cancelled": tally.cancelled,
                        "mean_delay": round(tally.mean_delay, 2),
                    }
                ),
            )
            for origin, tally in self.by_origin().items()
        ]


def _most(counts: dict[str, int]) -> str:
    return min(counts, key=lambda name: (-counts[name], name))


def describe(summary: str) -> str:
    """A summary message in words."""
    found = json.loads(summary)
    return (
        f"batch {found['batch']}: {found['origin']} {found['flights']:,} flights, "
        f"{found['cancelled']:,} cancelled, {found['mean_delay']:+.1f} min on average"
    )


def groups(rows: Iterable[Sequence[Any]]) -> list[Group]:
    """Groups from the pipeline's rows, whose columns are the fields of `Group`."""
    return [Group(*row) for row in rows]
