"""The demo's output while it runs, and the tables at its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from sparrowmq.cli.demo.totals import FlightTotals, describe
from sparrowmq.core.outside import one_line

if TYPE_CHECKING:
    from sparrowmq.cli.demo.reconcile import Reconciliation
    from sparrowmq.cli.demo.report import DemoSample

PLAIN_SECONDS: Final = 5.0
"""Without a terminal, seconds between two lines instead of bars."""
BARS: Final = ("sent", "stored", "processed")
PLACE_CHARACTERS: Final = 27
AIRLINE_CHARACTERS: Final = 24
"""Longer names are shortened, so that the table fits 80 columns with one line per route."""


class Screen:
    """Three progress bars, with lines printed above them."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=False,
        )
        self._tasks: dict[str, TaskID] = {}
        self._last_line = time.monotonic()

    def __enter__(self) -> Screen:
        for name in BARS:
            self._tasks[name] = self._progress.add_task(name, total=None)
        self._progress.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._progress.stop()

    def say(self, text: str) -> None:
        """One line above the bars; may be called from any thread."""
        self.console.print(one_line(text), highlight=False, markup=False, soft_wrap=True)

    def summary(self, text: str) -> None:
        """Record a summary message that was received."""
        self.say(f"summary  {describe(text)}")

    def show(self, sample: DemoSample, total: int | None) -> None:
        """Move the bars."""
        for name in BARS:
            self._progress.update(self._tasks[name], completed=getattr(sample, name), total=total)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._last_line >= PLAIN_SECONDS:
            self._last_line = now
            self.say(
                f"sent {sample.sent:,}, stored {sample.stored:,}, processed {sample.processed:,}"
                + (f" of {total:,}" if total else "")
            )


def _table(title: str, *columns: tuple[str, bool]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        padding=(0, 1, 0, 0),
    )
    for name, number in columns:
        table.add_column(name, justify="right" if number else "left")
    return table


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1].rstrip()}…"


def show_result(console: Console, totals: FlightTotals, verdict: Reconciliation) -> None:
    """The tables at the end: origins, worst routes, reconciliation."""
    origins = _table(
        "Departures", ("origin", False), ("flights", True), ("cancelled", True), ("mean delay", True)
    )
    for origin, tally in totals.by_origin().items():
        origins.add_row(origin, f"{tally.flights:,}", f"{tally.cancelled:,}", f"{tally.mean_delay:+.1f} min")
    routes = _table(
        "Worst routes", ("from", False), ("to", False), ("airline", False), ("flights", True), ("delay", True)
    )
    for route in totals.worst_routes():
        place = _cut(f"{route.dest} {route.dest_name}".strip(), PLACE_CHARACTERS)
        airline = _cut(route.airline, AIRLINE_CHARACTERS)
        delay = f"{route.tally.mean_delay:+.1f} min"
        routes.add_row(route.origin, place, airline, f"{route.tally.flights:,}", delay)
    books = _table("Reconciliation", ("", False), ("flights", True))
    for name, count in (
        ("in the source", verdict.expected),
        ("sent", verdict.sent),
        ("stored", verdict.stored),
        ("in Parquet", verdict.parquet.rows),
        ("duplicates", verdict.parquet.duplicates),
        ("missing", verdict.parquet.missing),
    ):
        books.add_row(name, f"{count:,}")
    for table in (origins, routes, books):
        console.print(table)
        console.print()
    if verdict.faults:
        for fault in verdict.faults:
            console.print(one_line(f"FAULT: {fault}"), style="bold red", markup=False)
    else:
        console.print("sent = stored = in Parquet: no duplicate, no gap", style="bold green")
