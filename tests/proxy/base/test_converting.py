"""Messages of the API are converted to the form that brokers store, and back."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from typing import Any

import pytest
from tests.proxy.rig import message
from tests.support import about

from sparrowmq.core.errors import ProxyRefusal
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol.properties import decode
from sparrowmq.protocol.sysflag import COMPRESSED, TRANSACTION_PREPARED, CompressionType
from sparrowmq.proxy.base.converting import check_type, readable_body, resource, to_message, to_stored
from sparrowmq.proxy.base.limits import BODY_BYTES_MAX, DELAY_MS_MAX
from sparrowmq.proxy.definition.messages import Code, Encoding, MessageType, v2

NOW = 1_700_000_000_000


def stored(made: Any) -> tuple[dict[str, str], Any]:
    found = to_stored(made, "t", "10.0.0.9", NOW)
    return decode(found.properties), found


def refusal(made: Any) -> int:
    with pytest.raises(ProxyRefusal) as raised:
        to_stored(made, "t", "10.0.0.9", NOW)
    return raised.value.code


def test_client_message_is_converted_to_stored_message() -> None:
    made = message("t", b"hello", tag="TagA", keys=["k1", "k2"], trace_context="00-1", message_group="g")
    made.user_properties["colour"] = "blue"
    properties, found = stored(made)
    assert properties == {
        "colour": "blue",
        "TAGS": "TagA",
        "KEYS": "k1 k2",
        "TRACE_CONTEXT": "00-1",
        "__SHARDINGKEY": "g",
        "UNIQ_KEY": found.message_id,
        "PGROUP": "t",
        "__BORNHOST": "10.0.0.9",
        "BORN_TIMESTAMP": "1700000000000",
    }
    assert (found.body, found.sys_flag, found.message_type) == (b"hello", 0, "FIFO")


def test_half_messages_and_delayed_messages_are_converted() -> None:
    wait = v2.SystemProperties().orphaned_transaction_recovery_duration
    wait.seconds = 30
    half = message("t", message_type=MessageType.TRANSACTION, orphaned_transaction_recovery_duration=wait)
    properties, found = stored(half)
    assert (properties["TRAN_MSG"], properties["CHECK_IMMUNITY_TIME_IN_SECONDS"]) == ("true", "30")
    assert (found.sys_flag, found.message_type) == (TRANSACTION_PREPARED, "TRANSACTION")
    half.system_properties.born_timestamp.seconds = 1_600_000_000
    properties, found = stored(half)
    assert (properties["BORN_TIMESTAMP"], found.born_timestamp) == ("1600000000000", NOW)
    later = message("t")
    later.system_properties.delivery_timestamp.FromMilliseconds(NOW + 5000)
    properties, found = stored(later)
    assert (properties["TIMER_DELIVER_MS"], found.message_type) == (str(NOW + 5000), "DELAY")


def test_compressed_body_is_stored_uncompressed() -> None:
    made = message("t", gzip.compress(b"hello" * 99), body_encoding=Encoding.GZIP)
    assert to_stored(made, "t", "", NOW).body == b"hello" * 99
    made.body = gzip.compress(bytes(BODY_BYTES_MAX + 1))
    assert refusal(made) == Code.MESSAGE_BODY_TOO_LARGE
    for body in (b"no gzip", gzip.compress(b"hello" * 99)[:-9]):
        made.body = body
        assert refusal(made) == Code.MESSAGE_CORRUPTED


def far() -> Any:
    made = message("t")
    made.system_properties.delivery_timestamp.FromMilliseconds(NOW + DELAY_MS_MAX + 1000)
    return made


def with_property(name: str, value: str) -> Any:
    made = message("t")
    made.user_properties[name] = value
    return made


def many() -> Any:
    made = message("t")
    for number in range(129):
        made.user_properties[f"p{number}"] = "x"
    return made


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (message("t", b""), Code.MESSAGE_BODY_EMPTY),
        (message("t", bytes(BODY_BYTES_MAX + 1)), Code.MESSAGE_BODY_TOO_LARGE),
        (message("t", message_id=" "), Code.ILLEGAL_MESSAGE_ID),
        (message("t", tag="a|b"), Code.ILLEGAL_MESSAGE_TAG),
        (message("t", tag=" "), Code.ILLEGAL_MESSAGE_TAG),
        (message("t", keys=["a\x01"]), Code.ILLEGAL_MESSAGE_KEY),
        (message("t", keys=["  "]), Code.ILLEGAL_MESSAGE_KEY),
        (message("t", message_group="x" * 64), Code.ILLEGAL_MESSAGE_GROUP),
        (message("t", message_group="\t"), Code.ILLEGAL_MESSAGE_GROUP),
        (with_property("KEYS", "x"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (with_property("a", "\x02"), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
        (with_property("a", "x" * 20_000), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (many(), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (message("t", trace_context="x" * 40_000), Code.MESSAGE_PROPERTIES_TOO_LARGE),
        (far(), Code.ILLEGAL_DELIVERY_TIME),
    ],
    ids=lambda value: str(value)[:30] if isinstance(value, int) else "",
)
def test_invalid_messages_are_refused(made: Any, code: int) -> None:
    assert refusal(made) == code


def test_messages_that_cannot_be_stored_as_requested_are_refused() -> None:
    assert refusal(message("t", lite_topic="child")) == Code.NOT_IMPLEMENTED
    assert refusal(message("t", priority=0)) == Code.NOT_IMPLEMENTED


def test_topic_types_are_converted() -> None:
    check_type("t", "MIXED", "FIFO")
    check_type("t", "FIFO", "FIFO")
    with pytest.raises(ProxyRefusal, check=about(code=Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE)):
        check_type("t", "NORMAL", "FIFO")


def received(properties: dict[str, str], body: bytes = b"hello", sys_flag: int = 0) -> ReceivedMessage:
    return ReceivedMessage(
        queue=MessageQueue("%RETRY%g_t", "b", 3), queue_offset=7, physical_offset=99, topic="%RETRY%g_t",
        body=body, properties=properties, flag=0, sys_flag=sys_flag, born_timestamp=NOW,
        born_host="1.2.3.4:5", store_timestamp=NOW + 1, store_host="1.2.3.5:6", reconsume_times=2,
        store_size=100,
        prepared_transaction_offset=0, offset_message_id="OFFSETID",
    )  # fmt: skip


def test_stored_message_is_converted_to_api_message() -> None:
    found = to_message(
        received(
            {
                "UNIQ_KEY": "ID",
                "TAGS": "TagA",
                "KEYS": "k1 k2",
                "colour": "blue",
                "POP_CK": "receipt",
                "TRACE_CONTEXT": "00-1",
                "DLQ_ORIGIN_TOPIC": "o",
                "DLQ_ORIGIN_MESSAGE_ID": "i",
                "TIMER_DELIVER_MS": str(NOW + 2),
            }
        ),
        resource("t"),
    )
    system = found.system_properties
    assert (found.topic.name, dict(found.user_properties), found.body) == ("t", {"colour": "blue"}, b"hello")
    assert (system.tag, list(system.keys), system.message_id) == ("TagA", ["k1", "k2"], "ID")
    assert system.body_digest.checksum == "5D41402ABC4B2A76B9719D911017C592"
    assert (system.message_type, system.delivery_attempt) == (MessageType.DELAY, 3)
    assert (system.queue_id, system.queue_offset, system.receipt_handle) == (3, 7, "receipt")
    assert (system.born_host, system.store_host) == ("1.2.3.4", "1.2.3.5:6")
    assert system.store_timestamp.ToMilliseconds() == NOW + 1
    assert (system.dead_letter_queue.topic, system.dead_letter_queue.message_id) == ("o", "i")


@pytest.mark.parametrize("time", ["9" * 17, "9" * 30, "9" * 5000, "²"])
def test_message_with_a_time_outside_of_the_api_can_be_read(time: str) -> None:
    """Remoting clients choose the text. A consumer by offset could not pass such a message."""
    properties = {"BORN_TIMESTAMP": time, "TIMER_DELIVER_MS": time}
    system = to_message(received(properties), resource("t")).system_properties
    born, deliver = system.born_timestamp.ToDatetime(), system.delivery_timestamp.ToDatetime()
    assert (born.year, deliver.year) == ((9999, 9999) if len(time) == 17 else (2023, 1970))


def test_message_with_largest_numbers_can_be_read() -> None:
    made = replace(
        received({}), reconsume_times=2**31 - 1, born_timestamp=-(2**63), store_timestamp=2**63 - 1
    )
    system = to_message(made, resource("t")).system_properties
    assert system.delivery_attempt == 2**31 - 1
    assert (system.born_timestamp.ToDatetime().year, system.store_timestamp.ToDatetime().year) == (1, 9999)


def test_bodies_compressed_by_remoting_clients_are_readable() -> None:
    assert readable_body(b"x", 0) == (b"x", Encoding.IDENTITY)
    flag = COMPRESSED | CompressionType.ZLIB
    assert readable_body(zlib.compress(b"hello"), flag) == (b"hello", Encoding.IDENTITY)
    packed = gzip.compress(b"hello")
    assert readable_body(packed, flag) == (packed, Encoding.GZIP)
    assert readable_body(b"broken", flag) == (b"broken", Encoding.GZIP)
