"""Strategies with machine rooms: the reference's examples, and names without a room."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support import about

from sparrowmq.core.allocation import Averagely, ByMachineRoom, MachineRoomNearby
from sparrowmq.core.errors import AllocationError
from sparrowmq.core.message import MessageQueue

ROOMS = [
    *(MessageQueue("T", "hz@b1", number) for number in range(3)),
    *(MessageQueue("T", "hz@b2", number) for number in range(3)),
    *(MessageQueue("T", "sh@b3", number) for number in range(3)),
]


def by_room(rooms: set[str], members: int) -> list[list[str]]:
    ids = [f"c{index}" for index in range(members)]
    return [
        [
            f"{queue.broker_name}:{queue.queue_id}"
            for queue in ByMachineRoom(rooms).allocate("g", c, ROOMS, ids)
        ]
        for c in ids
    ]


@pytest.mark.proves("client:C.5.4")
def test_queues_of_the_machine_rooms_are_allocated_with_the_remainder_at_the_end() -> None:
    assert by_room({"hz"}, 2) == [["hz@b1:0", "hz@b1:1", "hz@b1:2"], ["hz@b2:0", "hz@b2:1", "hz@b2:2"]]
    assert by_room({"hz"}, 4) == [
        ["hz@b1:0", "hz@b2:1"],
        ["hz@b1:1", "hz@b2:2"],
        ["hz@b1:2"],
        ["hz@b2:0"],
    ]
    assert by_room({"hz", "sh"}, 3) == [[f"{b}:{n}" for n in range(3)] for b in ("hz@b1", "hz@b2", "sh@b3")]
    assert by_room({"bj"}, 2) == [[], []]


@pytest.mark.proves("client:C.5.4")
@pytest.mark.parametrize(
    ("broker", "kept"),
    [
        ("hz@b", True),
        ("hz@b@", True),
        ("@b", False),
        ("hz@", False),
        ("hz", False),
        ("hz@b@c", False),
        ("sh@b", False),
        ("@", False),
        ("hz@X", True),
    ],
)
def test_only_broker_names_of_two_parts_have_a_machine_room(broker: str, kept: bool) -> None:
    queue = MessageQueue("T", broker, 0)
    assert ByMachineRoom({"hz"}).allocate("g", "c", [queue], ["c"]) == ([queue] if kept else [])


class ByDash:
    """The room is the text before the dash."""

    def queue_room(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("-")[0]

    def client_room(self, client_id: str) -> str:
        return client_id.partition("-")[0]


def nearby(ids: list[str]) -> dict[str, list[str]]:
    queues = [MessageQueue("T", f"{room}-b", number) for room in ("bj", "hz", "sh") for number in range(4)]
    strategy = MachineRoomNearby(Averagely(), ByDash())
    return {
        client: [
            f"{queue.broker_name.partition('-')[0]} {queue.queue_id}"
            for queue in strategy.allocate("g", client, queues, ids)
        ]
        for client in ids
    }


@pytest.mark.proves("client:C.5.5")
def test_rooms_with_members_keep_their_queues_and_all_members_share_the_others() -> None:
    assert nearby(["hz-c0", "hz-c1", "sh-c0"]) == {
        "hz-c0": ["hz 0", "hz 1", "bj 0", "bj 1"],
        "hz-c1": ["hz 2", "hz 3", "bj 2"],
        "sh-c0": ["sh 0", "sh 1", "sh 2", "sh 3", "bj 3"],
    }
    assert nearby(["bj-c0", "hz-c0", "sh-c0"]) == {
        f"{room}-c0": [f"{room} {number}" for number in range(4)] for room in ("bj", "hz", "sh")
    }
    assert nearby(["hz-c0", "hz-c1", "hz-c2"]) == {
        "hz-c0": ["hz 0", "hz 1", "bj 0", "bj 1", "sh 0", "sh 1"],
        "hz-c1": ["hz 2", "bj 2", "sh 2"],
        "hz-c2": ["hz 3", "bj 3", "sh 3"],
    }
    halves = [
        [f"{room} {number}" for room in ("bj", "hz", "sh") for number in half] for half in ((0, 1), (2, 3))
    ]
    assert nearby(["gz-c0", "gz-c1"]) == {"gz-c0": halves[0], "gz-c1": halves[1]}


@pytest.mark.proves("client:C.5.5")
def test_rooms_are_in_javas_order_and_the_inner_strategy_gets_the_group() -> None:
    """Java sorts texts by UTF-16 units: a pair of them, from U+10000 on, lies below U+FF5E."""

    class Noting(Averagely):
        def allocate(self, group: str, *arguments: Any) -> list[MessageQueue]:
            groups.append(group)
            return super().allocate(group, *arguments)

    groups: list[str] = []
    queues = [MessageQueue("T", f"{room}-b", 0) for room in ("～", "😀", "hz")]
    share = MachineRoomNearby(Noting(), ByDash()).allocate("the group", "hz-c", queues, ["hz-c"])
    assert [queue.broker_name for queue in share] == ["hz-b", "😀-b", "～-b"]
    assert groups == ["the group"] * 3


@pytest.mark.proves("client:C.5.5")
def test_empty_room_is_refused() -> None:
    strategy = MachineRoomNearby(Averagely(), ByDash())
    with pytest.raises(AllocationError, check=about(what="room", value=MessageQueue("T", "-b", 0))):
        strategy.allocate("g", "hz-c", [MessageQueue("T", "-b", 0)], ["hz-c"])
    with pytest.raises(AllocationError, check=about(what="room", value="-c")):
        strategy.allocate("g", "hz-c", [MessageQueue("T", "hz-b", 0)], ["-c", "hz-c"])
