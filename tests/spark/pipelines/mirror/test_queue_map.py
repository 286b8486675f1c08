"""Source queues keep their target queues, whatever grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.pipelines.mirror.queue_map import extended, per_broker


def queues(broker: str, count: int, topic: str = "T") -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for number in range(count)]


def test_equal_queues_go_to_their_namesakes_others_in_order() -> None:
    assert extended({}, queues("a", 3), queues("a", 3)) == {queue: queue for queue in queues("a", 3)}
    both = [*queues("a", 2), *queues("b", 2)]
    found = extended({}, both, queues("x", 4))
    assert [found[queue] for queue in both] == queues("x", 4)
    back = extended({}, queues("x", 4), both)
    assert {target: source for source, target in back.items()} == found


def test_a_namesake_that_is_taken_is_left_to_who_has_it() -> None:
    one, two = queues("a", 2)
    other = MessageQueue("T", "b", 0)
    assert extended({other: one}, [one], [one, two]) == {other: one, one: two}


def test_growth_leaves_old_ones_alone() -> None:
    known = extended({}, queues("a", 2), queues("x", 2))
    grown = extended(known, queues("a", 4), queues("x", 4))
    assert {queue: grown[queue] for queue in known} == known
    assert sorted(grown.values()) == queues("x", 4)


def test_too_few_targets_are_shared_evenly_and_none_is_an_error() -> None:
    found = extended({}, queues("a", 5), queues("x", 2))
    assert sorted(list(found.values()).count(target) for target in queues("x", 2)) == [2, 3]
    with pytest.raises(SettingsError, check=about(setting="topics", value="T")):
        extended({}, queues("a", 1), queues("x", 2, topic="U"))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 4))
def test_a_queue_never_moves(sizes: list[int], brokers: int) -> None:
    known: dict[MessageQueue, MessageQueue] = {}
    for size in sizes:
        targets = [queue for number in range(brokers) for queue in queues(f"x{number}", size)]
        grown = extended(known, queues("a", size), targets)
        assert known.items() <= grown.items()
        assert len(set(grown.values())) == len(grown)  # there are enough for each to have its own
        known = grown


def test_how_many_queues_a_broker_needs() -> None:
    assert per_broker(4, queues("a", 4), 1) is None
    assert per_broker(5, queues("a", 4), 1) == 5
    assert per_broker(5, [], 2) == 3
    assert per_broker(9, [*queues("a", 6), *queues("b", 1)], 2) == 6
