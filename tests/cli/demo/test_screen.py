"""The demo's output: bars in a terminal, lines elsewhere, tables at the end."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from sparrowmq.cli.demo import screen as module
from sparrowmq.cli.demo.reconcile import Parquet, Reconciliation
from sparrowmq.cli.demo.report import DemoSample
from sparrowmq.cli.demo.screen import Screen, show_result
from sparrowmq.cli.demo.totals import FlightTotals, Group

VERDICT = Reconciliation(3, 3, 3, Parquet(3, 0, 0, 0, [], [], []), 3)


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=120, color_system=None), out


def test_bars_in_a_terminal() -> None:
    shown, out = console(True)
    with Screen(shown) as screen:
        screen.show(DemoSample(1.0, 3, 2, 1), 4)
    for name, count in (("sent", "3/4"), ("stored", "2/4"), ("processed", "1/4")):
        assert name in out.getvalue()
        assert count in out.getvalue()


def test_lines_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLAIN_SECONDS", 0.0)
    shown, out = console(False)
    with Screen(shown) as screen:
        screen.show(DemoSample(1.0, 3000, 2, 1), None)
        screen.show(DemoSample(1.0, 3000, 2, 1), 4000)
        screen.summary('{"batch":1,"origin":"EWR","flights":2,"cancelled":0,"mean_delay":1.5}')
    assert out.getvalue().splitlines() == [
        "sent 3,000, stored 2, processed 1",
        "sent 3,000, stored 2, processed 1 of 4,000",
        "summary  batch 1: EWR 2 flights, 0 cancelled, +1.5 min on average",
    ]


def test_the_result() -> None:
    totals = FlightTotals()
    totals.replace(0, [Group("EWR", "IAH", "Houston", "United", 5, 3, 2, 9)])
    shown, out = console(False)
    show_result(shown, totals, VERDICT)
    text = out.getvalue()
    for part in ("Departures", "Worst routes", "IAH Houston", "United", "+4.5 min", "Reconciliation"):
        assert part in text
    assert "sent = stored = in Parquet: no duplicate, no gap" in text


def test_each_route_is_one_line_of_80_columns() -> None:
    totals = FlightTotals()
    names = ("CVG", "Cincinnati Northern Kentucky Intl", "ExpressJet Airlines Incorporated")
    totals.replace(0, [Group("EWR", *names, 5, 99_000, 99_000, 99_000 * 123)])
    out = io.StringIO()
    show_result(Console(file=out, width=80), totals, VERDICT)
    (line,) = (line for line in out.getvalue().splitlines() if "CVG" in line)
    assert line.split() == [
        *("EWR", "CVG", "Cincinnati", "Northern", "Ke…", "ExpressJet", "Airlines", "Inc…"),
        *("99,000", "+123.0", "min"),
    ]


def test_faults_are_shown() -> None:
    shown, out = console(False)
    show_result(shown, FlightTotals(), Reconciliation(4, 3, 3, VERDICT.parquet, 3))
    assert "FAULT: 3 of 4 flights were sent" in out.getvalue()
    assert "no gap" not in out.getvalue()
