from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from tests.support import about

from sparrowmq.client.send.encoding import SendTarget
from sparrowmq.client.send.queue_selection import (
    PublishInfo,
    one_choice,
    select_by_hash,
    select_by_random,
    select_target,
)
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import Message, MessageQueue


def info(*brokers: str, queues: int = 2, index: int = 0) -> PublishInfo:
    targets = [
        SendTarget(
            MessageQueue("T", broker, number),
            f"{broker}:1",
            group="g",
            create_topic_key="TBW102",
            create_topic_queues=4,
        )
        for broker in brokers
        for number in range(queues)
    ]
    return PublishInfo("T", targets, index)


@pytest.mark.proves("client:B-20", "client:B-23")
def test_queues_are_used_in_turn() -> None:
    publish = info("a", "b", index=5)
    turns = [publish.next().queue for _ in range(8)]
    assert Counter(turns) == dict.fromkeys(publish.queues, 2)
    assert turns[:4] == turns[4:]
    assert turns[0] == publish.queues[6 % 4]


@pytest.mark.proves("client:B-20", "client:Z-03")
def test_rotation_survives_the_end_of_31_bits() -> None:
    publish = info("a", queues=3, index=0x7FFFFFFE)
    assert [publish.next().queue.queue_id for _ in range(3)] == [0x7FFFFFFF % 3, 0, 1]


@pytest.mark.proves("client:B-21")
def test_retry_goes_to_another_broker() -> None:
    publish = info("a", "b", "c")
    for _ in range(20):
        assert publish.next_other("b").queue.broker_name != "b"


@pytest.mark.proves("client:B-21", "client:B-22")
def test_retry_goes_to_the_next_queue_of_a_single_broker() -> None:
    publish = info("a", queues=3)
    first = publish.next().queue.queue_id
    others = [publish.next_other("a").queue.queue_id for _ in range(3)]
    assert others == [(first + more) % 3 for more in (1, 2, 3)]


@pytest.mark.proves("client:B-52")
@pytest.mark.parametrize(
    ("argument", "queue_id"), [("order-1", 2), ("order-2001", 2), (7, 3), (-7, 3), (0, 0), ("", 0)]
)
def test_hash_selection_is_javas(argument: object, queue_id: int) -> None:
    queues = [MessageQueue("T", "a", number) for number in range(4)]
    assert select_by_hash(queues, Message("T", b"x"), argument).queue_id == queue_id


@pytest.mark.proves("client:B-53")
def test_random_selection_returns_one_of_the_queues() -> None:
    queues = [MessageQueue("T", "a", number) for number in range(4)]
    assert {select_by_random(queues, Message("T", b"x"), None) for _ in range(200)} == set(queues)


@pytest.mark.proves("client:B-35")
def test_selector_gets_queues_message_and_argument() -> None:
    message = Message("T", b"x")

    def choose(queues: Sequence[MessageQueue], given: Message, argument: Any) -> MessageQueue:
        assert given is message
        return queues[int(argument)]

    assert select_target(info("a"), choose, message, 1).queue == MessageQueue("T", "a", 1)


@pytest.mark.proves("client:B-35", "client:B-54")
def test_selector_that_fails_or_selects_nothing_is_named() -> None:
    def broken(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
        raise KeyError("no")

    def nothing(queues: Sequence[MessageQueue], message: Message, argument: Any) -> None:
        return None

    def foreign(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
        return MessageQueue("T", "zzz", 9)

    for selector in (broken, nothing, foreign):
        with pytest.raises(ClientError, check=about(what="selector", value=selector.__name__)):
            select_target(info("a"), selector, Message("T", b"x"), None)


def test_only_one_way_to_select_a_queue_is_allowed() -> None:
    queue = MessageQueue("T", "a", 0)
    assert one_choice(None, None, None) is None
    assert one_choice(queue, None, None) is None
    assert one_choice(None, None, "key") is select_by_hash
    assert one_choice(None, select_by_random, None) is select_by_random
    with pytest.raises(ClientError, check=about(value=["queue", "hash_key"])):
        one_choice(queue, None, "key")
    with pytest.raises(ClientError, check=about(value=["selector", "hash_key"])):
        one_choice(None, select_by_random, "key")


@pytest.mark.proves("client:B-29")
def test_later_asynchronous_attempt_keeps_its_queue_id() -> None:
    publish = info("a", "b", queues=3)
    failed = publish.targets[1]
    for _ in range(6):
        assert publish.elsewhere(failed).queue == MessageQueue("T", "b", 1)
    alone = info("a", queues=3)
    assert alone.elsewhere(alone.targets[1]) is alone.targets[1], "the same broker again"
    uneven = PublishInfo("T", [*info("a", queues=3).targets, *info("b", queues=1).targets], 0)
    assert uneven.elsewhere(uneven.targets[2]).queue == MessageQueue("T", "b", 0)


@pytest.mark.proves("client:B-20")
def test_rotation_can_continue_anywhere() -> None:
    publish = info("a", queues=4)
    publish.shuffle(random.Random(7))
    first = publish.index
    publish.shuffle(random.Random(8))
    assert publish.index != first
