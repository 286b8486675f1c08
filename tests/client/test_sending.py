from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.client.sending import (
    Outgoing,
    SendTarget,
    outgoing_batch,
    outgoing_encoded_batch,
    outgoing_single,
    property_text,
    send_result,
)
from sparrowmq.core.errors import BrokerError, InvalidMessageError, ProtocolError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendStatus
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import iter_batch
from sparrowmq.protocol.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command, FrameReader, decode
from sparrowmq.protocol.headers import send_from_v2
from sparrowmq.protocol.hot import SEND_PREFIXES, decode_send

MAX = 4 * 1024 * 1024
QUEUE = MessageQueue("TopicTest", "broker-a", 3)


def target(group: str = "g", queue: MessageQueue = QUEUE) -> SendTarget:
    return SendTarget(queue, "h:1", group=group, create_topic_key="TBW102", create_topic_queues=4)


def sent(data: bytes) -> Command:
    ((kind, header, body),) = FrameReader().feed(data)
    return decode(kind, header, body)


def test_a_send_request_has_every_field_of_the_short_header() -> None:
    message = Message("TopicTest", b"hello", tags="TagA", keys=["k1", "k2"], flag=7)
    outgoing = outgoing_single(message, "ID1", 1_700_000_000_000, MAX)
    command = sent(target().request(outgoing, 42))
    assert (command.code, command.opaque, command.flag, command.body) == (310, 42, 0, b"hello")
    header = send_from_v2(command.ext)
    assert (header.producer_group, header.topic) == ("g", "TopicTest")
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert (header.queue_id, header.broker_name) == (3, "broker-a")
    assert (header.sys_flag, header.flag, header.born_timestamp) == (0, 7, 1_700_000_000_000)
    assert (header.batch, header.unit_mode, header.reconsume_times) == (False, False, 0)
    assert properties.decode((header.properties or "").encode()) == {
        "UNIQ_KEY": "ID1",
        "WAIT": "true",
        "TAGS": "TagA",
        "KEYS": "k1 k2",
    }


def test_a_broker_recognises_the_send_at_once() -> None:
    outgoing = outgoing_single(Message("TopicTest", b"x"), "ID1", 5, MAX)
    ((_, header, _),) = FrameReader().feed(target().request(outgoing, 42, FLAG_ONEWAY))
    assert header.startswith(SEND_PREFIXES)
    found = decode_send(header)
    assert found is not None
    assert (found.opaque, found.flag, found.fields.topic, found.fields.e) == (42, FLAG_ONEWAY, "TopicTest", 3)


@given(st.text(max_size=40), st.text(max_size=40), st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50))
def test_headers_are_valid_json_whatever_the_text(key: str, value: str, flag: int, body: bytes) -> None:
    message = Message("T", body or b"x", keys=key, properties={"name": value}, flag=flag)
    try:
        outgoing = outgoing_single(message, "ID", 5, MAX)
    except InvalidMessageError:
        return
    data = target(group='g"\\', queue=MessageQueue("T", 'b"\\\u0007', 1)).request(outgoing, 1)
    ((_, header, found_body),) = FrameReader().feed(data)
    fields = json.loads(header)["extFields"]
    assert (fields["a"], fields["n"], fields["h"]) == ('g"\\', 'b"\\\u0007', str(flag))
    assert found_body == (body or b"x")
    expected = {"UNIQ_KEY": "ID", "WAIT": "true", "name": value}
    if key:
        expected["KEYS"] = key
    assert properties.decode(fields["i"].encode()) == expected


def test_wait_store_ok_is_sent_as_java_writes_it() -> None:
    assert "WAIT\x01false\x02" in property_text(Message("T", b"x", wait_store_ok=False), "ID")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message("T", b""), "empty"),
        (Message("T", "text"), "must be bytes, not str"),  # type: ignore[arg-type]
        (Message("T", b"x" * 11), "11 bytes, the limit is 10"),
        (Message("T", b"x", properties={"TAGS": "a"}), "'TAGS' is RocketMQ's own"),
        (Message("T", b"x", properties={"UNIQ_KEY": "a"}), "'UNIQ_KEY'"),
        (Message("T", b"x", properties={"DELAY": "1"}), "'DELAY'"),
        (Message("T", b"x", properties={"a": ""}), "blank"),
        (Message("T", b"x", properties={" ": "a"}), "blank"),
        (Message("T", b"x", properties={"a": 5}), "not text"),  # type: ignore[dict-item]
        (Message("T", b"x", properties={"a": "x\x02y"}), "0x01 and 0x02"),
        (Message("T", b"x", keys="x\x01y"), "0x01 and 0x02"),
        (Message("T", b"x", tags="x\x02y"), "0x01 and 0x02"),
        (Message("T", b"x", properties={"a": "\ud800"}), "UTF-8"),
        (Message("T", b"x", properties={"a": "y" * 32767}), "the limit is 32767"),
        (Message("T", b"x", properties={"a": "ü" * 16383}), "the limit is 32767"),
    ],
)
def test_messages_that_break_a_limit_are_refused(message: Message, words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words) as caught:
        outgoing_single(message, "ID", 5, 10)
    assert caught.value.code == 13


def test_properties_may_fill_the_limit_exactly() -> None:
    fixed = len(property_text(Message("T", b"x", properties={"a": "y"}), "ID").encode()) - 1
    exact = Message("T", b"x", properties={"a": "y" * (32767 - fixed)})
    assert len(property_text(exact, "ID").encode()) == 32767


def test_a_batch_is_one_request_with_an_id_for_each_and_one_for_all() -> None:
    messages = [Message("T", b"%d" % number, tags=f"t{number}", flag=number) for number in range(3)]
    outgoing = outgoing_batch(messages, ["A", "B", "C"], "ALL", 5, MAX)
    command = sent(target().request(outgoing, 1))
    header = send_from_v2(command.ext)
    assert command.code == 320
    assert header.batch
    assert properties.decode((header.properties or "").encode()) == {"UNIQ_KEY": "ALL", "WAIT": "true"}
    items = list(iter_batch(command.body))
    assert [(flag, body) for flag, body, _ in items] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert [properties.find(text, b"UNIQ_KEY") for _, _, text in items] == [b"A", b"B", b"C"]
    assert outgoing.message_id == "A,B,C"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one"),
        ([Message("T", b"x"), Message("U", b"x")], "'T' and 'U'"),
        ([Message("T", b"x"), Message("T", b"x", wait_store_ok=False)], "wait_store_ok"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("T", b"x"), Message("T", b"")], "empty"),
        ([Message("T", b"x" * 30)] * 4, "the limit is 100; send smaller"),
        ([Message("T", b"x", properties={"a": "\ud800"})], "UTF-8"),
    ],
)
def test_batches_that_cannot_be_one_are_refused(messages: list[Message], words: str) -> None:
    with pytest.raises(InvalidMessageError, match=words):
        outgoing_batch(messages, ["K"] * len(messages), "ALL", 5, 100)


def test_an_encoded_batch_is_sent_as_it_is() -> None:
    outgoing = outgoing_encoded_batch("T", b"body", 2, "ALL", 5, MAX)
    command = sent(target().request(outgoing, 1))
    assert (command.code, command.body, command.ext["m"]) == (320, b"body", "true")
    with pytest.raises(InvalidMessageError, match="at least one"):
        outgoing_encoded_batch("T", b"", 2, "ALL", 5, MAX)
    with pytest.raises(InvalidMessageError, match="smaller"):
        outgoing_encoded_batch("T", b"12345", 2, "ALL", 5, 4)


def test_a_compressed_body_is_marked_by_the_system_flag() -> None:
    outgoing = Outgoing("T", zlib.compress(b"x"), b'""', "ID", 5, sys_flag=0x301)
    assert send_from_v2(sent(target().request(outgoing, 1)).ext).sys_flag == 0x301


def stored(code: int = 0, **changes: str | None) -> Command:
    ext: dict[str, Any] = {"msgId": "OFF", "queueId": "3", "queueOffset": "17", "transactionId": "TX"}
    ext.update(changes)
    return Command(code, flag=FLAG_RESPONSE, ext={k: v for k, v in ext.items() if v is not None})


@pytest.mark.parametrize("status", list(SendStatus))
def test_four_codes_mean_stored(status: SendStatus) -> None:
    outgoing = outgoing_single(Message("T", b"x"), "ID", 5, MAX)
    result = send_result(stored(int(status)), outgoing, target())
    assert result.status is status
    assert (result.message_id, result.offset_message_id) == ("ID", "OFF")
    assert (result.queue, result.queue_offset, result.transaction_id) == (QUEUE, 17, "TX")


def test_the_broker_may_have_chosen_another_queue() -> None:
    outgoing = outgoing_single(Message("T", b"x"), "ID", 5, MAX)
    result = send_result(stored(queueId="5", transactionId=None), outgoing, target())
    assert result.queue == MessageQueue("TopicTest", "broker-a", 5)
    assert result.transaction_id is None


def test_an_inner_batch_has_one_id() -> None:
    outgoing = outgoing_batch([Message("T", b"x")] * 2, ["A", "B"], "ALL", 5, MAX)
    assert send_result(stored(), outgoing, target()).message_id == "A,B"
    assert send_result(stored(batchUniqId="ONE"), outgoing, target()).message_id == "ONE"


def test_other_codes_are_errors_with_code_address_and_remark() -> None:
    outgoing = outgoing_single(Message("T", b"x"), "ID", 5, MAX)
    refusal = Command(13, flag=FLAG_RESPONSE, remark="too large")
    with pytest.raises(
        BrokerError, match=r"answer 13 to send to TopicTest/broker-a/3 from h:1: too large"
    ) as e:
        send_result(refusal, outgoing, target())
    assert e.value.code == 13


@pytest.mark.parametrize("changes", [{"msgId": None}, {"queueId": None}, {"queueOffset": "x"}])
def test_an_incomplete_answer_is_not_taken_for_stored(changes: dict[str, str | None]) -> None:
    outgoing = outgoing_single(Message("T", b"x"), "ID", 5, MAX)
    with pytest.raises(ProtocolError, match="h:1"):
        send_result(stored(0, **changes), outgoing, target())
