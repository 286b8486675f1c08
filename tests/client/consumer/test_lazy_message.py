"""Messages that compute their properties on demand."""

from __future__ import annotations

from typing import Any

from sparrowmq.client.consumer.decoding import decode_messages
from sparrowmq.client.consumer.lazy_message import LazyMessage
from sparrowmq.core.ids import pack_host
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol import properties
from sparrowmq.protocol.record import encode_record

QUEUE = MessageQueue("T", "broker-a", 2)
HOST = pack_host("127.0.0.1", 10911)


def decoded(kind: type[Any], props: dict[str, str]) -> Any:
    buffer = encode_record(
        topic=b"T",
        queue_id=2,
        queue_offset=3,
        physical_offset=77,
        body=b"body",
        properties=properties.encode(props),
        flag=9,
        sys_flag=0,
        born_timestamp=111,
        born_host=HOST,
        store_timestamp=222,
        store_host=HOST,
        reconsume_times=1,
        prepared_offset=5,
    )
    (message,) = decode_messages(buffer, QUEUE, kind, min_offset=1, max_offset=9)
    return message


def test_lazy_message_equals_a_plain_one() -> None:
    props = {"UNIQ_KEY": "U", "TAGS": "A", "KEYS": "k1 k2", "mine": "x"}
    lazy, plain = decoded(LazyMessage, props), decoded(ReceivedMessage, props)
    for name in ReceivedMessage.__dataclass_fields__:
        assert getattr(lazy, name) == getattr(plain, name), name
    assert (lazy.message_id, lazy.tags, lazy.keys) == ("U", "A", ["k1", "k2"])
    assert decoded(LazyMessage, {}).message_id == plain.offset_message_id
    assert repr(plain)[len("ReceivedMessage") :] == repr(lazy)[len("LazyMessage") :]


def test_changed_properties_stay_changed() -> None:
    message = decoded(LazyMessage, {"a": "1"})
    message.properties["a"] = "2"
    assert message.properties == {"a": "2", "MIN_OFFSET": "1", "MAX_OFFSET": "9"}
    message.properties = {"b": "3"}
    message.offset_message_id = "X"
    assert (message.properties, message.offset_message_id) == ({"b": "3"}, "X")


def test_delivery_time_is_a_property() -> None:
    early, late = decoded(LazyMessage, {}), decoded(LazyMessage, {})
    assert "CONSUME_START_TIME" not in early.properties
    for message in (early, late):
        message.begin(1234)
        assert message.properties["CONSUME_START_TIME"] == "1234"
        assert message.started_ms == 1234
    made = LazyMessage(QUEUE, 1, 0, "T", b"", {}, 0, 0, 0, "", 0, "", 0, 0, 0, "ID")
    assert (made.started_ms, made.offset_message_id) == (0, "ID")
