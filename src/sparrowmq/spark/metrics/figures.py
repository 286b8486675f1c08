"""State of streaming queries, from Spark's events and from the cluster.

Pure; for one thread at a time. A query is identified by its name, or by its id if it has no name, and keeps
its counters when it is restarted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.metrics.progress import reached_and_ends
from sparrowmq.spark.offsets.offsets import Offsets

QUERIES_MAX: Final = 100
"""Maximum number of queries; a new one replaces the one that ended first."""
KINDS_MAX: Final = 32
"""Kinds of errors recorded for one query; others are counted as `other`."""
_OURS: Final = re.compile(r"sparrowmq\.[\w.]*?\.?(\w+Error): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryFigures:
    """One query. Counters continue over restarts; unknown values are None or missing."""

    name: str
    """Its name, or its id."""
    run: str = ""
    active: bool = True
    starts: int = 0
    batches: int = 0
    rows: int = 0
    rows_in_per_second: float | None = None
    rows_done_per_second: float | None = None
    batch_seconds: float | None = None
    """Duration of the last batch."""
    seen: float = 0.0
    """Epoch seconds of the last activity: a start, the end of a batch, or an idle report."""
    watermark: float | None = None
    """Epoch seconds."""
    late_rows: int = 0
    """Rows dropped because they arrived after the watermark."""
    state_rows: int | None = None
    done: Offsets = field(default_factory=dict)
    """The offsets that it has reached."""
    ends: Offsets = field(default_factory=dict)
    stored_at: Mapping[MessageQueue, float] = field(default_factory=dict)
    """For queues that lag: epoch seconds at which the first waiting message was stored."""
    asked: float | None = None
    """Epoch seconds at which the cluster last reported ends and times."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """How often a run ended with an error, by kind."""

    @property
    def lags(self) -> dict[MessageQueue, int]:
        """Waiting messages, by queue."""
        return {
            queue: max(0, end - self.done[queue]) for queue, end in self.ends.items() if queue in self.done
        }

    def lag_seconds(self, now: float) -> dict[MessageQueue, float]:
        """Seconds since the first waiting message was stored, by queue; 0 where none waits."""
        if self.asked is None:
            return {}
        found = {queue: max(0.0, now - at) for queue, at in self.stored_at.items()}
        return {
            queue: 0.0 if not lag else found[queue]
            for queue, lag in self.lags.items()
            if not lag or queue in found
        }


@dataclass(frozen=True, slots=True)
class JudgedRows:
    """Rows that `bad_rows.BadRows` checked, and those that could not be decoded."""

    rows: int = 0
    bad: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """Snapshot of all figures."""

    queries: tuple[QueryFigures, ...] = ()
    unseen: int = 0
    """Running queries that exceed the maximum."""
    judged: Mapping[str, JudgedRows] = field(default_factory=dict)
    """By the name of a `BadRows`."""


class Book:
    """The figures of all queries, at most `queries_max`."""

    def __init__(self, queries_max: int = QUERIES_MAX) -> None:
        self._most = queries_max
        self._queries: dict[str, QueryFigures] = {}
        self._names: dict[str, str] = {}
        """Run id → name."""
        self._unseen: set[str] = set()
        self._judged: dict[str, JudgedRows] = {}

    @property
    def queries(self) -> tuple[QueryFigures, ...]:
        """All of them."""
        return tuple(self._queries.values())

    @property
    def figures(self) -> Figures:
        """A snapshot of all figures."""
        return Figures(self.queries, len(self._unseen), dict(self._judged))

    def judged(self, name: str, rows: int, bad: int) -> None:
        """Count this many checked rows; names beyond the maximum are counted as `other`."""
        name = name if name in self._judged or len(self._judged) < self._most else "other"
        found = self._judged.get(name, JudgedRows())
        self._judged[name] = JudgedRows(found.rows + rows, found.bad + bad)

    def started(self, run: str, name: str, now: float) -> None:
        """A run of a query starts."""
        found = self._of(run, name, now)
        if found is not None:
            self._queries[name] = replace(found, starts=found.starts + 1, seen=now)

    def progressed(self, progress: Any, now: float) -> None:
        """A batch has ended; `progress` is Spark's."""
        run, name = str(progress.runId), progress.name or str(progress.id)
        found = self._of(run, name, now)
        if found is None:
            return
        done, there = reached_and_ends(progress)
        self._queries[name] = replace(
            found,
            seen=now,
            batches=found.batches + 1,
            rows=found.rows + progress.numInputRows,
            rows_in_per_second=_finite(progress.inputRowsPerSecond),
            rows_done_per_second=_finite(progress.processedRowsPerSecond),
            batch_seconds=progress.batchDuration / 1000,
            watermark=_moment(progress.eventTime.get("watermark")),
            late_rows=found.late_rows + sum(one.numRowsDroppedByWatermark for one in progress.stateOperators),
            state_rows=sum(one.numRowsTotal for one in progress.stateOperators)
            if progress.stateOperators
            else None,
            done=done,
            ends={**found.ends, **there} if there else found.ends,
            stored_at={q: at for q, at in found.stored_at.items() if done.get(q) == found.done.get(q)},
        )

    def idle(self, run: str, now: float) -> None:
        """A query is idle: it found no new data."""
        name = self._names.get(run)
        if name in self._queries:
            self._queries[name] = replace(self._queries[name], seen=now)

    def ended(self, run: str, error: str | None, kind: str | None, now: float) -> None:
        """A run has ended; `error` is the reason if the query was not stopped, `kind` is Spark's
        error class.
        """
        name = self._names.pop(run, None)
        self._unseen.discard(run)
        if name not in self._queries or self._queries[name].run != run:
            return
        found = self._queries.pop(name)  # move to the end: ended queries are in the order in which they ended
        faults = Counter(found.faults)
        if error is not None:
            known = fault_kind(error, kind)
            faults[known if known in faults or len(faults) < KINDS_MAX else "other"] += 1
        self._queries[name] = replace(
            found, active=False, seen=now, faults=dict(faults), ends={}, stored_at={}, asked=None
        )

    def waiting(self) -> dict[str, Offsets]:
        """Run id → its offsets, for running queries that have read topics."""
        return {one.run: one.done for one in self.queries if one.active and one.done}

    def asked(
        self, run: str, done: Offsets, ends: Offsets, stored_at: Mapping[MessageQueue, float], now: float
    ) -> None:
        """The cluster reported the ends of queues, and when the messages at `done` were stored."""
        found = self._queries.get(self._names.get(run, ""))
        if found is None or found.run != run:
            return
        still = {queue: at for queue, at in stored_at.items() if found.done.get(queue) == done[queue]}
        self._queries[found.name] = replace(found, ends={**found.ends, **ends}, stored_at=still, asked=now)

    def _of(self, run: str, name: str, now: float) -> QueryFigures | None:
        """The query of a run, created if there is room."""
        self._names[run] = name
        found = self._queries.get(name)
        if found is None:
            if len(self._queries) >= self._most and not self._drop_ended():
                self._unseen.add(run)
                return None
            found = QueryFigures(name=name, seen=now)
        self._unseen.discard(run)
        if found.run != run:
            self._names.pop(found.run, None)
            found = replace(found, run=run, active=True)
        self._queries[name] = found
        return found

    def _drop_ended(self) -> bool:
        for name, one in self._queries.items():
            if not one.active:
                del self._queries[name]
                return True
        return False


def fault_kind(error: str, kind: str | None) -> str:
    """A short name for the error that ended a query: that of our own error, else Spark's, else `unknown`."""
    ours = _OURS.findall(error)
    return str(ours[-1]) if ours else (kind or "unknown")


def most_behind(figures: Iterable[QueryFigures], most: int) -> set[tuple[str, MessageQueue]]:
    """At most this many queues (with their query), those with the longest lags."""
    every = [(-lag, one.name, queue) for one in figures for queue, lag in one.lags.items()]
    return {(name, queue) for _, name, queue in sorted(every)[:most]}


def _finite(value: float) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _moment(text: str | None) -> float | None:
    if text is None:
        return None
    at = datetime.fromisoformat(text).timestamp()
    return at if at > 0 else None  # Spark reports 1970 before there is one
