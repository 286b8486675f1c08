"""The page says what the tables say, needs nothing else, and is honest about what is missing."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, date, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from sparrowmq.spark.pipelines.report.page import TOPICS_MAX, Content, _bytes, _percent, _seconds, render
from sparrowmq.spark.pipelines.report.settings import Day

DAY = Day(date(2026, 11, 20), "UTC")


def topic(name: str, count: int) -> dict[str, Any]:
    return {
        "topic": name,
        "messages": count,
        "bytes": 100 * count,
        "size_p50": 100,
        "size_p95": 2048,
        "size_p99": 5000,
        "size_max": 4 * 1024 * 1024,
        "queue_skew": 2.5,
        "top_key_share": 0.25,
        "born_earlier": 3,
        "distinct_keys": 7,
        "without_key": 1,
    }


def counted(count: int, **more: Any) -> dict[str, Any]:
    return {"topic": "A<b>", "messages": count, "bytes": 10 * count, "share": 0.5, **more}


def lag(hour: int, messages: int) -> dict[str, Any]:
    at = datetime(2026, 11, 20, hour, tzinfo=UTC)
    return {"group": "g", "topic": "A<b>", "at": at, "lag_messages": messages, "lag_seconds": 5.0}


GROUP = {
    "group": "g",
    "topic": "A<b>",
    "as_of": datetime(2026, 11, 20, 23, 55),
    "lag_messages": 1234,
    "lag_seconds": 7200.0,
    "consumed": None,
    "retries": 4,
    "dead_letters": 2,
}
FULL = Content(
    DAY,
    topics=[topic("A<b>", 1500), topic("B", 20)],
    hours=[counted(5, hour=3), counted(9, hour=23)],
    sizes=[counted(4, size_to=0), counted(5, size_to=128), counted(1, size_to=None)],
    queues=[counted(9, broker="b", queue_id=0), counted(5, broker="b", queue_id=1)],
    keys=[counted(9, key="<k>", rank=1)],
    tags=[counted(9, tag=None, rank=1)],
    producers=[counted(9, host="10.0.0.1", rank=1)],
    groups=[GROUP],
    progress=[lag(1, 5), lag(2, 9)],
    source="the live log",
)


class Tags(HTMLParser):
    """Checks that every tag is closed in order, and gathers text and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.text: list[str] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    made = render(FULL)
    tags = Tags(made)
    assert not {"src", "href"} & tags.names
    assert not re.search(r"https?:|url\(|@import|<script", made)
    text = " ".join(tags.text)
    for part in (
        "Messages on 2026-11-20", "1,520 messages", "148 KB", "A<b>", "2.50 × mean", "25.0%", "1,234",
        "2.0 h", "2026-11-20 23:55 UTC", "<k>", "(none)", "10.0.0.1", "7 different keys", "4.0 MB", "≤ 128 B",
    ):  # fmt: skip
        assert part in text, part
    assert made.count("<svg") == 1 + 2 + 2, "hours; lag twice; sizes and queues of one topic"
    assert "The day is complete" in text


def test_what_is_missing_is_said() -> None:
    made = render(replace(FULL, doubts=["<cut>"], is_over=False))
    assert "The day is not complete" in made and "&lt;cut&gt;" in made and "the day is not over" in made


def test_an_empty_day() -> None:
    text = " ".join(Tags(render(Content(DAY, source="the live log"))).text)
    assert "0 messages with 0 B in 0 topics" in text
    assert "No groups were recorded" in text


def test_one_snapshot_is_no_line_and_many_topics_are_cut() -> None:
    many = [topic(f"T{number}", number) for number in range(TOPICS_MAX + 5)]
    made = render(replace(FULL, topics=many, progress=[lag(1, 5)]))
    assert "Lag over the day" not in made and "5 more topics are in the tables" in made
    assert made.count("<h2>T") == TOPICS_MAX + 1  # and the table of all of them


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KB"), (250 * 1024, "250 KB"), (2**40, "1.0 TB")],
)  # fmt: skip
def test_bytes(value: float | None, text: str) -> None:
    assert _bytes(value) == text


def test_other_texts() -> None:
    assert [_seconds(value) for value in (None, 0.0, 119.0, 3600.0, 9000.0)] == [
        "–",
        "0 s",
        "119 s",
        "60 min",
        "2.5 h",
    ]
    assert _percent(None) == "–" and _percent(0.333) == "33.3%"
