"""Compressed bodies: zlib, LZ4 frames and Zstandard frames (remoting:5.2). Output is always bounded."""

from __future__ import annotations

import zlib
from typing import Final

import lz4.frame
import zstandard

from sparrowmq.core.errors import CompressedBodyError
from sparrowmq.protocol.sysflag import COMPRESSED, COMPRESSION_MASK, CompressionType, with_compression

DECOMPRESSED_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum decompressed size: 16 times the default maximum message size, against hostile bodies."""

_ZSTD_FEED_BYTES: Final = 256
"""Input per call: 4 bytes make at most 128 KiB, so the output exceeds the bound by at most 8 MiB."""


def compress(body: bytes, kind: CompressionType = CompressionType.ZLIB, level: int = 5) -> bytes:
    """`body` compressed; `level` is the codec's (Java producers use 5)."""
    if kind is CompressionType.ZLIB:
        return zlib.compress(body, level)
    if kind is CompressionType.LZ4:
        packed: bytes = lz4.frame.compress(body, compression_level=level)
        return packed
    return zstandard.ZstdCompressor(level=level).compress(body)


def stored_form(body: bytes, sys_flag: int, store_size: int) -> tuple[bytes, int]:
    """Body and `sysFlag` for a copy of a received message, compressed if it was stored so.

    A copy that is not compressed may be larger than a broker takes. After `decompress` only the type bits say
    that a body was compressed; older producers set none, but then its record, of `store_size` bytes, is
    smaller than the body.
    """
    kind = sys_flag & COMPRESSION_MASK
    if sys_flag & COMPRESSED or (not kind and store_size >= len(body)):
        return body, sys_flag & (COMPRESSED | COMPRESSION_MASK)
    try:
        codec = CompressionType(kind or CompressionType.ZLIB)
    except ValueError:
        return body, 0
    return compress(body, codec), with_compression(0, codec)


def decompress(body: bytes, sys_flag: int, *, bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The body as the producer passed it; unchanged if `sys_flag` does not mark it as compressed.

    Without type bits it is zlib, as from older producers. Raises `CompressedBodyError` on damaged, truncated
    or trailing data, on an unknown type, and on output larger than `bytes_max` bytes.
    """
    if not sys_flag & COMPRESSED:
        return body
    kind = sys_flag & COMPRESSION_MASK
    try:
        if kind in (0, CompressionType.ZLIB):
            data, whole = _inflate(body, bytes_max)
        elif kind == CompressionType.LZ4:
            data, whole = _decompress_lz4(body, bytes_max)
        elif kind == CompressionType.ZSTD:
            data, whole = _decompress_zstd(body, bytes_max)
        else:
            text = f"compression type {kind:#x} in sysFlag {sys_flag:#x} is unknown"
            raise CompressedBodyError(text, what="sysFlag", value=sys_flag)
    except (zlib.error, RuntimeError, EOFError, zstandard.ZstdError) as error:
        raise CompressedBodyError(f"a compressed body of {len(body)} bytes cannot be read: {error}") from None
    if len(data) > bytes_max:
        raise CompressedBodyError(
            f"a compressed body of {len(body)} bytes holds more than the limit of {bytes_max} bytes",
            limit=bytes_max,
        )
    if not whole:
        raise CompressedBodyError(
            f"a compressed body of {len(body)} bytes is cut short or has bytes after its end",
            what="end",
        )
    return data


def _inflate(body: bytes, bytes_max: int) -> tuple[bytes, bool]:
    codec = zlib.decompressobj()
    data = codec.decompress(body, bytes_max + 1)
    return data, codec.eof and not codec.unused_data


def _decompress_lz4(body: bytes, bytes_max: int) -> tuple[bytes, bool]:
    codec = lz4.frame.LZ4FrameDecompressor()
    data: bytes = codec.decompress(body, max_length=bytes_max + 1)
    return data, codec.eof and not codec.unused_data


def _decompress_zstd(body: bytes, bytes_max: int) -> tuple[bytes, bool]:
    codec = zstandard.ZstdDecompressor().decompressobj()
    parts: list[bytes] = []
    size = 0
    position = 0
    while position < len(body) and not codec.eof and size <= bytes_max:
        parts.append(codec.decompress(body[position : position + _ZSTD_FEED_BYTES]))
        size += len(parts[-1])
        position += _ZSTD_FEED_BYTES
    return b"".join(parts), codec.eof and not codec.unused_data and position >= len(body)
