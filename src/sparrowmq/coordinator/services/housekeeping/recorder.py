"""The history: queries the whole cluster every few seconds and stores what charts show, bounded in time and
size.

Seconds are kept for an hour, minutes for a day, quarters of an hour for a month. One round reads the cluster
once and makes one transaction: it inserts the values, computes the coarser steps that have ended, and deletes
rows that are too old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from sqlalchemy import Connection, func, select

from sparrowmq.coordinator.cluster.flow import FlowView
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import service_run
from sparrowmq.coordinator.history import store
from sparrowmq.coordinator.history.grains import MINUTES, QUARTERS, SECONDS, Figure, Series, due
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunOutcome, RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.housekeeping.meter import Figures, Meter
from sparrowmq.core.errors import SparrowError

KIND: Final = ServiceKind(
    "history",
    "Keep figures for charts: lag, rates, disks, runs of services",
    9_500,
    5_000,
    30.0,
    (
        ServiceOption(
            "series", 20_000, 100, 200_000, "maximum number of chart lines; further ones are not kept"
        ),
        ServiceOption(
            "queues",
            32,
            0,
            256,
            "the lag of each queue is kept for groups with at most this many queues; 0: for none",
        ),
        ServiceOption(
            "topics_at_once", 50, 0, 1000, "topics without groups whose rates are read in one round, in turn"
        ),
    ),
)
HELD_STEPS: Final = 3
"""A late round also fills the steps since the previous one, at most this many."""
EVENTS: Final = frozenset({Figure.SERVICE_TOOK, Figure.SERVICE_FAILED})
"""Figures of events in a step; the others are states or rates."""
BACK_MINUTES: Final = 10
BACK_QUARTERS: Final = 4
"""Steps that a new leader aggregates again: the last ones of the previous leader may be missing."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """Data of the leader's last round. `None` means not available yet."""

    epoch: int = -1
    known: Mapping[Series, int] = field(default_factory=dict)
    slot: int | None = None
    minute: int | None = None
    quarter: int | None = None
    run: int | None = None
    """The last run of a service that was counted."""


class Recorder:
    """Queries and stores."""

    kind = KIND

    def __init__(self, view: FlowView) -> None:
        self._view = view
        self._meter = Meter()
        self._standing = _Standing()

    async def step(self, work: Work) -> RunReport:
        """One round. Raises errors of the query, after the runs of services were stored."""
        if self._standing.epoch != work.epoch:
            self._standing, self._meter = _Standing(work.epoch), Meter()
        figures: Figures = {}
        trouble: SparrowError | None = None
        message = ""
        try:
            figures, message = await self._figures(work.options)
        except SparrowError as error:
            trouble = error
        before, options = self._standing, work.options
        # Stored again after the round: if writing failed, the next round reads the series again.
        self._standing = replace(before, known={})
        self._standing, counts = await work.write(
            lambda connection: _kept(connection, before, figures, options["series"])
        )
        if trouble is not None:
            raise trouble
        return RunReport(counts, message)

    async def _figures(self, options: Mapping[str, int]) -> tuple[Figures, str]:
        look = await self._view.look(options["topics_at_once"])
        # On threads: thousands of queues would block the loop.
        unknown = await asyncio.to_thread(self._meter.unknown, look)
        stored = await self._view.stored_ms([(queue, offset) for _, queue, offset in unknown])
        told = {(group, queue): stored[queue] for group, queue, _ in unknown if queue in stored}
        figures = await asyncio.to_thread(self._meter.figures, look, told, options["queues"])
        return figures, next(iter(look.failed.values()), "")


def _kept(
    connection: Connection, before: _Standing, figures: Figures, series_max: int
) -> tuple[_Standing, dict[str, int]]:
    """Save a round's figures; returns the data for the next round."""
    now = int(connection.execute(select(now_ms())).scalar_one())
    run, runs = _runs(connection, before.run)
    values = figures | runs
    known = before.known or store.series(connection)
    made = store.add(connection, known, values.keys() - known.keys(), now, series_max)
    known = {**known, **made} if made else known
    slot, minute, quarter = (grain.slot(now) for grain in (SECONDS, MINUTES, QUARTERS))
    first = slot if before.slot is None else max(before.slot + 1, slot - HELD_STEPS + 1)
    slots = range(min(first, slot), slot + 1)
    points = {
        known[one]: dict.fromkeys(slots[-1:] if one.figure in EVENTS else slots, value)
        for one, value in values.items()
        if one in known
    }
    store.put(connection, SECONDS, points)
    store.fold(connection, SECONDS, MINUTES, due(before.minute, minute, BACK_MINUTES), known)
    store.fold(connection, MINUTES, QUARTERS, due(before.quarter, quarter, BACK_QUARTERS), known)
    counts = {"figures": len(points), "left out": len(values) - len(points)}
    if before.quarter != quarter:
        store.seen(connection, points.keys(), now)
        counts |= store.forget(connection, now)
        known = store.series(connection)
    return _Standing(before.epoch, known, slot, minute, quarter, run), counts


def _runs(connection: Connection, last: int | None) -> tuple[int, Figures]:
    """Durations and failures of service runs since the last round; services without runs are omitted."""
    newest = connection.execute(select(func.coalesce(func.max(service_run.c.id), 0))).scalar_one()
    if last is None:
        return int(newest), {}
    query = select(
        service_run.c.service, service_run.c.started_at, service_run.c.ended_at, service_run.c.outcome
    ).where(service_run.c.id > last, service_run.c.id <= newest)
    found: Figures = {}
    for name, started, ended, outcome in connection.execute(query):
        took, failed = Series(Figure.SERVICE_TOOK, name), Series(Figure.SERVICE_FAILED, name)
        found[took] = max(found.get(took, 0.0), (ended - started) / 1000)
        found[failed] = found.get(failed, 0.0) + (outcome != RunOutcome.DONE.value)
    return int(newest), found
