from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringStartsWith,
)

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.offsets.pushdown import TIME_MARGIN_MS, Wanted, cut_by_time, wanted

QUEUE = MessageQueue("orders", "broker-a", 3)
EPOCH = datetime(2024, 1, 1, tzinfo=UTC)
MILLIS = int(EPOCH.timestamp() * 1000)


def _cut(*filters: Any, queue: MessageQueue = QUEUE) -> Span | None:
    return wanted(filters).cut(Span(queue, 10, 100))


@pytest.mark.parametrize(
    ("item", "taken"),
    [
        (EqualTo(("topic",), "orders"), True),
        (EqualTo(("topic",), "other"), False),
        (EqualNullSafe(("topic",), "other"), False),
        (In(("topic",), ("other", "orders")), True),
        (In(("topic",), ("other",)), False),
        (StringStartsWith(("topic",), "ord"), True),
        (StringStartsWith(("topic",), "x"), False),
        (StringContains(("topic",), "x"), True),
        (EqualTo(("broker",), "broker-b"), False),
        (In(("queue_id",), (1, 2)), False),
        (In(("queue_id",), (3, None)), True),
        (EqualTo(("queue_id",), 3), True),
        (Not(EqualTo(("queue_id",), 3)), True),
        (IsNotNull(("queue_id",)), True),
        (EqualTo(("tags",), "x"), True),
        (EqualTo(("body", "id"), 4), True),
        (EqualTo(("queue_id", "x"), 4), True),
    ],
)
def test_which_queues_may_hold_what_is_wanted(item: Any, taken: bool) -> None:
    assert (_cut(item) == Span(QUEUE, 10, 100)) is taken
    assert (_cut(item) is None) is not taken


@pytest.mark.parametrize(
    ("filters", "span"),
    [
        ([EqualTo(("queue_offset",), 20)], (20, 21)),
        ([GreaterThan(("queue_offset",), 20)], (21, 100)),
        ([GreaterThanOrEqual(("queue_offset",), 20), LessThanOrEqual(("queue_offset",), 30)], (20, 31)),
        ([LessThan(("queue_offset",), 30), LessThan(("queue_offset",), 50)], (10, 30)),
        ([In(("queue_offset",), (50, 20, 70))], (20, 71)),
        ([GreaterThan(("queue_offset",), 5)], (10, 100)),
        ([GreaterThan(("queue_offset",), 1.5)], (10, 100)),
        ([In(("queue_offset",), ())], (10, 100)),
        ([GreaterThan(("queue_offset",), 99)], None),
        ([GreaterThan(("queue_offset",), 40), LessThan(("queue_offset",), 30)], None),
    ],
)
def test_ranges_of_offsets(filters: Sequence[Any], span: tuple[int, int] | None) -> None:
    assert _cut(*filters) == (None if span is None else Span(QUEUE, *span))


def test_times_are_searched_with_a_margin() -> None:
    found = wanted(
        [
            GreaterThan(("store_timestamp",), EPOCH),
            LessThan(("store_timestamp",), EPOCH + timedelta(seconds=1)),
            GreaterThan(("store_timestamp",), EPOCH - timedelta(days=1)),
            GreaterThan(("born_timestamp",), EPOCH + timedelta(days=1)),
            GreaterThan(("store_timestamp",), datetime(2030, 1, 1)),
        ]
    )
    assert (found.stored_from, found.stored_to) == (MILLIS, MILLIS + 1000)
    assert (found.search_from, found.search_to) == (MILLIS - TIME_MARGIN_MS, MILLIS + 1000 + TIME_MARGIN_MS)
    ancient = wanted([GreaterThan(("store_timestamp",), datetime(1960, 1, 1, tzinfo=UTC))])
    assert ancient.search_from == 0
    assert Wanted().search_from is None is Wanted().search_to


def test_what_the_search_finds_is_read_with_both_ends() -> None:
    other = MessageQueue("orders", "broker-b", 0)
    spans = [Span(QUEUE, 10, 100), Span(other, 0, 5)]
    assert cut_by_time(spans, {QUEUE: 40}, {QUEUE: 60}) == [Span(QUEUE, 40, 61), Span(other, 0, 5)]
    assert cut_by_time(spans, {QUEUE: 100, other: 2}, {}) == [Span(other, 2, 5)]


_OFFSETS = st.integers(-5, 30)
_COMPARISONS = [EqualTo, EqualNullSafe, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual]
_FILTERS = st.one_of(
    st.builds(lambda kind, value: kind(("queue_offset",), value), st.sampled_from(_COMPARISONS), _OFFSETS),
    st.builds(lambda values: In(("queue_offset",), tuple(values)), st.lists(_OFFSETS, min_size=1)),
    st.builds(lambda value: EqualTo(("queue_id",), value), st.integers(0, 2)),
    st.builds(
        lambda kind, value: kind(("store_timestamp",), EPOCH + timedelta(milliseconds=value)),
        st.sampled_from(_COMPARISONS),
        _OFFSETS,
    ),
)
_TESTS = {
    "EqualTo": lambda value, given: value == given,
    "EqualNullSafe": lambda value, given: value == given,
    "GreaterThan": lambda value, given: value > given,
    "GreaterThanOrEqual": lambda value, given: value >= given,
    "LessThan": lambda value, given: value < given,
    "LessThanOrEqual": lambda value, given: value <= given,
    "In": lambda value, given: value in given,
}


@given(st.lists(_FILTERS, max_size=4))
def test_no_row_that_passes_all_filters_is_left_out(filters: list[Any]) -> None:
    """Offset n is stored n ms after the epoch."""
    found = wanted(filters)
    for queue_id in range(3):
        queue = MessageQueue("t", "b", queue_id)
        kept = found.cut(Span(queue, 0, 25))
        for offset in range(25):
            row = {
                "queue_id": queue_id,
                "queue_offset": offset,
                "store_timestamp": EPOCH + timedelta(milliseconds=offset),
            }
            if all(_TESTS[type(item).__name__](row[item.attribute[0]], item.value) for item in filters):
                assert kept is not None
                assert kept.start <= offset < kept.end
                assert found.stored_from is None or found.stored_from <= MILLIS + offset
                assert found.stored_to is None or found.stored_to >= MILLIS + offset
