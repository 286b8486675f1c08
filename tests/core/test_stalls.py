from __future__ import annotations

import json
from typing import Any

import pytest
from tests.stall_guard import sure_ms

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.stalls import LAST_MAX, LONGEST_MAX, Stall, StallBook, told_stalls


def stall(wall: float, **fields: Any) -> Stall:
    return Stall(at_ms=1, what="HEART_BEAT", wall_ms=wall, **fields)


@pytest.mark.parametrize(
    ("found", "own", "sure"),
    [
        (stall(100, cpu_ms=100), 100, 100),
        (stall(100, cpu_ms=20), 100, 100),  # it waited for a disk, say
        (stall(100, cpu_ms=20, waited_ms=80), 20, 20),
        (stall(100, cpu_ms=20, others_ms=75), 100, 25),
        (stall(100, cpu_ms=20, paused_ms=80, others_ms=10), 100, 20),
        (stall(100, cpu_ms=100, others_ms=90), 100, 100),  # two threads that ran side by side
        (stall(100, waited_ms=120), 0, 0),
    ],
)
def test_time_of_the_loop_itself_is_computed(found: Stall, own: float, sure: float) -> None:
    assert found.own_ms == own
    assert sure_ms(found) == sure


def test_book_keeps_the_last_and_the_longest_stalls() -> None:
    book = StallBook()
    for wall in [500.0, *range(100, 200), 300.0, 60.0]:
        book.add(stall(wall))
    assert book.count == 103
    assert [one.wall_ms for one in book.last][-2:] == [300, 60] and len(book.last) == LAST_MAX
    assert [one.wall_ms for one in book.longest[:3]] == [500, 300, 199] and len(book.longest) == LONGEST_MAX


def test_reported_stalls_can_be_read_again() -> None:
    book = StallBook()
    first = stall(70.5, cpu_ms=60, waited_ms=1, client="10.0.0.1:5", where=("a.py:1 f", "b.py:2 g"))
    book.add(first)
    book.add(stall(60))
    table = book.table()
    assert (table["loopStalls"], table["loopStallMillisTotal"], table["loopStallMillisMax"]) == (
        "2",
        "130",
        "70",
    )
    assert told_stalls(table, longest=True)[0] == first
    assert told_stalls(table, longest=False)[1] == first
    assert StallBook().table()["loopStallMillisMax"] == "0"
    assert told_stalls(StallBook().table(), longest=True) == []


@pytest.mark.parametrize("text", ["x", "{}", "[1]", json.dumps([{"what": "x"}]), '[{"at_ms": "y"}]'])
def test_invalid_list_of_stalls_is_refused(text: str) -> None:
    with pytest.raises(SparrowError, match="stall"):
        told_stalls({"loopStallsLast": text}, longest=False)


def test_error_says_that_the_server_reports_no_stalls() -> None:
    with pytest.raises(SparrowError, match="only SparrowMQ's servers do"):
        told_stalls({}, longest=False)


def test_stall_is_described_in_a_sentence() -> None:
    found = stall(120, cpu_ms=90, waited_ms=20, client="10.0.0.1:5", where=("a.py:1 f", "b.py:2 g"))
    assert found.sentence() == (
        "nobody else was served for 100 ms (of 120 ms on the clock it ran 90 and waited 20 for a processor): "
        "HEART_BEAT from 10.0.0.1:5; it was at a.py:1 f < b.py:2 g"
    )
