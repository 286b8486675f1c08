from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import (
    MessageMark,
    Span,
    StreamOffset,
    advance,
    describe,
    lag,
    lost,
    spans,
    split,
    to_tree,
)

QUEUES = st.builds(MessageQueue, st.sampled_from(["s", "t"]), st.sampled_from(["a", "b"]), st.integers(0, 12))
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**62), max_size=8)
SMALL = st.dictionaries(QUEUES, st.integers(0, 50), max_size=8)


def _queue(queue_id: int) -> MessageQueue:
    return MessageQueue("t", "b", queue_id)


Q0, Q1, Q2 = _queue(0), _queue(1), _queue(2)


@given(st.builds(StreamOffset, OFFSETS, OFFSETS, st.booleans()))
def test_json_round_trip(offset: StreamOffset) -> None:
    text = json.dumps(offset.to_json())
    assert StreamOffset.from_json(json.loads(text)) == offset
    assert text == json.dumps(json.loads(text), sort_keys=True)


@given(OFFSETS, st.randoms())
def test_equal_offsets_have_equal_text(offsets: dict[MessageQueue, int], random: Random) -> None:
    shuffled = list(offsets.items())
    random.shuffle(shuffled)
    assert json.dumps(StreamOffset(dict(shuffled)).to_json()) == json.dumps(StreamOffset(offsets).to_json())


def test_the_tree_has_topic_broker_and_queue() -> None:
    assert to_tree({_queue(10): 5, _queue(9): 4, MessageQueue("s", "z", 0): 1}) == {
        "s": {"z": {"0": 1}},
        "t": {"b": {"10": 5, "9": 4}},
    }


@pytest.mark.parametrize(
    "value", [None, 5, [], {"o": 1}, {"queues": 5}, {"queues": {"t": 1}}, {"queues": {"t": {"b": {"x": 1}}}}]
)
def test_a_foreign_checkpoint_is_refused(value: object) -> None:
    with pytest.raises(SettingsError, check=about(setting="checkpointLocation", value=None)):
        StreamOffset.from_json(value)


def test_last_known_ends_are_kept_and_older_offsets_have_none() -> None:
    offset = StreamOffset({Q0: 5, Q1: 2}, ends={Q0: 5, Q1: 9})
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))).ends == {Q0: 5, Q1: 9}
    assert "ends" not in StreamOffset({Q0: 5}).to_json()
    assert StreamOffset.from_json({"queues": {"t": {"b": {"0": 5}}}}).ends == {}


def test_a_checkpoint_of_a_later_release_is_refused() -> None:
    value = StreamOffset({Q0: 5}).to_json() | {"epoch": 3}
    with pytest.raises(SettingsError, check=about(setting="checkpointLocation", value="epoch")):
        StreamOffset.from_json(value)


@given(SMALL, st.integers(1, 300))
def test_shares_add_up_and_never_exceed_the_lag(lags: dict[MessageQueue, int], limit: int) -> None:
    shares = split(lags, limit)
    waiting = {queue: count for queue, count in lags.items() if count > 0}
    assert sum(shares.values()) == min(limit, sum(waiting.values()))
    assert all(0 < share <= waiting[queue] for queue, share in shares.items())
    if limit >= len(waiting):
        assert set(shares) == set(waiting)


def test_shares_follow_the_lag() -> None:
    assert split({Q0: 1000, Q1: 3000, Q2: 0}, 400) == {Q0: 100, Q1: 300}
    assert split({Q0: 1, Q1: 10**9}, 100) == {Q0: 1, Q1: 99}
    assert split({Q0: 5, Q1: 9, Q2: 7}, 2) == {Q1: 1, Q2: 1}


@given(SMALL, SMALL, SMALL, st.none() | st.integers(1, 100), st.booleans())
def test_an_advance_never_goes_back_nor_past_the_ends(
    starts: dict[MessageQueue, int],
    ends: dict[MessageQueue, int],
    firsts: dict[MessageQueue, int],
    limit: int | None,
    initial: bool,
) -> None:
    start = StreamOffset(starts, initial=initial)
    end = advance(start, ends, firsts, limit)
    assert set(end.queues) == set(starts) | (set(ends) & set(firsts))
    begin = firsts | starts
    for queue, offset in end.queues.items():
        assert begin[queue] <= offset <= max(begin[queue], ends.get(queue, 0))
    planned = spans(start, end)
    count = sum(len(span) for span in planned)
    assert count == sum(end.queues[queue] - begin[queue] for queue in end.queues)
    if limit is None:
        assert all(offset >= ends.get(queue, 0) for queue, offset in end.queues.items())
    else:
        assert count <= limit
    other_start = StreamOffset({queue: offset + 7 for queue, offset in starts.items()})
    if initial:
        assert spans(other_start, end) == planned


@given(SMALL, SMALL, st.integers(1, 20))
def test_advances_reach_the_end_without_gap_or_overlap(
    starts: dict[MessageQueue, int], ends: dict[MessageQueue, int], limit: int
) -> None:
    offset = StreamOffset(starts, initial=True)
    read: dict[MessageQueue, int] = dict(starts)
    for _ in range(500):
        following = advance(offset, ends, {}, limit)
        if following.queues == offset.queues:
            break
        for span in spans(offset, following):
            assert span.start == read[span.queue]
            read[span.queue] = span.end
        offset = following
    assert all(read[queue] >= ends.get(queue, 0) for queue in starts)


def test_batch_zero_carries_its_start() -> None:
    end = advance(StreamOffset({Q0: 100}, initial=True), {Q0: 110}, {}, None)
    assert spans(StreamOffset({Q0: 200}, initial=True), end) == [Span(Q0, 100, 110)]
    later = advance(end, {Q0: 120}, {}, None)
    assert later.since == {}
    assert spans(end, later) == [Span(Q0, 110, 120)]


def test_an_offset_to_itself_is_nothing() -> None:
    end = StreamOffset({Q0: 110}, {Q0: 100})
    assert spans(end, end) == []


def test_a_new_queue_is_read_from_its_minimum() -> None:
    start = StreamOffset({Q0: 5})
    end = advance(start, {Q0: 5, Q1: 9, Q2: 4}, {Q1: 3}, None)
    assert end == StreamOffset({Q0: 5, Q1: 9}, {Q1: 3})
    assert spans(start, end) == [Span(Q1, 3, 9)]


def test_a_queue_that_is_gone_stays_where_it_was() -> None:
    assert advance(StreamOffset({Q0: 5, Q1: 7}), {Q0: 6}, {}, None).queues == {Q0: 6, Q1: 7}


def test_lag_and_losses() -> None:
    assert lag({Q0: 5, Q1: 7}, {Q0: 9, Q1: 7, Q2: 2}) == 6
    assert lag({Q0: 9}, {Q0: 5}) == 0
    assert lost({Q0: 5, Q1: 7, Q2: 1}, {Q0: 4, Q1: 7}) == [Q0]


def test_descriptions_are_short() -> None:
    assert describe([Q0, Q1]) == "t/b/0, t/b/1"
    assert describe(map(_queue, range(7))) == "t/b/0, t/b/1, t/b/2, t/b/3, t/b/4 and 2 more"


def test_the_time_when_all_was_seen_is_kept() -> None:
    offset = StreamOffset({MessageQueue("t", "b", 0): 3}, seen_ms=1_700_000_000_000)
    assert offset.to_json()["seen"] == 1_700_000_000_000
    assert StreamOffset.from_json(offset.to_json()).seen_ms == 1_700_000_000_000
    assert "seen" not in StreamOffset({}).to_json()
    with pytest.raises(SettingsError, check=about(setting="checkpointLocation", value=None)):
        StreamOffset.from_json(offset.to_json() | {"seen": "soon"})


def test_marks_are_kept_and_older_offsets_have_none() -> None:
    mark = MessageMark(1_700_000_000_001, 1_700_000_000_000, 2**32 - 1, 4096)
    offset = StreamOffset({Q0: 3, Q1: 0}, marks={Q0: mark})
    value = offset.to_json()
    assert value["marks"] == {"t": {"b": {"0": [1_700_000_000_001, 1_700_000_000_000, 2**32 - 1, 4096]}}}
    assert StreamOffset.from_json(json.loads(json.dumps(value))).marks == {Q0: mark}
    older = StreamOffset({Q0: 3, Q1: 0}).to_json()
    assert "marks" not in older and StreamOffset.from_json(older).marks == {}
    assert StreamOffset.from_json(older) == offset, "marks do not make another offset"


@pytest.mark.parametrize("mark", [5, [1, 2, 3], ["a", 1, 2, 3]])
def test_marks_of_another_shape_are_refused(mark: object) -> None:
    value = StreamOffset({Q0: 3}).to_json() | {"marks": {"t": {"b": {"0": mark}}}}
    with pytest.raises(SettingsError, check=about(setting="checkpointLocation", value=None)):
        StreamOffset.from_json(value)


def test_a_message_is_the_same_wherever_it_is_stored() -> None:
    mark = MessageMark(7, 6, 5, 4096)
    assert mark.is_of(mark._replace(position=0))
    assert not any(mark.is_of(mark._replace(**{name: 0})) for name in ("stored_ms", "born_ms", "body_crc"))
