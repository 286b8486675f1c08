"""Requests that name a stored message need permission for its topic, not for the topic in the header."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.broker.doubles import FakeConnection
from tests.broker.rig import Rig

from sparrowmq.broker.access.by_position import PLACES, PlacedRequests, topic_of
from sparrowmq.broker.access.callers import Principal
from sparrowmq.broker.base.internal_store import InnerMessage
from sparrowmq.core.errors import ProtocolError
from sparrowmq.core.ids import offset_message_id, pack_host
from sparrowmq.core.names import HALF_TOPIC, SCHEDULE_TOPIC
from sparrowmq.protocol import properties
from sparrowmq.protocol.frame import Command

HOST = pack_host("127.0.0.1", 10911)


class OneTopic:
    """A gate that knows one topic."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.asked: list[str] = []

    def refusal(self, host: str, command: Command) -> tuple[int, str] | None:
        return None

    def topic_refusal(self, host: str, command: Command, topic: str) -> tuple[int, str] | None:
        self.asked.append(topic)
        return None if topic == self.topic else (16, f"not {topic} from {host}")

    def caller(self, host: str, command: Command) -> Principal:
        return Principal.nobody(host)

    def may_send(self, caller: Principal, host: str, topic: str) -> bool:
        return True


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    found = Rig(tmp_path)
    yield found
    found.close()


def fields(code: int, offset: int) -> dict[str, str]:
    """The header of a request for the message at an offset; it claims the topic `Mine`."""
    message_id = offset_message_id(HOST, offset)
    return {
        33: {"offset": str(offset), "topic": "Mine"},
        36: {"offset": str(offset), "group": "g", "delayLevel": "0", "originTopic": "Mine"},
        37: {
            "producerGroup": "p",
            "tranStateTableOffset": "0",
            "commitLogOffset": str(offset),
            "commitOrRollback": "8",
            "topic": "Mine",
        },
        309: {"consumerGroup": "g", "msgId": message_id, "topic": "Mine"},
        323: {"msgId": message_id, "topic": "Mine"},
    }[code]


def guarded(rig: Rig, gate: OneTopic, code: int, ext: dict[str, str]) -> Any:
    handlers = PlacedRequests(gate, rig.inner.read).guard({code: lambda conn, command: "handled"})
    return handlers[code](FakeConnection(), Command(code, ext=ext))


def stored(rig: Rig, topic: str, text: bytes = b"") -> int:
    """The physical offset of a message stored under `topic`, which is made for it."""
    if topic not in rig.topics.configs:
        rig.make_topic(topic, 1)
    (placed,) = rig.inner.put([InnerMessage(topic, 0, b"x", text, 0, 0, 1_700_000_000_000, HOST)])
    return placed.physical_offset


@pytest.mark.parametrize("code", sorted(PLACES))
def test_topic_of_the_stored_message_decides(rig: Rig, code: int) -> None:
    offset = stored(rig, "Theirs")
    refused = guarded(rig, gate := OneTopic("Mine"), code, fields(code, offset))
    assert (refused.code, refused.remark) == (16, "not Theirs from 127.0.0.1")
    assert gate.asked == ["Theirs"]
    assert guarded(rig, OneTopic("Theirs"), code, fields(code, offset)) == "handled"


@pytest.mark.parametrize("code", sorted(PLACES))
def test_handler_answers_when_there_is_no_message(rig: Rig, code: int) -> None:
    gate = OneTopic("Mine")
    assert guarded(rig, gate, code, fields(code, 12345)) == "handled"
    assert gate.asked == []


@pytest.mark.parametrize("code", [309, 323])
@pytest.mark.parametrize("text", ["", "xyz", "00"])
def test_invalid_id_is_left_to_the_handler(rig: Rig, code: int, text: str) -> None:
    assert guarded(rig, OneTopic("Mine"), code, {**fields(code, 0), "msgId": text}) == "handled"


@pytest.mark.parametrize("code", [33, 36, 37])
def test_unreadable_record_is_refused_before_the_handler(rig: Rig, code: int) -> None:
    name = "commitLogOffset" if code == 37 else "offset"
    with pytest.raises(ProtocolError):
        guarded(rig, OneTopic("Mine"), code, {**fields(code, 0), name: "x"})


def test_other_requests_are_not_checked(rig: Rig) -> None:
    handler = object()
    assert PlacedRequests(OneTopic("Mine"), rig.inner.read).guard({34: handler}) == {34: handler}


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, HALF_TOPIC])
def test_delayed_message_belongs_to_its_original_topic(rig: Rig, topic: str) -> None:
    def sent_to(text: bytes) -> str:
        record = rig.inner.read(stored(rig, topic, text))
        assert record is not None
        return topic_of(record)

    assert sent_to(properties.encode({"REAL_TOPIC": "Orders"})) == "Orders"
    assert sent_to(properties.encode({"KEYS": "k"})) == topic
