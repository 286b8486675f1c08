from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq import Message, select_by_hash
from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.write.routing import TURN_ROWS, Destination, RouteColumns, group_rows, numbered_rows


def _queues(topic: str) -> list[MessageQueue]:
    return [MessageQueue(topic, "broker-a", index) for index in range(4)]


def _groups(columns: RouteColumns, count: int) -> list[tuple[Destination, list[int]]]:
    return [(destination, rows.tolist()) for destination, rows in group_rows(columns, count, _queues)]


def test_a_fixed_topic_takes_all_rows() -> None:
    assert _groups(RouteColumns("t"), 3) == [(Destination("t"), [0, 1, 2])]
    assert _groups(RouteColumns("t"), 0) == []


def test_topics_of_a_column_keep_the_order_of_rows() -> None:
    columns = RouteColumns(pa.array(["b", "a", "b", "b"]))
    assert _groups(columns, 4) == [(Destination("b"), [0, 2, 3]), (Destination("a"), [1])]
    assert _groups(RouteColumns(pa.array([], pa.string())), 0) == []


@given(st.lists(st.tuples(st.sampled_from(["s", "t"]), st.none() | st.text(max_size=3)), max_size=20))
def test_equal_keys_go_where_javas_selector_sends_them(rows: list[tuple[str, str | None]]) -> None:
    topics = pa.array([topic for topic, _ in rows], pa.string())
    keys = pa.array([key for _, key in rows], pa.string())
    groups = _groups(RouteColumns(topics, keys), len(rows))
    assert sorted(row for _, found in groups for row in found) == list(range(len(rows)))
    for destination, found in groups:
        assert found == sorted(found)
        for row in found:
            topic, key = rows[row]
            expected = select_by_hash(_queues(topic), Message(topic, b""), key) if key else None
            assert destination == Destination(topic, expected)


def test_a_named_queue_goes_before_a_key() -> None:
    columns = RouteColumns(
        "t",
        sharding_keys=pa.array(["k", "k", None, None]),
        brokers=pa.array(["b", None, "b", None]),
        queue_ids=pa.array([7, None, 8, None], pa.int32()),
    )
    by_key = select_by_hash(_queues("t"), Message("t", b""), "k")
    assert {row: destination.queue for destination, rows in _groups(columns, 4) for row in rows} == {
        0: MessageQueue("t", "b", 7),
        1: by_key,
        2: MessageQueue("t", "b", 8),
        3: None,
    }


def test_a_queue_has_one_group_however_it_was_chosen() -> None:
    by_key = select_by_hash(_queues("t"), Message("t", b""), "k")
    columns = RouteColumns(
        "t",
        sharding_keys=pa.array(["k", "k", "k"]),
        brokers=pa.array([None, "broker-a", None]),
        queue_ids=pa.array([None, by_key.queue_id, None], pa.int32()),
    )
    assert _groups(columns, 3) == [(Destination("t", by_key), [0, 1, 2])]


def test_sliced_columns_are_read_from_their_own_start() -> None:
    topics, keys = pa.array(["x", "t", "t"]).slice(1), pa.array(["x", "k", None]).slice(1)
    by_key = select_by_hash(_queues("t"), Message("t", b""), "k")
    assert _groups(RouteColumns(topics, keys), 2) == [
        (Destination("t"), [1]),
        (Destination("t", by_key), [0]),
    ]


@pytest.mark.parametrize(
    ("columns", "part"),
    [
        (RouteColumns(pa.array(["t", None])), "topic"),
        (RouteColumns(pa.array(["t", "a b"])), "topic"),
        (RouteColumns(pa.array(["t", "SCHEDULE_TOPIC_XXXX"])), "topic"),
        (
            RouteColumns("t", brokers=pa.array(["b", "b"]), queue_ids=pa.array([0, None], pa.int32())),
            "queue",
        ),
        (
            RouteColumns(
                "t", brokers=pa.array([None, None], pa.string()), queue_ids=pa.array([None, 1], pa.int32())
            ),
            "queue",
        ),
    ],
)
def test_rows_that_go_nowhere_are_named(columns: RouteColumns, part: str) -> None:
    with pytest.raises(InvalidMessageError, check=about(part=part, value=1)):
        _groups(columns, 2)


def _turns(count: int, first: int, partition: int, columns: RouteColumns | None = None) -> list[MessageQueue]:
    """The queue of each row."""
    found: dict[int, MessageQueue] = {}
    given = columns or RouteColumns("t")
    for queue, rows in numbered_rows(given, count, _queues, first=first, partition=partition):
        assert len(rows)
        found |= dict.fromkeys(rows.tolist(), queue)
    return [found[row] for row in range(count)]


def test_a_rows_queue_depends_on_its_place_only() -> None:
    whole = _turns(5 * TURN_ROWS + 7, 0, 1)
    assert [whole[number * TURN_ROWS] for number in range(4)] == [
        _queues("t")[(number + 1) % len(_queues("t"))] for number in range(4)
    ]
    for cut in (1, TURN_ROWS - 1, TURN_ROWS, 3 * TURN_ROWS + 5):
        assert _turns(cut, 0, 1) + _turns(len(whole) - cut, cut, 1) == whole
    assert _turns(1, 0, 0) != _turns(1, 0, 1), "each partition begins with another queue"
    assert _turns(0, 0, 0) == []


def test_rows_with_a_key_or_a_queue_keep_it() -> None:
    columns = RouteColumns("t", pa.array(["k", None, "k"]))
    by_key = select_by_hash(_queues("t"), Message("t", b""), "k")
    assert _turns(3, 0, 2, columns) == [by_key, _queues("t")[2 % len(_queues("t"))], by_key]
