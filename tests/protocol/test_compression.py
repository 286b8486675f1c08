"""Compressed bodies: round trips, cut and damaged data, bombs."""

from __future__ import annotations

import random

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import RecordError
from sparrowmq.protocol.compression import compress, decompress
from sparrowmq.protocol.sysflag import COMPRESSED, CompressionType, with_compression

KINDS = list(CompressionType)
BODY = b"hello world, " * 400


@given(st.binary(max_size=500), st.sampled_from(KINDS), st.integers(1, 9))
def test_what_is_compressed_comes_back(body: bytes, kind: CompressionType, level: int) -> None:
    assert decompress(compress(body, kind, level), with_compression(0, kind)) == body


@given(st.binary(max_size=100))
def test_a_body_that_is_not_marked_stays_as_it_is(body: bytes) -> None:
    assert decompress(body, CompressionType.ZSTD) == body


def test_without_type_bits_it_is_zlib() -> None:
    assert decompress(compress(BODY), COMPRESSED) == BODY


def test_the_wrappers_are_those_of_java() -> None:
    assert compress(BODY, CompressionType.ZLIB, 5)[:2] == bytes.fromhex("785e")
    assert compress(BODY, CompressionType.LZ4)[:4] == bytes.fromhex("04224d18")
    assert compress(BODY, CompressionType.ZSTD)[:4] == bytes.fromhex("28b52ffd")


@pytest.mark.parametrize("kind", KINDS)
def test_cut_bodies_are_refused(kind: CompressionType) -> None:
    packed = compress(BODY, kind)
    for end in range(len(packed)):
        with pytest.raises(RecordError):
            decompress(packed[:end], with_compression(0, kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tail", [b"x", b"x" * 5000])
def test_bytes_after_the_end_are_refused(kind: CompressionType, tail: bytes) -> None:
    with pytest.raises(RecordError, check=about(what="end")):
        decompress(compress(BODY, kind) + tail, with_compression(0, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_output_is_bounded(kind: CompressionType) -> None:
    packed = compress(BODY, kind)
    flag = with_compression(0, kind)
    assert decompress(packed, flag, bytes_max=len(BODY)) == BODY
    with pytest.raises(RecordError, check=about(limit=len(BODY) - 1)):
        decompress(packed, flag, bytes_max=len(BODY) - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bomb_stops_at_the_bound(kind: CompressionType) -> None:
    """What lies far behind the bound is not even looked at: nobody notices that it is damaged."""
    packed = compress(bytes(32 * 1024 * 1024), kind)
    half = len(packed) // 2
    for bomb in (packed, packed[:half] + b"\xff" * half, packed[:-4] + b"\xff" * 4):
        with pytest.raises(RecordError, check=about(limit=1000)):
            decompress(bomb, with_compression(0, kind), bytes_max=1000)


def test_small_blocks_are_counted_together() -> None:
    """Each is below the bound; the damage after the third is not looked at."""
    codec, rng = zstandard.ZstdCompressor().compressobj(), random.Random(1)
    packed = b""
    for _ in range(20):
        packed += codec.compress(rng.randbytes(500)) + codec.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
    with pytest.raises(RecordError, check=about(limit=1000)):
        decompress(packed[:9000] + b"\xff" * 600, with_compression(0, CompressionType.ZSTD), bytes_max=1000)


@pytest.mark.parametrize("kind", KINDS)
def test_the_level_is_the_codecs_own(kind: CompressionType) -> None:
    text = " ".join(str(number * number) for number in range(5000)).encode()
    assert len({compress(text, kind, level) for level in (1, 5, 9)}) == 3
    assert compress(text, kind) == compress(text, kind, 5)


@pytest.mark.parametrize("over", [0, 1, 4, 255])
def test_a_zstandard_frame_may_end_anywhere_in_what_is_fed_at_once(over: int) -> None:
    """With a checksum its last 4 bytes give no output: at `over` 1 and 4 all output is there before them."""
    codec = zstandard.ZstdCompressor(write_checksum=True)
    rng = random.Random(over)
    body = b""
    while len(packed := codec.compress(body)) % 256 != over or len(body) < 300:
        body += rng.randbytes(1)
    flag = with_compression(0, CompressionType.ZSTD)
    assert decompress(packed, flag, bytes_max=len(body)) == body
    with pytest.raises(RecordError, check=about(limit=len(body) - 1)):
        decompress(packed, flag, bytes_max=len(body) - 1)


def test_frames_without_a_content_size_are_read() -> None:
    streamed = zstandard.ZstdCompressor().compressobj()
    packed = streamed.compress(BODY) + streamed.flush()
    assert decompress(packed, with_compression(0, CompressionType.ZSTD)) == BODY
    packed = lz4.frame.compress(BODY, store_size=False, block_linked=False)
    assert decompress(packed, with_compression(0, CompressionType.LZ4)) == BODY


@pytest.mark.parametrize("bits", [0x400, 0x500, 0x700])
def test_unknown_types_are_refused(bits: int) -> None:
    with pytest.raises(RecordError, check=about(what="sysFlag", value=bits | COMPRESSED)):
        decompress(b"", bits | COMPRESSED)


@given(st.binary(max_size=60), st.sampled_from(KINDS), st.integers(0, 40))
def test_damage_is_a_record_error_or_a_body(noise: bytes, kind: CompressionType, place: int) -> None:
    packed = compress(BODY, kind)
    broken = packed[:place] + noise + packed[place + len(noise) :]
    try:
        assert isinstance(decompress(broken, with_compression(0, kind)), bytes)
    except RecordError:
        pass
