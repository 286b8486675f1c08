"""Registrations: recorded ones, the compressed form, every length wrong."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.protocol import recorded

from sparrowmq.core.errors import BodyError, JavaJsonError
from sparrowmq.protocol.bodies import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    decode_register_body,
)
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.java_json import loads

VERSION = b'{"counter":0,"stateVersion":0,"timestamp":1700000000000}'
LINE = b'TopicA 4 4 6 SINGLE_TAG {"message.type":"NORMAL"}'
INFLATED = (
    bytes.fromhex("00000038")
    + VERSION
    + bytes.fromhex("0000000100000031")
    + LINE
    + bytes.fromhex("00000002")
    + b"[]"
    + bytes.fromhex("00000000")
)
EXPECTED = RegisterBrokerBody(
    [],
    TopicConfigTable(
        DataVersion(0, 0, 1700000000000),
        {
            "TopicA": TopicConfig(
                topic_name="TopicA",
                read_queue_nums=4,
                write_queue_nums=4,
                attributes={"message.type": "NORMAL"},
            )
        },
    ),
)
LENGTHS_AT = (0, 60, 64, 117, 123)
"""Where the lengths of version, topic and list, the topic count and the tail's count lie."""


def compressed(data: bytes) -> bytes:
    """As brokers send it: one zlib stream of level 9."""
    packed = zlib.compress(data, 9)
    assert packed.startswith(b"\x78\xda")
    return packed


def test_every_recorded_registration_is_read() -> None:
    seen = 0
    for exchange, request in recorded.requests(RequestCode.REGISTER_BROKER):
        body = decode_register_body(request.body, False, request.version)
        if not request.body:
            assert body == RegisterBrokerBody()
            continue
        theirs = loads(request.body).get("topicConfigSerializeWrapper", {})
        ours = loads(body.encode())["topicConfigSerializeWrapper"]
        assert ours["dataVersion"] == theirs.get("dataVersion", ours["dataVersion"]), exchange
        assert ours["topicConfigTable"].keys() == theirs.get("topicConfigTable", {}).keys(), exchange
        for topic, config in theirs.get("topicConfigTable", {}).items():
            assert ours["topicConfigTable"][topic].items() >= config.items(), exchange
        seen += 1
    assert seen > 5


def test_the_compressed_vector_of_the_reference() -> None:
    assert decode_register_body(compressed(INFLATED), True, 513) == EXPECTED


def test_senders_before_5_end_without_mappings() -> None:
    assert decode_register_body(compressed(INFLATED[:-4]), True, 409) == EXPECTED
    with pytest.raises(BodyError, match="ends at byte 123"):
        decode_register_body(compressed(INFLATED[:-4]), True, 413)


def test_mappings_are_read_over() -> None:
    tail = struct.pack(">i", 2) + 2 * (struct.pack(">i", 2) + b"{}")
    assert decode_register_body(compressed(INFLATED[:-4] + tail), True, 413) == EXPECTED


def test_4_9_sends_no_attributes() -> None:
    line = b"TopicA 4 8 6 MULTI_TAG"
    data = INFLATED[:64] + struct.pack(">i", len(line)) + line + struct.pack(">i", 2) + b"[]"
    table = decode_register_body(compressed(data), True, 409).topic_config_serialize_wrapper
    assert table.topic_config_table["TopicA"] == TopicConfig(
        topic_name="TopicA", read_queue_nums=4, write_queue_nums=8, topic_filter_type="MULTI_TAG"
    )


def test_what_is_written_is_read_back() -> None:
    assert decode_register_body(EXPECTED.encode(), False, 513) == EXPECTED
    assert decode_register_body(b"", False, 513) == RegisterBrokerBody()
    assert decode_register_body(b"", True, 513) == RegisterBrokerBody()


@pytest.mark.parametrize("end", range(len(INFLATED)))
def test_a_registration_cut_anywhere_is_refused(end: int) -> None:
    with pytest.raises((BodyError, JavaJsonError)):
        decode_register_body(compressed(INFLATED[:end]), True, 513)


@pytest.mark.parametrize("place", LENGTHS_AT)
def test_every_length_wrong_is_refused(place: int) -> None:
    right = struct.unpack_from(">i", INFLATED, place)[0]
    for value in (-1, -(2**31), right + 1, 2**31 - 1, *([right - 1] if right else [])):
        data = bytearray(INFLATED)
        struct.pack_into(">i", data, place, value)
        with pytest.raises((BodyError, JavaJsonError)):
            decode_register_body(compressed(bytes(data)), True, 513)


def test_damaged_compression_is_refused() -> None:
    packed = compressed(INFLATED)
    for end in range(1, len(packed)):
        with pytest.raises(BodyError, match="compressed registration"):
            decode_register_body(packed[:end], True, 513)


@pytest.mark.parametrize(
    "line", [b"", b"TopicA", b"TopicA 4 4 6", b"TopicA x 4 6 SINGLE_TAG", b"T 4 4 6 S [] "]
)
def test_bad_topic_lines_are_refused(line: bytes) -> None:
    data = INFLATED[:64] + struct.pack(">i", len(line)) + line + INFLATED[117:]
    with pytest.raises((BodyError, JavaJsonError)):
        decode_register_body(compressed(data), True, 513)


@given(st.binary(max_size=60), st.integers(0, 130))
def test_damage_is_refused_or_read(noise: bytes, place: int) -> None:
    data = INFLATED[:place] + noise + INFLATED[place + len(noise) :]
    try:
        assert isinstance(decode_register_body(compressed(data), True, 513), RegisterBrokerBody)
    except (BodyError, JavaJsonError):
        pass
