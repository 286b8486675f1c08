"""Messages and queues."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime

import pytest

from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import SYSTEM_PROPERTIES, Message, MessageQueue, ReceivedMessage


def received(properties: dict[str, str]) -> ReceivedMessage:
    """A message with these properties."""
    return ReceivedMessage(
        queue=MessageQueue("T", "b", 0),
        queue_offset=1,
        physical_offset=2,
        topic="T",
        body=b"x",
        properties=properties,
        flag=0,
        sys_flag=0,
        born_timestamp=3,
        born_host="127.0.0.1:1",
        store_timestamp=4,
        store_host="127.0.0.1:2",
        reconsume_times=0,
        store_size=100,
        prepared_transaction_offset=0,
        offset_message_id="ID",
    )


@pytest.mark.parametrize(
    ("keys", "text"), [((), ""), ("a", "a"), ("a b", "a b"), (["a", "b"], "a b"), (("a",), "a")]
)
def test_keys_are_joined_with_spaces(keys: str | list[str], text: str) -> None:
    assert Message("T", b"x", keys=keys).keys_text == text


def test_messages_do_not_share_properties() -> None:
    assert Message("T", b"").properties is not Message("T", b"").properties


def test_message_id_is_the_unique_key_or_else_the_offset_id() -> None:
    assert received({"UNIQ_KEY": "U"}).message_id == "U"
    assert received({"UNIQ_KEY": ""}).message_id == "ID"
    assert received({}).message_id == "ID"


def test_tags_and_keys_come_from_the_properties() -> None:
    assert received({"TAGS": "A", "KEYS": " a  b "}).tags == "A"
    assert received({"TAGS": "A", "KEYS": " a  b "}).keys == ["a", "b"]
    assert received({"KEYS": "tab\tkey wide\u3000key"}).keys == ["tab\tkey", "wide\u3000key"]
    assert (received({}).tags, received({}).keys) == (None, [])


def test_queues_are_values_ordered_by_topic_broker_and_number() -> None:
    ordered = [
        MessageQueue("A", "b", 9),
        MessageQueue("A", "b", 10),
        MessageQueue("A", "c", 0),
        MessageQueue("B", "a", 0),
    ]
    backwards = ordered[::-1]
    assert sorted(backwards) == ordered
    assert len({MessageQueue("A", "b", 1), MessageQueue("A", "b", 1)}) == 1
    assert str(ordered[0]) == "A/b/9"
    with pytest.raises(dataclasses.FrozenInstanceError):
        ordered[0].queue_id = 1  # type: ignore[misc]


def test_reserved_property_names_include_those_that_rocketmq_sets() -> None:
    own = "KEYS TAGS WAIT DELAY UNIQ_KEY MSG_REGION TRACE_ON CLUSTER RETRY_TOPIC POP_CK"
    assert set(own.split()) <= SYSTEM_PROPERTIES
    assert "u_seq" not in SYSTEM_PROPERTIES


def with_body(body: bytes) -> ReceivedMessage:
    """A message with this body."""
    return dataclasses.replace(received({"UNIQ_KEY": "U"}), body=body)


@dataclasses.dataclass
class Order:
    """What a body may be."""

    id: int
    at: datetime


def test_json_and_text_go_into_a_message_and_come_out_of_one() -> None:
    order = Order(7, datetime(2026, 5, 1, tzinfo=UTC))
    made = Message.of_json("Orders", order, key="a")
    assert (made.topic, made.key) == ("Orders", "a")
    assert json.loads(made.body) == {"id": 7, "at": "2026-05-01T00:00:00Z"}
    assert with_body(made.body).json() == json.loads(made.body)
    assert with_body(made.body).json(Order) == order
    assert with_body(Message.of_text("T", "größer").body).text == "größer"


def test_body_that_is_not_what_was_asked_for_names_the_message() -> None:
    with pytest.raises(InvalidMessageError, match=r"message U of T/b/0, offset 1, is not UTF-8.*`body`"):
        _ = with_body(b"\xff").text
    for body in (b"{", b"\xff", b'"\xff"'):
        with pytest.raises(InvalidMessageError, match="message U of T/b/0, offset 1, is not JSON: "):
            with_body(body).json()
    with pytest.raises(InvalidMessageError, match=r"is not JSON of .*Order.*: .*`id`"):
        with_body(b"{}").json(Order)


def test_times_of_a_message_are_aware() -> None:
    message = received({})
    assert message.stored_at == datetime(1970, 1, 1, 0, 0, 0, 4000, UTC)
    assert message.born_at == datetime(1970, 1, 1, 0, 0, 0, 3000, UTC)
