"""How a backfill is cut: every offset lies in one window, whatever the sizes, the clocks and the queues."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.pipelines.backfill import windows
from sparrowmq.spark.pipelines.backfill.windows import Window, boundaries, by_rows, by_time

QUEUES = [MessageQueue(topic, "b", number) for topic in ("T", "U") for number in range(3)]


@st.composite
def some_spans(draw: st.DrawFn) -> list[Span]:
    queues = draw(st.lists(st.sampled_from(QUEUES), unique=True))
    return sorted(
        Span(queue, start, start + draw(st.integers(1, 60)))
        for queue, start in ((queue, draw(st.integers(0, 9))) for queue in queues)
    )


def offsets(spans: list[Span]) -> list[tuple[MessageQueue, int]]:
    return [(span.queue, offset) for span in spans for offset in range(span.start, span.end)]


def check(spans: list[Span], found: list[Window]) -> None:
    """Every offset is in one window, in order; each queue is at most once in a window; none is empty."""
    assert [window.number for window in found] == list(range(len(found)))
    for window in found:
        assert len({span.queue for span in window.spans}) == len(window.spans)
        assert len(window) == sum(map(len, window.spans)) > 0
    seen = [one for window in found for one in offsets(list(window.spans))]
    assert sorted(seen) == sorted(offsets(spans))
    for queue in QUEUES:
        mine = [offset for known, offset in seen if known == queue]
        assert mine == sorted(mine), "later windows hold later messages"


@given(some_spans(), st.integers(1, 50))
def test_windows_by_rows_cover_everything_once(spans: list[Span], rows: int) -> None:
    found = by_rows(spans, rows)
    check(spans, found)
    assert all(len(window) == rows for window in found[:-1])
    value = json.loads(json.dumps(windows.to_json(found)))
    again = list(windows.from_json(value, "abc"))
    assert [(one.number, one.spans) for one in again] == [(one.number, one.spans) for one in found]
    assert len({one.key for one in again}) == len(again)
    assert all(one.key.startswith("backfill-abc-") for one in again)


@given(some_spans(), st.data())
def test_windows_by_time_cover_everything_once_whatever_the_clocks_did(
    spans: list[Span], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, 6))
    moments = [1000 * number for number in range(1, count + 1)]
    at = [
        {
            span.queue: data.draw(st.integers(span.start + 1, span.end + 9))
            for span in spans
            if data.draw(st.booleans())
        }
        for _ in moments
    ]
    found = by_time(spans, moments, at)
    check(spans, found)
    for window in found:
        assert window.since is None or window.since in moments
        assert window.until is None or window.until in moments


def test_windows_by_time_meet_where_the_brokers_say() -> None:
    one, two = QUEUES[:2]
    spans = [Span(one, 10, 30), Span(two, 0, 5)]
    found = by_time(spans, [1000, 2000, 3000], [{one: 15}, {one: 15}, {one: 20, two: 5}])
    assert [(window.since, window.until, window.spans) for window in found] == [
        (None, 1000, (Span(one, 10, 15),)),
        (2000, 3000, (Span(one, 15, 20), Span(two, 0, 5))),
        (3000, None, (Span(one, 20, 30),)),
    ]


def test_boundaries_are_full_hours_wherever_the_span_begins() -> None:
    hour = 3_600_000
    assert boundaries(5 * hour + 1, 8 * hour, hour) == [6 * hour, 7 * hour]
    assert boundaries(5 * hour, 5 * hour + 1, hour) == []
    assert boundaries(5 * hour, 6 * hour + 1, hour) == [6 * hour]


def test_too_many_windows_are_refused_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsError, check=about(value=1_000_000, limit=10_000)):
        boundaries(0, 1_000_000, 1)
    with pytest.raises(SettingsError, check=about(value=20_001, limit=10_000)):
        by_rows([Span(QUEUES[0], 0, 20_001)], 1)
    monkeypatch.setattr(windows, "SPANS_MAX", 5)
    spans = [Span(queue, 0, 10) for queue in QUEUES]
    with pytest.raises(SettingsError, check=about(value=12, limit=5)):
        by_rows(spans, 30)
