from __future__ import annotations

import logging
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.client.consumer.decoding import decode_messages
from sparrowmq.client.push.message_stream import DeliveredMessage
from sparrowmq.core.errors import RecordError
from sparrowmq.core.ids import pack_host
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.results import PullStatus, RawBatch
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.record import decode_records, encode_record, to_message

QUEUE = MessageQueue("T", "broker-a", 2)
V4 = pack_host("127.0.0.1", 10911)
V6 = pack_host("::1", 10911)


def record(
    offset: int,
    body: bytes = b"body",
    props: dict[str, str] | None = None,
    *,
    topic: str = "T",
    sys_flag: int = 0,
    born_host: bytes = V4,
    store_host: bytes = V4,
) -> bytes:
    return encode_record(
        topic=topic.encode(),
        queue_id=2,
        queue_offset=offset,
        physical_offset=1000 + offset,
        body=body,
        properties=properties.encode(props or {}),
        flag=9,
        sys_flag=sys_flag,
        born_timestamp=111,
        born_host=born_host,
        store_timestamp=222,
        store_host=store_host,
        reconsume_times=1,
        prepared_offset=5,
    )


def test_fast_loop_equals_the_general_decoder() -> None:
    buffer = b"".join(
        record(n, b"x" * n, {"TAGS": "A", "KEYS": "k1 k2", "UNIQ_KEY": f"U{n}"}) for n in range(5)
    )
    fast = decode_messages(buffer, QUEUE, ReceivedMessage, min_offset=3, max_offset=44)
    general = [to_message(stored, "broker-a") for stored in decode_records(buffer)]
    for message in general:
        message.properties |= {"MIN_OFFSET": "3", "MAX_OFFSET": "44"}
    assert fast == general
    assert fast[1].keys == ["k1", "k2"]
    assert fast[1].message_id == "U1"


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=30),
            st.dictionaries(
                st.text("abcXYZ", min_size=1, max_size=3), st.text("uvw", min_size=1), max_size=3
            ),
            st.sampled_from([(V4, V4), (V6, V4), (V4, V6), (V6, V6)]),
            st.sampled_from(["T", "t" * 127, "t" * 200]),
        ),
        max_size=6,
    )
)
def test_every_record_format_is_read_alike(
    items: list[tuple[bytes, dict[str, str], tuple[bytes, bytes], str]],
) -> None:
    buffer = b"".join(
        record(n, body, props, topic=topic, born_host=hosts[0], store_host=hosts[1])
        for n, (body, props, hosts, topic) in enumerate(items)
    )
    found = decode_messages(buffer, QUEUE, DeliveredMessage)
    assert RawBatch(PullStatus.FOUND, buffer, 0, 0, 0).count == len(items) == len(found)
    for message, stored in zip(found, decode_records(buffer), strict=True):
        general = to_message(stored, "broker-a")
        assert type(message) is DeliveredMessage
        assert message.queue is QUEUE
        for name in ("queue_offset", "topic", "body", "born_host", "store_host", "offset_message_id"):
            assert getattr(message, name) == getattr(general, name)
        assert message.properties == {**general.properties, "MIN_OFFSET": "0", "MAX_OFFSET": "0"}


def test_tags_are_compared_as_text() -> None:
    buffer = record(0, props={"TAGS": "A"}) + record(1, props={"TAGS": "B"}) + record(2)
    assert [m.queue_offset for m in decode_messages(buffer, QUEUE, ReceivedMessage, frozenset({"B"}))] == [1]
    v6 = record(0, props={"TAGS": "A"}, born_host=V6) + record(1, props={"TAGS": "B"}, born_host=V6)
    assert [m.queue_offset for m in decode_messages(v6, QUEUE, ReceivedMessage, frozenset({"B"}))] == [1]


@pytest.mark.parametrize("born_host", [V4, V6])
def test_retried_messages_show_their_original_topic(born_host: bytes) -> None:
    retry = MessageQueue("%RETRY%g", "broker-a", 0)
    buffer = record(0, props={"RETRY_TOPIC": "Orders"}, topic="%RETRY%g", born_host=born_host)
    (message,) = decode_messages(buffer, retry, ReceivedMessage)
    assert message.topic == "Orders"
    assert message.queue == retry


@pytest.mark.parametrize("born_host", [V4, V6])
def test_bodies_are_decompressed(born_host: bytes) -> None:
    buffer = record(0, zlib.compress(b"hello" * 100), sys_flag=0x301, born_host=born_host)
    (message,) = decode_messages(buffer, QUEUE, ReceivedMessage)
    assert message.body == b"hello" * 100
    assert message.sys_flag & 1 == 0


def test_damaged_body_is_delivered_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparrowmq.client"):
        (message,) = decode_messages(record(7, b"not zlib", sys_flag=0x301), QUEUE, ReceivedMessage)
    assert message.body == b"not zlib"
    assert message.sys_flag & 1 == 1
    assert "at offset 7" in caplog.text


def test_inner_batch_is_unpacked() -> None:
    items = [(1, b"one", properties.encode({"TAGS": "A"})), (2, b"two", properties.encode({"TAGS": "B"}))]
    buffer = record(10, encode_batch(items), sys_flag=0xC0) + record(12)
    messages = decode_messages(buffer, QUEUE, ReceivedMessage)
    assert [(m.queue_offset, m.body, m.flag) for m in messages] == [
        (10, b"one", 1),
        (11, b"two", 2),
        (12, b"body", 9),
    ]
    assert messages[1].tags == "B"


def test_unreadable_inner_batch_is_delivered_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparrowmq.client"):
        messages = decode_messages(
            record(10, b"no batch", sys_flag=0xC0) + record(11), QUEUE, ReceivedMessage
        )
    assert [(m.queue_offset, m.body) for m in messages] == [(10, b"no batch"), (11, b"body")]
    assert "at offset 10" in caplog.text


def test_incomplete_records_are_refused() -> None:
    whole = record(0) + record(1, props={"a": "b"})
    for size in range(1, len(whole)):
        if size == len(record(0)):
            continue
        with pytest.raises(RecordError):
            decode_messages(whole[:size], QUEUE, ReceivedMessage)


@pytest.mark.parametrize("value", [0, 1, 2**31 - 1, -1, -(2**31)])
def test_wrong_lengths_are_refused(value: int) -> None:
    buffer = bytearray(record(0))
    buffer[:4] = value.to_bytes(4, "big", signed=True)
    with pytest.raises(RecordError):
        decode_messages(bytes(buffer), QUEUE, ReceivedMessage)


MAGIC_AT, CRC_AT, BODY_SIZE_AT = 4, 8, 84
BODY = b"b" * 50


@pytest.mark.parametrize("born_host", [V4, V6])
@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("magic", b"\0\0\0\0"),
        ("crc", b"\0\0\0\1"),
        ("body", b"\xff\xff"),
        ("body size", b"\x7f\xff\xff\xff"),
        ("body size", b"\xff\xff\xff\xff"),
        ("body size", b"\0\0\0\0"),
        ("properties size", b"\1\1"),
    ],
)
def test_damaged_message_is_skipped_and_logged(
    born_host: bytes, part: str, wrong: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """It neither counts as valid nor blocks later messages."""
    damaged = bytearray(record(6, BODY, born_host=born_host))
    body_at = damaged.index(BODY)
    at = {
        "magic": MAGIC_AT,
        "crc": CRC_AT,
        "body size": BODY_SIZE_AT + len(born_host) - len(V4),
        "body": body_at,
        "properties size": body_at + len(BODY) + 1 + len(QUEUE.topic),
    }[part]
    damaged[at : at + len(wrong)] = wrong
    buffer = record(5) + bytes(damaged) + record(7)
    with caplog.at_level(logging.ERROR, "sparrowmq.client"):
        messages = decode_messages(buffer, QUEUE, ReceivedMessage)
    assert [message.queue_offset for message in messages] == [5, 7]
    (line,) = caplog.messages
    assert line.startswith(f"a damaged message of {QUEUE} at offset 6 is skipped: ")


def test_empty_buffer_has_no_messages() -> None:
    assert decode_messages(b"", QUEUE, ReceivedMessage) == []
