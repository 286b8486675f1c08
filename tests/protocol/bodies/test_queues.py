"""Entries of a consume queue as tools see them, against what was recorded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded

from sparrowmq.core.errors import BodyError
from sparrowmq.protocol.bodies.queues import ConsumeQueueData, QueryConsumeQueueBody
from sparrowmq.protocol.java_json import loads

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ENTRIES = st.builds(ConsumeQueueData, INT64, INT32, INT64, TEXT, TEXT, st.booleans(), TEXT)


def test_recorded_entries_are_read_and_written_with_the_same_meaning() -> None:
    seen = 0
    for exchange, answer in recorded.answers(321):
        if answer.code:
            continue
        body = QueryConsumeQueueBody.decode(answer.body)
        theirs = loads(answer.body)
        ours = loads(body.encode())
        assert {name: theirs[name] for name in ours} == ours, exchange
        seen += len(body.queue_data)
    assert seen > 5


@given(st.builds(QueryConsumeQueueBody, st.lists(ENTRIES, max_size=4), INT64, INT64))
def test_what_is_written_is_read_back(body: QueryConsumeQueueBody) -> None:
    assert QueryConsumeQueueBody.decode(body.encode()) == body


@pytest.mark.parametrize(
    "data",
    [b"[]", b'{"queueData":5}', b'{"maxQueueIndex":"x"}', b'{"queueData":[{"physicSize":2147483648}]}'],
)
def test_entries_that_do_not_fit_are_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        QueryConsumeQueueBody.decode(data)
