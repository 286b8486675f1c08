"""Java's order of names, and the checks that strategies share."""

from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.core.allocation import (
    AllocateStrategy,
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    queue_key,
    utf16_key,
)
from sparrowmq.core.errors import AllocationError
from sparrowmq.core.message import MessageQueue

QUEUES = [MessageQueue("T", "r@b", number) for number in range(4)]


class OneRoom:
    """Everything is in one room."""

    def queue_room(self, queue: MessageQueue) -> str:
        return "r"

    def client_room(self, client_id: str) -> str:
        return "r"


CHECKING: list[AllocateStrategy] = [
    Averagely(),
    AveragelyByCircle(),
    ByMachineRoom({"r"}),
    MachineRoomNearby(Averagely(), OneRoom()),
    ConsistentHash(),
]


@pytest.mark.proves("client:C-16")
@pytest.mark.parametrize("strategy", CHECKING, ids=lambda strategy: strategy.name)
@pytest.mark.parametrize(
    ("client", "queues", "ids", "what"),
    [
        ("", QUEUES, ["a"], "client"),
        ("a", [], ["a"], "queues"),
        ("a", QUEUES, [], "members"),
    ],
)
def test_empty_arguments_are_refused(
    strategy: AllocateStrategy, client: str, queues: list[MessageQueue], ids: list[str], what: str
) -> None:
    with pytest.raises(AllocationError, check=about(what=what)):
        strategy.allocate("g", client, queues, ids)


@pytest.mark.proves("client:C-17")
@pytest.mark.parametrize("strategy", CHECKING, ids=lambda strategy: strategy.name)
def test_member_that_is_not_listed_gets_nothing(strategy: AllocateStrategy) -> None:
    assert strategy.allocate("g", "x", QUEUES, ["a", "b"]) == []
    assert sum(len(strategy.allocate("g", one, QUEUES, ["a", "b"])) for one in "ab") == 4


@pytest.mark.proves("client:C-18")
def test_configured_queues_are_allocated_without_a_check() -> None:
    for client, queues, ids in (("", [], []), ("x", QUEUES, ["a"])):
        assert ByConfig(QUEUES[:2]).allocate("g", client, queues, ids) == QUEUES[:2]


@pytest.mark.proves("client:C.5.1", "client:C.5.2", "client:C.5.3", "client:C.5.4", "client:C.5.6")
def test_strategies_have_rocketmqs_names() -> None:
    names = [strategy.name for strategy in (*CHECKING, ByConfig([]))]
    assert names == [
        "AVG",
        "AVG_BY_CIRCLE",
        "MACHINE_ROOM",
        "MACHINE_ROOM_NEARBY-AVG",
        "CONSISTENT_HASH",
        "CONFIG",
    ]


@pytest.mark.proves("client:Z-04")
def test_text_is_ordered_by_utf16_unit_as_in_java() -> None:
    """U+1F600 takes two units from D83D on, so Java puts it before U+FF5E, Python behind."""
    texts = ["\uff5e", "\U0001f600", "a"]
    assert sorted(texts) == ["a", "\uff5e", "\U0001f600"]
    assert sorted(texts, key=utf16_key) == ["a", "\U0001f600", "\uff5e"]
    assert utf16_key("a\ud83d") == b"\x00a\xd8\x3d", "half a pair is text, too"


@pytest.mark.proves("client:Z-04")
def test_queues_are_ordered_by_topic_broker_and_number() -> None:
    ordered = [
        MessageQueue("A", "a", 9),
        MessageQueue("A", "a", 10),
        MessageQueue("A", "b", 0),
        MessageQueue("B", "\U0001f600", 0),
        MessageQueue("B", "\uff5e", 0),
    ]
    backwards = ordered[::-1]
    assert sorted(backwards, key=queue_key) == ordered
