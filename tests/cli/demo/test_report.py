"""The page: self-contained, complete, and honest about faults."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

from sparrowmq.cli.demo.reconcile import Parquet, Reconciliation
from sparrowmq.cli.demo.report import DemoRun, DemoSample, render
from sparrowmq.cli.demo.totals import FlightTotals, Group

PARQUET = Parquet(12, 0, 0, 0, [], [], [])
VERDICT = Reconciliation(expected=12, sent=12, stored=12, parquet=PARQUET, counted=12)


def run(verdict: Reconciliation = VERDICT) -> DemoRun:
    totals = FlightTotals()
    totals.replace(
        0, [Group("EWR", "IAH", "<Houston>", "A & B", 5, 10, 9, 90), Group("JFK", "MIA", "", "C", 6, 2, 2, 3)]
    )
    samples = [DemoSample(0.0, 0, 0, 0), DemoSample(0.5, 12, 10, 0), DemoSample(1.0, 12, 12, 12)]
    return DemoRun("Flights", 3.4, totals, samples, verdict, 2, 2)


class Tags(HTMLParser):
    """Checks that every tag is closed in order, and gathers attributes."""

    VOID = frozenset({"meta"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def parsed(page: str) -> Tags:
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    return tags


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    page = render(run())
    tags = parsed(page)
    assert not {"src", "href"} & {name for name, _ in tags.attributes}
    assert not re.search(r"https?:|url\(|@import|<script", page)
    text = " ".join(tags.text)
    for part in (
        "12 flights in 3 s",
        "2 of 2 summaries",
        "IAH <Houston>",
        "A & B",
        "+10.0 min",
        "EWR",
        "JFK",
    ):
        assert part in text
    assert page.count("<svg") == 2


def test_balanced_books() -> None:
    page = render(run())
    assert 'class="verdict good"' in page
    assert "sent = stored = in Parquet" in page


def test_faults_are_shown() -> None:
    page = render(run(replace(VERDICT, stored=11)))
    parsed(page)
    assert 'class="verdict bad"' in page
    assert "12 were sent but 11 are stored" in page
    assert "sent = stored = in Parquet" not in page


def test_a_run_without_flights() -> None:
    page = render(DemoRun("Flights", 0.0, FlightTotals(), [], VERDICT, 0, 0))
    parsed(page)
    assert 'class="verdict good"' in page
