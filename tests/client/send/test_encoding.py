from __future__ import annotations

import itertools
import json
import zlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.client.send.encoding import (
    Outgoing,
    SendTarget,
    may_linger,
    outgoing_batch,
    outgoing_encoded_batch,
    outgoing_single,
    property_text,
    send_result,
    split_batch,
    system_properties,
)
from sparrowmq.core.errors import BrokerError, InvalidMessageError, ProtocolError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendStatus
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import decode_batch
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


@pytest.mark.proves("client:B.9", "MUST-55")
def test_send_request_has_every_field_of_the_short_header() -> None:
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


def test_broker_recognises_the_send_at_once() -> None:
    outgoing = outgoing_single(Message("TopicTest", b"x"), "ID1", 5, MAX)
    ((_, header, _),) = FrameReader().feed(target().request(outgoing, 42, FLAG_ONEWAY))
    assert header.startswith(SEND_PREFIXES)
    found = decode_send(header)
    assert found is not None
    assert (found.opaque, found.flag, found.fields.topic, found.fields.e) == (42, FLAG_ONEWAY, "TopicTest", 3)


@given(st.text(max_size=40), st.text(max_size=40), st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50))
def test_headers_are_valid_json_for_any_text(key: str, value: str, flag: int, body: bytes) -> None:
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


@pytest.mark.proves("client:B-07", "client:B-10")
@pytest.mark.parametrize(
    ("message", "part"),
    [
        (Message("T", b""), "body"),
        (Message("T", "text"), "body"),
        (Message("T", b"x", properties={"TAGS": "a"}), "TAGS"),
        (Message("T", b"x", properties={"UNIQ_KEY": "a"}), "UNIQ_KEY"),
        (Message("T", b"x", properties={"DELAY": "1"}), "DELAY"),
        (Message("T", b"x", properties={"a": ""}), "a"),
        (Message("T", b"x", properties={" ": "a"}), " "),
        (Message("T", b"x", properties={"a": 5}), "a"),
        (Message("T", b"x", properties={"a": "x\x02y"}), "properties"),
        (Message("T", b"x", keys="x\x01y"), "properties"),
        (Message("T", b"x", tags="x\x02y"), "properties"),
        (Message("T", b"x", keys="k tab\tkey"), "keys"),
        (Message("T", b"x", keys=["line\nkey"]), "keys"),
        (Message("T", b"x", keys=["k", "wide\u3000key"]), "keys"),
        (Message("T", b"x", keys=["order 17"]), "keys"),
        (Message("T", b"x", tags=" paid"), "tag"),
        (Message("T", b"x", tags="paid\u00a0"), "tag"),
        (Message("T", b"x", tags="a||b"), "tag"),
        (Message("T", b"x", properties={"a": "\ud800"}), "properties"),
    ],
)
def test_messages_that_cannot_be_sent_are_refused(message: Message, part: str) -> None:
    with pytest.raises(InvalidMessageError, check=about(code=13, part=part, limit=None)):
        outgoing_single(message, "ID", 5, 10)


@pytest.mark.parametrize(
    ("message", "part", "limit"),
    [
        (Message("T", b"x" * 11), "body", 10),
        (Message("T", b"x", properties={"a": "y" * 32767}), "properties", 32767),
        (Message("T", b"x", properties={"a": "ü" * 16383}), "properties", 32767),
    ],
)
def test_messages_that_exceed_a_limit_are_refused(message: Message, part: str, limit: int) -> None:
    with pytest.raises(InvalidMessageError, check=about(code=13, part=part, limit=limit)):
        outgoing_single(message, "ID", 5, 10)


def test_properties_may_fill_the_limit_exactly() -> None:
    fixed = len(property_text(Message("T", b"x", properties={"a": "y"}), "ID").encode()) - 1
    exact = Message("T", b"x", properties={"a": "y" * (32767 - fixed)})
    assert len(property_text(exact, "ID").encode()) == 32767


@pytest.mark.proves("client:B-45")
def test_batch_is_one_request_with_an_id_for_each_and_one_for_all() -> None:
    messages = [Message("T", b"%d" % number, tags=f"t{number}", flag=number) for number in range(3)]
    outgoing = outgoing_batch(messages, ["A", "B", "C"], "ALL", 5, MAX)
    command = sent(target().request(outgoing, 1))
    header = send_from_v2(command.ext)
    assert command.code == 320
    assert header.batch
    assert properties.decode((header.properties or "").encode()) == {"UNIQ_KEY": "ALL", "WAIT": "true"}
    items = decode_batch(command.body)
    assert [(flag, body) for flag, body, _ in items] == [(0, b"0"), (1, b"1"), (2, b"2")]
    assert [properties.find(text, b"UNIQ_KEY") for _, _, text in items] == [b"A", b"B", b"C"]
    assert outgoing.message_id == "A,B,C"
    command = sent(target().request(outgoing_batch(messages, ["A", "B", "C"], "", 5, MAX), 1))
    text = (send_from_v2(command.ext).properties or "").encode()
    assert properties.decode(text) == {"WAIT": "true"}, "with no id for all"


@pytest.mark.proves("client:B-72", "client:B-73")
@pytest.mark.parametrize(
    ("messages", "facts"),
    [
        ([], {"part": "batch"}),
        ([Message("T", b"x"), Message("U", b"x")], {"part": "topic"}),
        ([Message("T", b"x"), Message("T", b"x", wait_store_ok=False)], {"part": "wait_store_ok"}),
        ([Message("%RETRY%g", b"x")], {"part": "topic"}),
        ([Message("T", b"x"), Message("T", b"")], {"part": "body"}),
        ([Message("T", b"x" * 30)] * 4, {"part": "batch", "limit": 100}),
        ([Message("T", b"x", properties={"a": "\ud800"})], {"part": "properties"}),
    ],
)
def test_invalid_batches_are_refused(messages: list[Message], facts: dict[str, object]) -> None:
    with pytest.raises(InvalidMessageError, check=about(**facts)):
        outgoing_batch(messages, ["K"] * len(messages), "ALL", 5, 100)


def test_encoded_batch_is_sent_unchanged() -> None:
    outgoing = outgoing_encoded_batch("T", b"body", 2, "ALL", 5, MAX)
    command = sent(target().request(outgoing, 1))
    assert (command.code, command.body, command.ext["m"]) == (320, b"body", "true")
    with pytest.raises(InvalidMessageError, check=about(part="batch")):
        outgoing_encoded_batch("T", b"", 2, "ALL", 5, MAX)
    with pytest.raises(InvalidMessageError, check=about(part="batch", limit=4)):
        outgoing_encoded_batch("T", b"12345", 2, "ALL", 5, 4)


def test_compressed_body_is_marked_by_the_system_flag() -> None:
    outgoing = Outgoing("T", zlib.compress(b"x"), b'""', "ID", 5, sys_flag=0x301)
    assert send_from_v2(sent(target().request(outgoing, 1)).ext).sys_flag == 0x301


def stored(code: int = 0, **changes: str | None) -> Command:
    ext: dict[str, Any] = {"msgId": "OFF", "queueId": "3", "queueOffset": "17", "transactionId": "TX"}
    ext.update(changes)
    return Command(code, flag=FLAG_RESPONSE, ext={k: v for k, v in ext.items() if v is not None})


@pytest.mark.proves("client:B-42", "client:B-44")
@pytest.mark.parametrize("status", list(SendStatus))
def test_four_codes_mean_stored(status: SendStatus) -> None:
    outgoing = outgoing_single(Message("T", b"x"), "ID", 5, MAX)
    result = send_result(stored(int(status)), outgoing, target())
    assert result.status is status
    assert (result.message_id, result.offset_message_id) == ("ID", "OFF")
    assert (result.queue, result.queue_offset, result.transaction_id) == (QUEUE, 17, "TX")


@pytest.mark.proves("client:B-44")
def test_broker_may_select_another_queue() -> None:
    outgoing = outgoing_single(Message("T", b"x"), "ID", 5, MAX)
    result = send_result(stored(queueId="5", transactionId=None), outgoing, target())
    assert result.queue == MessageQueue("TopicTest", "broker-a", 5)
    assert result.transaction_id is None


@pytest.mark.proves("client:B-45")
def test_inner_batch_has_one_id() -> None:
    outgoing = outgoing_batch([Message("T", b"x")] * 2, ["A", "B"], "ALL", 5, MAX)
    assert send_result(stored(), outgoing, target()).message_id == "A,B"
    assert send_result(stored(batchUniqId="ONE"), outgoing, target()).message_id == "ONE"


@pytest.mark.proves("client:B-42")
def test_other_codes_are_errors_with_code_address_and_remark() -> None:
    outgoing = outgoing_single(Message("T", b"x"), "ID", 5, MAX)
    refusal = Command(13, flag=FLAG_RESPONSE, remark="too large")
    with pytest.raises(BrokerError, check=about(code=13, remark="too large")) as e:
        send_result(refusal, outgoing, target())
    assert e.value.code == 13


@pytest.mark.parametrize("changes", [{"msgId": None}, {"queueId": None}, {"queueOffset": "x"}])
def test_incomplete_answer_does_not_count_as_stored(changes: dict[str, str | None]) -> None:
    outgoing = outgoing_single(Message("T", b"x"), "ID", 5, MAX)
    with pytest.raises(ProtocolError, check=about(what="answer", value="h:1")):
        send_result(stored(0, **changes), outgoing, target())


@pytest.mark.proves("client:B-104", "client:B-105")
@pytest.mark.parametrize(
    ("when", "found"),
    [
        ({"delay_level": 3}, {"DELAY": "3"}),
        ({"delay_level": 0}, None),
        ({"delay": 2.5}, {"TIMER_DELAY_MS": "2500"}),
        ({"delay": 0}, {"TIMER_DELAY_MS": "0"}),
        ({"deliver_at": 1_700_000_000.5}, {"TIMER_DELIVER_MS": "1700000000500"}),
        ({"deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, {"TIMER_DELIVER_MS": "1893456000000"}),
        ({}, None),
    ],
)
def test_times_become_properties(when: dict[str, Any], found: dict[str, str] | None) -> None:
    message = Message("T", b"x", **when)
    assert system_properties(message) == found
    outgoing = outgoing_single(message, "ID", 1, MAX)
    text = json.loads(outgoing.properties)
    for name, value in (found or {}).items():
        assert f"{name}\x01{value}\x02" in text
    assert outgoing.is_timer is any(name.startswith("TIMER") for name in found or {})
    assert not outgoing.needs_command


@pytest.mark.parametrize(
    ("when", "part"),
    [
        ({"delay_level": -1}, "delay_level"),
        ({"delay_level": 1.5}, "delay_level"),
        ({"delay_level": True}, "delay_level"),
        ({"delay_level": 2**31}, "delay_level"),
        ({"delay": -1}, "delay"),
        ({"delay": float("nan")}, "delay"),
        ({"delay": True}, "delay"),
        ({"delay": "5"}, "delay"),
        ({"deliver_at": float("inf")}, "deliver_at"),
        ({"deliver_at": datetime(2030, 1, 1)}, "deliver_at"),
        ({"delay_level": 1, "delay": 1}, "delay_level and delay"),
        ({"delay": 1, "deliver_at": 1}, "delay and deliver_at"),
        ({"system": {"INNER_MULTI_DISPATCH": "a/b"}}, "INNER_MULTI_DISPATCH"),
    ],
)
@pytest.mark.proves("client:B-08", "client:B-105")
def test_invalid_times_are_refused(when: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidMessageError, check=about(part=part)):
        outgoing_single(Message("T", b"x", **when), "ID", 1, MAX)


def test_message_may_have_its_own_id() -> None:
    outgoing = outgoing_single(Message("T", b"x", system={"UNIQ_KEY": "own"}), "ID", 1, MAX)
    assert outgoing.message_id == "own"
    assert outgoing.system is None
    assert json.loads(outgoing.properties).count("UNIQ_KEY\x01own\x02") == 1
    later = outgoing_single(Message("T", b"x", delay_level=2, system={"UNIQ_KEY": "own"}), "ID", 1, MAX)
    assert later.system == {"DELAY": "2"}
    assert "UNIQ_KEY\x01ID" not in json.loads(later.properties)


@pytest.mark.parametrize(
    ("message", "plain", "lingers"),
    [
        (Message("T", b"x", tags="a", keys=["k"], properties={"p": "v"}, flag=3), True, True),
        (Message("T", b"x", wait_store_ok=False), True, True),
        (Message("T", b"x", delay_level=0), True, True),
        (Message("T", b"x", delay_level=1), False, False),
        (Message("T", b"x", delay=1.5), False, False),
        (Message("T", b"x", deliver_at=1e9), False, False),
        (Message("T", b"x", system={"TRAN_MSG": "true"}), False, False),
        (Message("T", b"x", system={"MSG_TYPE": "reply"}), False, False),
        (Message("T", b"x", system={"CORRELATION_ID": "c", "TTL": "3"}), False, False),
        (Message("T", b"x", system={"UNIQ_KEY": "own"}), True, False),
        (Message("%RETRY%g", b"x"), True, False),
    ],
)
def test_plain_send_has_no_special_request(message: Message, plain: bool, lingers: bool) -> None:
    outgoing = outgoing_single(message, "ID", 1, MAX)
    assert (outgoing.is_plain, may_linger(message)) == (plain, lingers)
    assert outgoing.changed(body=b"y").is_plain is plain, "the same for every try"


def test_plain_sends_are_decided_in_one_place() -> None:
    for path in (Path(__file__).parents[3] / "src" / "sparrowmq" / "client").rglob("*.py"):
        text = path.read_text()
        assert path.name == "encoding.py" or "outgoing.system is" not in text, path
        assert path.name == "encoding.py" or "system_properties(" not in text, path


@pytest.mark.proves("client:B-98", "client:B-103")
def test_half_messages_have_the_prepared_bits() -> None:
    system = {"TRAN_MSG": "true", "PGROUP": "g"}
    assert outgoing_single(Message("T", b"x", system=system), "ID", 1, MAX).sys_flag == 4
    assert outgoing_single(Message("T", b"x", system={"TRAN_MSG": "false"}), "ID", 1, MAX).sys_flag == 0


@pytest.mark.proves("client:B-41")
@given(
    st.binary(min_size=1, max_size=50),
    st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1).filter(
        str.strip
    ),
    st.integers(0, 2**31 - 1),
)
def test_command_equals_its_template(body: bytes, value: str, flag: int) -> None:
    outgoing = outgoing_single(Message("TopicTest", body, properties={"a": value}, flag=flag), "ID1", 5, MAX)
    quick, slow = sent(target().request(outgoing, 1)), target().command(outgoing)
    assert (slow.code, slow.ext, slow.body) == (quick.code, quick.ext, quick.body)


def test_batch_command_equals_its_template() -> None:
    outgoing = outgoing_batch(
        [Message("TopicTest", b"a"), Message("TopicTest", b"b")], ["1", "2"], "3", 5, MAX
    )
    quick, slow = sent(target().request(outgoing, 1)), target().command(outgoing)
    assert (slow.code, slow.ext, slow.body) == (320, quick.ext, quick.body)


@pytest.mark.proves("client:B-41")
def test_retry_topics_have_their_counts_in_header_and_properties() -> None:
    system = {"RECONSUME_TIME": "4", "MAX_RECONSUME_TIMES": "16"}
    message = Message("%RETRY%g", b"x", system=system)
    outgoing = outgoing_single(message, "ID", 1, MAX)
    assert outgoing.needs_command
    command = target(queue=MessageQueue("%RETRY%g", "broker-a", 0)).command(outgoing)
    assert (command.ext["j"], command.ext["l"]) == ("4", "16")
    assert "RECONSUME_TIME\x014\x02" in command.ext["i"]
    plain = outgoing_single(Message("T", b"x", system=system), "ID", 1, MAX)
    command = target().command(plain)
    assert (command.ext["j"], "l" in command.ext) == ("0", False)


@pytest.mark.proves("client:B-72")
def test_batch_refuses_delay_levels_and_accepts_times() -> None:
    with pytest.raises(InvalidMessageError, check=about(part="delay_level")):
        outgoing_batch([Message("T", b"x", delay_level=2)], ["1"], "b", 1, MAX)
    batch = outgoing_batch([Message("T", b"x", delay=1)], ["1"], "b", 1, MAX)
    ((_, _, text),) = decode_batch(batch.body)
    assert b"TIMER_DELAY_MS\x011000\x02" in text


@pytest.mark.proves("client:B-73")
@given(
    st.lists(
        st.tuples(
            st.integers(1, 400), st.sampled_from(["T", "T", "U"]), st.booleans(), st.sampled_from([0, 0, 2])
        ),
        max_size=30,
    ),
    st.integers(600, 2000),
)
def test_split_groups_fit_and_lose_nothing(items: list[tuple[int, str, bool, int]], bytes_max: int) -> None:
    messages = [
        Message(topic, b"x" * size, wait_store_ok=wait, delay_level=level or None)
        for size, topic, wait, level in items
    ]
    groups = list(split_batch(messages, bytes_max=bytes_max))
    assert [message for group in groups for message in group] == messages
    for group in groups:
        assert group
        if group[0].delay_level:
            assert len(group) == 1
        else:
            outgoing_batch(group, ["0" * 32] * len(group), "b", 1, bytes_max)
    for one, two in itertools.pairwise(groups):
        alike = (one[0].topic, one[0].wait_store_ok) == (two[0].topic, two[0].wait_store_ok)
        if alike and not one[0].delay_level and not two[0].delay_level:
            with pytest.raises(InvalidMessageError, check=about(part="batch")):
                outgoing_batch([*one, two[0]], ["0" * 56] * (len(one) + 1), "b", 1, bytes_max)


def test_number_of_split_groups_is_bounded_and_too_large_messages_are_separate() -> None:
    small = [Message("T", b"x")] * 5
    assert [len(group) for group in split_batch(small, count_max=2)] == [2, 2, 1]
    large = Message("T", b"x" * 5000)
    assert [len(group) for group in split_batch([small[0], large, small[0]], bytes_max=1000)] == [1, 1, 1]


@pytest.mark.proves("client:B-44", "client:B-106")
def test_result_contains_the_brokers_further_data() -> None:
    outgoing = outgoing_single(Message("TopicTest", b"x"), "ID1", 5, MAX)
    ext = {"msgId": "O", "queueId": "3", "queueOffset": "9"}
    plain = send_result(Command(0, flag=FLAG_RESPONSE, ext=ext), outgoing, target())
    assert (plain.recall_handle, plain.region, plain.trace_on) == (None, "DefaultRegion", True)
    ext |= {"recallHandle": "H", "MSG_REGION": "R", "TRACE_ON": "false"}
    full = send_result(Command(0, flag=FLAG_RESPONSE, ext=ext), outgoing, target())
    assert (full.recall_handle, full.region, full.trace_on) == ("H", "R", False)
