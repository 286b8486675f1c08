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
    PackedRegistration,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigTable,
    decode_register_body,
    registration,
)
from sparrowmq.protocol.bodies.registration import DIALECT_MAX
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.java_json import loads, quote_bare_keys

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


def test_a_registration_is_read_a_topic_at_a_time() -> None:
    """Each step reads one: a broker of 100,000 topics would keep everybody waiting for a second."""
    for packed in (
        PackedRegistration.opened(EXPECTED.encode(), compressed=False),
        PackedRegistration.opened(compressed(INFLATED), compressed=True),
    ):
        work, count = packed.reading(513), 0
        with pytest.raises(StopIteration) as end:
            while True:
                next(work)
                count += 1
        assert end.value.value == EXPECTED
        assert count >= len(EXPECTED.topic_config_serialize_wrapper.topic_config_table)


def test_nulls_and_bare_keys_of_other_brokers_are_read() -> None:
    """Members that are null, also in the middle, and the integer keys that static topics have."""
    body = (
        b'{"filterServerList":[null,"f"],"topicConfigSerializeWrapper":{"dataVersion":null,'
        b'"mappingDataVersion":null,"topicQueueMappingInfoMap":{"S":{"currIdMap":{0:1,1:2},"x":null}},'
        b'"topicConfigTable":{"A":{"topicName":"A","attributes":null,"perm":"4","order":null},"B":null,'
        b'"C":{"topicName":"C","attributes":{"+a":null,"+b":"c"}}}}}'
    )
    found = decode_register_body(body, False, 513)
    table = found.topic_config_serialize_wrapper
    assert found.filter_server_list == ["f"]
    assert table.data_version == DataVersion()
    assert table.topic_config_table == {
        "A": TopicConfig(topic_name="A", perm=4),
        "C": TopicConfig(topic_name="C", attributes={"+b": "c"}),
    }
    nothing = decode_register_body(
        b'{"filterServerList":null,"topicConfigSerializeWrapper":{"topicConfigTable":null}}', False, 513
    )
    assert nothing == RegisterBrokerBody()


def test_the_slow_dialect_is_read_up_to_a_size() -> None:
    table = b'"topicConfigSerializeWrapper":{"topicConfigTable":{"A":{"topicName":"A"}}}'
    small = b'{"x":{{"queueId":0}:5},' + table + b"}"
    assert list(
        decode_register_body(small, False, 513).topic_config_serialize_wrapper.topic_config_table
    ) == ["A"]
    large = b'{"x":{{"queueId":0}:5},"y":"' + b"y" * DIALECT_MAX + b'",' + table + b"}"
    with pytest.raises(BodyError, match="not plain JSON, and has an object longer"):
        decode_register_body(large, False, 513)


def test_bare_keys_of_a_large_registration_are_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quoting the keys of 15 MB in one step would keep the interpreter from everybody for a second."""
    sizes: list[int] = []

    def noted(data: bytes) -> bytes:
        sizes.append(len(data))
        return quote_bare_keys(data)

    monkeypatch.setattr(registration, "quote_bare_keys", noted)
    names = [f"T{number:05}" for number in range(4000)]
    topics = ",".join(f'"{name}":{{"topicName":"{name}","attributes":{{"+k":"{{0:1"}}}}' for name in names)
    maps = ",".join(f'"{name}":{{"currIdMap":{{0:1, 1:2}},"dirty":false}}' for name in names)
    body = (
        f'{{"topicConfigSerializeWrapper":{{"topicQueueMappingInfoMap":{{{maps}}},'
        f'"topicConfigTable":{{{topics}}}}}}}'
    ).encode()
    table = decode_register_body(body, False, 513).topic_config_serialize_wrapper.topic_config_table
    assert list(table) == names and table["T00000"].attributes == {"+k": "{0:1"}
    assert len(sizes) > 2 and max(sizes) <= 2 * registration.PIECE_BYTES


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 1_000_000,
        b'{0:1,"a":' + b"[" * 1_000_000,
        b'{0:1,"a":"' + b"\\u0041" * 200_000 + b'"}',
        b'{"a":[' + b"1," * 1_000_001 + b"1]}",
    ],
)
def test_costly_registrations_are_refused_without_reading_them(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(data: bytes) -> bytes:
        raise AssertionError(f"{len(data)} bytes are read in one step")

    monkeypatch.setattr(registration, "quote_bare_keys", never)
    with pytest.raises(BodyError):
        decode_register_body(body, False, 513)
