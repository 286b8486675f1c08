"""Header blocks of other encoders, and invalid header blocks."""

from __future__ import annotations

import tracemalloc

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about, traced_bytes

from sparrowmq.proxy.http2 import frames
from sparrowmq.proxy.http2.frames import Http2Error
from sparrowmq.proxy.http2.headers import TABLE_BYTES_MAX, HeaderDecoder

NAMES = st.sampled_from([":path", ":method", "content-type", "x-mq-client-id", "grpc-timeout", "x" * 40])
VALUES = st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=60)
BLOCK = st.dictionaries(NAMES, VALUES, max_size=6)


@given(blocks=st.lists(BLOCK, max_size=30), huffman=st.booleans(), limit=st.sampled_from([0, 100, 4096]))
def test_header_blocks_of_another_encoder_are_decoded(
    blocks: list[dict[str, str]],
    huffman: bool,
    limit: int,
) -> None:
    """Decodes many blocks of one connection, with a table that shrinks."""
    encoder, decoder = hpack.Encoder(), HeaderDecoder(64 * 1024)
    for number, block in enumerate(blocks):
        if number == 10:
            encoder.header_table_size = limit
        found, size = decoder.decode(encoder.encode(list(block.items()), huffman=huffman))
        assert found == block
        assert size == sum(len(name) + len(value) + 32 for name, value in block.items())


@given(st.binary(max_size=60))
def test_random_bytes_are_decoded_or_refused(block: bytes) -> None:
    decoder = HeaderDecoder(64 * 1024)
    try:
        decoder.decode(block)
    except Http2Error as error:
        assert error.code == frames.COMPRESSION_ERROR


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b"\x80", id="index 0"),
        pytest.param(b"\xff\x00", id="an entry that is not there"),
        pytest.param(b"\xff\xff\xff\xff\xff\xff\x01", id="a number without end"),
        pytest.param(b"\x00\x05abc", id="cut short"),
        pytest.param(b"\x88\x20", id="a table size after headers"),
        pytest.param(b"\x20" * 3 + b"\x88", id="a third table size"),
        pytest.param(b"\x3f\xe2\x1f", id="a table that is too large"),
        pytest.param(b"\x00\x81\xff\x01x", id="no Huffman code"),
    ],
)
def test_invalid_header_blocks_are_refused(block: bytes) -> None:
    with pytest.raises(Http2Error, check=about(code=frames.COMPRESSION_ERROR)):
        HeaderDecoder(64 * 1024).decode(block)


def test_too_large_headers_are_refused() -> None:
    """Includes large headers that a few bytes repeat."""
    decoder = HeaderDecoder(16 * 1024)
    start = hpack.Encoder().encode([("x", "y" * 3000)])
    with pytest.raises(Http2Error, check=about(code=frames.ENHANCE_YOUR_CALM)):
        decoder.decode(start + b"\xbe" * 10)
    assert TABLE_BYTES_MAX == 4096


def huffman(text: bytes) -> bytes:
    """A header `x` with a Huffman-encoded value."""
    rest, length = len(text) - 127, bytearray((0xFF,))
    while rest >= 128:
        length.append(rest % 128 + 128)
        rest //= 128
    length.append(rest)
    return b"\x00\x01x" + bytes(length) + text


AAAAAAAA = bytes.fromhex("18c6318c63")


def test_long_huffman_texts_are_not_cached() -> None:
    decoder = HeaderDecoder(32 * 1024)
    tracemalloc.start()
    try:
        for number in range(100):
            bits = sum((number >> at & 1) << 5 * at for at in range(8))
            found, _ = decoder.decode(huffman(bits.to_bytes(5, "big") + AAAAAAAA * 400))
            assert found["x"].endswith("a" * 3200)
        del found
        assert traced_bytes("*/sparrowmq/proxy/*", __file__) < 64 * 1024
    finally:
        tracemalloc.stop()


def test_huffman_text_that_is_too_slow_to_decode_is_refused() -> None:
    with pytest.raises(Http2Error, check=about(code=frames.ENHANCE_YOUR_CALM)):
        HeaderDecoder(32 * 1024).decode(huffman(AAAAAAAA * 6600))
