"""Consistent hashing: the reference's check values and examples, and unusual rings."""

from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.core.allocation import ConsistentHash
from sparrowmq.core.allocation.consistent_hash import md5_point
from sparrowmq.core.errors import AllocationError
from sparrowmq.core.message import MessageQueue

QUEUES = [MessageQueue("T", broker, number) for broker in ("broker-a", "broker-b") for number in range(4)]


def shares(ids: list[str], queues: list[MessageQueue], strategy: ConsistentHash | None = None) -> list[str]:
    used = strategy or ConsistentHash()
    return [
        " ".join(f"{q.broker_name[-1]}{q.queue_id}" for q in used.allocate("g", client, queues, ids))
        for client in ids
    ]


@pytest.mark.proves("client:C.5.6")
def test_points_are_the_first_four_bytes_of_md5() -> None:
    assert md5_point("c0-0") == 2316876094
    assert md5_point("\ud83d") == md5_point("?"), "Java writes half a pair as a question mark"
    assert md5_point("MessageQueue [topic=T, brokerName=broker-a, queueId=0]") == 1630488180


@pytest.mark.proves("client:C.5.6")
def test_allocation_equals_rocketmqs_and_a_lost_member_moves_only_its_queues() -> None:
    assert shares(["c0", "c1"], QUEUES[:4]) == ["a0 a1", "a2 a3"]
    assert shares(["10.0.0.1@1", "10.0.0.2@2", "10.0.0.3@3"], QUEUES) == ["a3", "a2", "a0 a1 b0 b1 b2 b3"]
    assert shares(["10.0.0.1@1", "10.0.0.3@3"], QUEUES) == ["a2 a3", "a0 a1 b0 b1 b2 b3"]


@pytest.mark.proves("client:C.5.6")
def test_ring_without_points_allocates_nothing_and_a_negative_number_is_refused() -> None:
    assert shares(["c0", "c1"], QUEUES, ConsistentHash(0)) == ["", ""]
    with pytest.raises(AllocationError, check=about(what="virtual_nodes", value=-1)):
        ConsistentHash(-1)


@pytest.mark.proves("client:C.5.6")
def test_point_of_two_members_belongs_to_the_later_one() -> None:
    assert shares(["c0", "c1"], QUEUES, ConsistentHash(3, lambda text: 5)) == ["", "a0 a1 a2 a3 b0 b1 b2 b3"]


@pytest.mark.proves("client:C.5.6")
def test_queue_gets_the_next_point_and_after_the_last_the_smallest() -> None:
    points = {"c0-0": 10, "c1-0": 20}
    queues = {f"queueId={number}]": point for number, point in enumerate((10, 11, 20, 21))}

    def point(text: str) -> int:
        return points.get(text) or next(at for end, at in queues.items() if text.endswith(end))

    assert shares(["c0", "c1"], QUEUES[:4], ConsistentHash(1, point)) == ["a0 a3", "a1 a2"]


@pytest.mark.proves("client:C-15", "client:C.5.6")
def test_client_that_is_listed_twice_has_twice_the_points() -> None:
    seen: list[str] = []

    def point(text: str) -> int:
        if not text.startswith("MessageQueue"):
            seen.append(text)
        return md5_point(text)

    ConsistentHash(2, point).allocate("g", "c0", QUEUES, ["c0", "c0"])
    assert seen == ["c0-0", "c0-1", "c0-2", "c0-3"]


@pytest.mark.proves("client:C-15", "client:C.5.6")
def test_point_lost_to_another_member_no_longer_counts() -> None:
    points = {"c0-0": 1, "c0-1": 2, "c0-2": 3, "c1-0": 2, "c1-1": 11, "c1-2": 12}
    seen: list[str] = []

    def point(text: str) -> int:
        seen.append(text)
        return points.get(text, 99)

    ConsistentHash(3, point).allocate("g", "c0", QUEUES[:1], ["c0", "c1", "c0"])
    assert seen[:3] == ["c0-0", "c0-1", "c0-2"]
    assert seen[3:6] == ["c1-0", "c1-1", "c1-2"]
    assert seen[6:9] == ["c0-2", "c0-3", "c0-4"], "it had three and lost one"
