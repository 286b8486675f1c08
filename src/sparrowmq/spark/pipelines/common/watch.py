"""How a running pipeline reports its progress, and how it is asked to stop.

A run gets one `Watch`. Batches are added by Spark's callback thread, lags by the thread that drives the
query; `report` is called for every change, never by two threads at once. An error that it raises ends the
run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from time import time
from typing import Any, TextIO

from sparrowmq.core.outside import json_line


@dataclass(frozen=True, slots=True)
class TopicLag:
    """What waits of one topic."""

    topic: str
    messages: int
    seconds: float | None = None
    """How long the oldest of them has been stored; None if not known."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What a run has done so far. `lag` is the number of messages that waited at the last check, None if
    unknown.
    """

    pipeline: str
    batches: int = 0
    rows: int = 0
    size: int = 0
    """Bytes written."""
    lag: int | None = None
    batch_seconds: float = 0.0
    """How long the last batch took."""
    at: float = 0.0
    """Epoch seconds of the last change."""
    bad: int | None = None
    """Rows that could not be decoded and were set aside, in pipelines that check this."""
    topics: tuple[TopicLag, ...] | None = None
    """The lag by topic, in pipelines that measure it; sorted by topic."""

    def to_json(self) -> dict[str, Any]:
        """As a JSON value."""
        return {name: value for name, value in asdict(self).items() if value is not None}


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Ignores all reports."""


class Watch:
    """One run's progress, and whether it is to stop."""

    def __init__(self, report: Report = silent, *, now: Callable[[], float] = time) -> None:
        self._report = report
        self._now = now
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._progress = Progress("")

    def __repr__(self) -> str:
        return f"<Watch {self._progress}{' stopping' if self.stopping else ''}>"

    @property
    def progress(self) -> Progress:
        """The current progress."""
        return self._progress

    @property
    def stopping(self) -> bool:
        """Whether a stop was requested."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Request a stop: the current batch is finished. For any thread and for signal handlers."""
        self._stop.set()

    def begin(self, pipeline: str, lag: int | None = None) -> None:
        """A run of `pipeline` starts; so many messages wait, if that is known."""
        self._change(pipeline=pipeline, lag=lag)

    def batch(self, rows: int, size: int, seconds: float, lag: int | None = None) -> None:
        """A batch is done and safe; `lag` is what waits then, if that is known at once."""
        with self._lock:
            now = self._progress
            self._set(
                replace(
                    now,
                    batches=now.batches + 1,
                    rows=now.rows + rows,
                    size=now.size + size,
                    batch_seconds=seconds,
                    lag=now.lag if lag is None else lag,
                )
            )

    def bad(self, rows: int) -> None:
        """Report that so many more rows could not be decoded, perhaps 0."""
        self._change(bad=(self._progress.bad or 0) + rows)

    def read(self, rows: int, lag: int | None) -> None:
        """A read, which has no batches, has given so many rows so far; known values are not
        reported again.
        """
        if (rows, lag) != (self._progress.rows, self._progress.lag):
            self._change(rows=rows, lag=lag)

    def waiting(self, lag: int | None) -> None:
        """So many messages wait; nothing is reported when it is known, or `topics` says it better."""
        if lag is not None and lag != self._progress.lag and self._progress.topics is None:
            self._change(lag=lag)

    def topics(self, lags: Iterable[TopicLag]) -> None:
        """So much waits of each topic; nothing is reported when it is what was known."""
        found = tuple(sorted(lags, key=lambda lag: lag.topic))
        if found != self._progress.topics:
            self._change(topics=found, lag=sum(lag.messages for lag in found))

    def _change(self, **values: Any) -> None:
        with self._lock:
            self._set(replace(self._progress, **values))

    def _set(self, progress: Progress) -> None:
        self._progress = replace(progress, at=self._now())
        self._report(self._progress)


def all_of(*reports: Report) -> Report:
    """Combines several reports."""

    def report(progress: Progress) -> None:
        for one in reports:
            one(progress)

    return report


def json_lines(out: TextIO) -> Report:
    """Writes one line of JSON for every change."""

    def report(progress: Progress) -> None:
        out.write(json_line(progress.to_json()) + "\n")
        out.flush()

    return report
