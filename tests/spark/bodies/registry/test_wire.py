from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.spark.bodies.registry.wire import Head, fixed_length, head
from sparrowmq.spark.options.registry import CONFLUENT, ROCKETMQ


def zigzag(number: int) -> bytes:
    value, out = number << 1 ^ number >> 63, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def test_confluents_heads() -> None:
    assert head(b"\0\0\0\1\2x", CONFLUENT, "avro") == Head(258, 5)
    assert head(b"\0\xff\xff\xff\xff", CONFLUENT, "json") == Head(2**32 - 1, 5)
    assert head(b"\0\0\0\0\7\0x", CONFLUENT, "protobuf") == Head(7, 6, (0,))
    assert head(b"\0\0\0\0\7\2\2x", CONFLUENT, "protobuf") == Head(7, 7, (1,))


@given(st.lists(st.integers(0, 2**31), min_size=1, max_size=20), st.binary(max_size=5))
def test_places_of_messages(indexes: list[int], rest: bytes) -> None:
    body = b"\0\0\0\0\7" + zigzag(len(indexes)) + b"".join(map(zigzag, indexes)) + rest
    assert head(body, CONFLUENT, "protobuf") == Head(7, len(body) - len(rest), tuple(indexes))


def test_rocketmqs_heads() -> None:
    identity = (1 << 40 | 5).to_bytes(8, "big")
    assert head(b"\x10" + identity + b"x", ROCKETMQ, "avro") == Head(1 << 40 | 5, 9)
    assert head(b"\x20" + identity + bytes(8) + b"x", ROCKETMQ, "avro") == Head(1 << 40 | 5, 17)
    assert head(identity + b"{}", ROCKETMQ, "json") == Head(1 << 40 | 5, 8)
    assert head(identity, ROCKETMQ, "protobuf") == Head(1 << 40 | 5, 8)


@pytest.mark.parametrize(
    ("kind", "body_format", "body", "text"),
    [
        (CONFLUENT, "avro", b"", "is empty and has 0 bytes"),
        (CONFLUENT, "avro", b"\0\0\0\0", "has 4 bytes"),
        (CONFLUENT, "avro", b"\1\0\0\0\1x", "begins with byte 1"),
        (CONFLUENT, "protobuf", b"\0\0\0\0\1", "ends within its message indexes"),
        (CONFLUENT, "protobuf", b"\0\0\0\0\1\4\2", "ends within its message indexes"),
        (CONFLUENT, "protobuf", b"\0\0\0\0\1" + zigzag(101), "101 message indexes"),
        (CONFLUENT, "protobuf", b"\0\0\0\0\1" + zigzag(-1), "-1 message indexes"),
        (CONFLUENT, "protobuf", b"\0\0\0\0\1" + b"\xff" * 11, "too long"),
        (ROCKETMQ, "avro", b"", "it has 0 bytes"),
        (ROCKETMQ, "avro", b"\x11" + bytes(20), "it has 21 bytes"),
        (ROCKETMQ, "avro", b"\x20" + bytes(15), "it has 16 bytes"),
        (ROCKETMQ, "json", bytes(7), "it has 7 bytes"),
    ],
)
def test_other_bodies_are_bad(kind: str, body_format: str, body: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        head(body, kind, body_format)


@given(
    st.binary(max_size=30),
    st.sampled_from([CONFLUENT, ROCKETMQ]),
    st.sampled_from(["avro", "protobuf", "json"]),
)
def test_any_bytes_have_a_head_within_them_or_are_bad(body: bytes, kind: str, body_format: str) -> None:
    try:
        found = head(body, kind, body_format)
    except ValueError:
        return
    assert 0 < found.start <= len(body)
    length = fixed_length(kind, body_format)
    assert not length or head(body[:length], kind, body_format) == found
