"""Pieces of target queues: exact where they are known, never an offset too far."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.pipelines.mirror.offset_map import PIECES_MAX, OffsetPiece, QueuePlaces

ONE, TWO = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)


def test_a_mirror_alone_keeps_one_piece() -> None:
    places = QueuePlaces(10)
    for start in range(0, 1000, 50):
        places = places.grown(places.end + 50, ONE, 500 + start)
    assert places.pieces == (OffsetPiece(10, 1010, ONE, 500),)
    assert places.unread(3, {ONE: 500}) == (3, 10)
    assert places.unread(10, {ONE: 500}) == (10, None)
    assert places.unread(10, {ONE: 742}) == (252, None)
    assert places.unread(600, {ONE: 742}) == (600, None)
    assert places.unread(10, {ONE: 1500}) == (1010, None)
    assert places.unread(10, {}) == (10, None)
    assert places.unread(2000, {ONE: 742}) == (2000, None)


def test_what_is_not_known_is_to_be_looked_into() -> None:
    places = QueuePlaces(0).grown(10, ONE, 0).grown(15).grown(20).grown(30, ONE, 10).grown(30).grown(29)
    assert places.pieces == (OffsetPiece(0, 10, ONE, 0), OffsetPiece(10, 20), OffsetPiece(20, 30, ONE, 10))
    assert places.unread(0, {ONE: 5}) == (5, None)
    assert places.unread(0, {ONE: 12}) == (10, 20)
    assert places.unread(13, {ONE: 12}) == (13, 20)
    assert places.unread(20, {ONE: 12}) == (22, None)


def test_a_jump_at_the_source_begins_a_piece() -> None:
    places = QueuePlaces(0).grown(10, ONE, 0).grown(20, ONE, 15).grown(30, TWO, 0)
    assert places.pieces == (
        OffsetPiece(0, 10, ONE, 0),
        OffsetPiece(10, 20, ONE, 15),
        OffsetPiece(20, 30, TWO, 0),
    )
    assert places.pieces[1].last == 25
    assert places.unread(0, {ONE: 12, TWO: 3}) == (10, None)
    assert places.unread(0, {ONE: 25, TWO: 3}) == (23, None)


def test_many_pieces_become_an_unknown_one() -> None:
    places = QueuePlaces(0)
    for number in range(PIECES_MAX * 3):
        places = places.grown(places.end + 1, ONE if number % 2 else TWO, number)
    assert len(places.pieces) <= PIECES_MAX
    assert places.pieces[0].source is None and places.pieces[0].start == 0
    assert all(a.end == b.start for a, b in zip(places.pieces, places.pieces[1:], strict=False))
    assert places.end == PIECES_MAX * 3


@given(
    st.lists(st.tuples(st.sampled_from([ONE, TWO, None]), st.integers(1, 5)), max_size=30),
    st.integers(0, 40),
    st.dictionaries(st.sampled_from([ONE, TWO]), st.integers(0, 60)),
)
def test_nothing_unread_is_passed_over(
    batches: list[tuple[MessageQueue | None, int]], start: int, read: dict[MessageQueue, int]
) -> None:
    places, log, next_ = QueuePlaces(0), list[tuple[MessageQueue, int] | None](), {ONE: 0, TWO: 0}
    for source, count in batches:
        if source is None:
            places = places.grown(places.end + count)
            log += [None] * count
            continue
        places = places.grown(places.end + count, source, next_[source])
        log += [(source, next_[source] + index) for index in range(count)]
        next_[source] += count
    at, end = places.unread(start, read)
    for entry in log[start:at]:
        assert entry is not None and entry[1] < read.get(entry[0], 0)
    if end is not None:
        assert all(entry is None for entry in log[at:end])
    elif at < len(log):
        entry = log[at]
        assert entry is not None and entry[1] >= read.get(entry[0], 0)
