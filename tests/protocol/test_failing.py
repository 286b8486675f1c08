from __future__ import annotations

import pytest

from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.failing import TOLD_MAX, FailingQueue, failing_of, failing_text


def failing(number: int, seconds: int = 1) -> FailingQueue:
    return FailingQueue(MessageQueue("T", "broker-a", number), 3, seconds)


def test_what_is_told_is_read_and_those_that_fail_longest_are_first() -> None:
    assert failing_text([]) == "[]"
    assert failing_of(failing_text([failing(0), failing(1, 9)])) == [failing(1, 9), failing(0)]
    many = [failing(number, number) for number in range(TOLD_MAX + 5)]
    told = failing_of(failing_text(many))
    assert (len(told), told[0], told[-1]) == (TOLD_MAX, many[-1], many[5])


@pytest.mark.parametrize(
    "text", ["", "nonsense", "{}", "[1]", '[["T","b",0,1]]', '[["T","b","0",1,1]]', "null"]
)
def test_a_text_that_is_none_says_nothing(text: str) -> None:
    assert failing_of(text) == []
