"""Messages, timeouts and headers of gRPC."""

from __future__ import annotations

import gzip
from typing import Any

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.proxy.http2 import grpc
from sparrowmq.proxy.http2.grpc import GrpcError, MessageCutter


@given(messages=st.lists(st.binary(max_size=100), max_size=6), size=st.integers(1, 50))
def test_messages_are_parsed_from_pieces_of_any_size(messages: list[bytes], size: int) -> None:
    data = b"".join(map(grpc.prefixed, messages))
    cutter = MessageCutter(100)
    found = [one for at in range(0, len(data), size) for one in cutter.feed(data[at : at + size])]
    assert found == [(0, one) for one in messages]
    assert len(cutter) == 0


def test_too_large_message_is_refused_by_its_length() -> None:
    with pytest.raises(GrpcError, check=about(code=grpc.RESOURCE_EXHAUSTED)):
        MessageCutter(10).feed(b"\0\0\0\0\x0b")


def test_number_of_messages_per_frame_is_bounded() -> None:
    """An empty message takes only five bytes."""
    with pytest.raises(GrpcError, check=about(code=grpc.RESOURCE_EXHAUSTED)):
        MessageCutter(10).feed(bytes(5 * 1025))


@pytest.mark.parametrize(
    ("text", "seconds"), [("", None), ("5S", 5.0), ("2M", 120.0), ("250m", 0.25), ("1H", 3600.0)]
)
def test_timeouts_are_parsed(text: str, seconds: float | None) -> None:
    assert grpc.timeout_seconds(text) == seconds


@pytest.mark.parametrize("text", ["5", "S", "123456789S", "-1S", "5s"])
def test_invalid_timeouts_are_refused(text: str) -> None:
    with pytest.raises(GrpcError, check=about(code=grpc.INTERNAL)):
        grpc.timeout_seconds(text)


def test_compressed_messages_are_decompressed() -> None:
    packed = gzip.compress(b"hello" * 100)
    assert grpc.unpacked(1, packed, "gzip", 1000) == b"hello" * 100
    assert grpc.unpacked(0, b"plain", "gzip", 1000) == b"plain"
    for data, encoding, limit, code in (
        (packed, "gzip", 499, grpc.RESOURCE_EXHAUSTED),
        (packed[:-9], "gzip", 1000, grpc.INTERNAL),
        (b"no gzip", "gzip", 1000, grpc.INTERNAL),
        (packed, "snappy", 1000, grpc.UNIMPLEMENTED),
    ):
        with pytest.raises(GrpcError) as raised:
            grpc.unpacked(1, data, encoding, limit)
        assert raised.value.code == code


@pytest.mark.parametrize("text", ["plain", "100 % ü\n", "x" * 2000])
def test_header_blocks_do_not_use_the_dynamic_table(text: str) -> None:
    found: dict[Any, Any] = dict(hpack.Decoder().decode(grpc.only_trailers(3, text)))
    assert found[":status"] == "200"
    assert found["content-type"] == "application/grpc"
    assert found["grpc-status"] == "3"
    assert found["grpc-message"].isascii()
    assert len(found["grpc-message"]) <= 1024 * 2
    refused: dict[Any, Any] = dict(hpack.Decoder().decode(grpc.plain_status(405, [("allow", "POST")])))
    assert refused == {":status": "405", "allow": "POST"}
