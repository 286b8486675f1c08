"""Frames of HTTP/2 (RFC 9113): parsed from bytes, and encoded. Pure."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEAD_BYTES: Final = 9
FRAME_BYTES_USUAL: Final = 16_384
"""The largest payload that every peer accepts."""
FRAME_BYTES_MAX: Final = 64 * 1024
"""The largest payload that we accept."""
WINDOW_USUAL: Final = 65_535
WINDOW_MAX: Final = 2**31 - 1

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
WITH_PRIORITY: Final = 0x20

NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FLOW_CONTROL_ERROR: Final = 3
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6


SETTINGS_ENTRIES_MAX: Final = 100
"""Entries of one SETTINGS frame; HTTP/2 and its extensions define about ten."""


class Http2Error(Exception):
    """A client broke the protocol: its connection is closed with `code`."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Frame(NamedTuple):
    """One frame."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    return frame_head(len(payload), kind, flags, stream) + payload


def settings_frame(values: dict[int, int]) -> bytes:
    """A SETTINGS frame."""
    payload = b"".join(
        number.to_bytes(2, "big") + value.to_bytes(4, "big") for number, value in values.items()
    )
    return frame(SETTINGS, 0, 0, payload)


def parse_settings(payload: bytes) -> list[tuple[int, int]]:
    """Numbers and values of a SETTINGS frame."""
    if len(payload) % 6:
        raise Http2Error(FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
    if len(payload) > 6 * SETTINGS_ENTRIES_MAX:
        raise Http2Error(
            ENHANCE_YOUR_CALM, f"SETTINGS of {len(payload) // 6} entries, the limit is {SETTINGS_ENTRIES_MAX}"
        )
    return [
        (int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big"))
        for at in range(0, len(payload), 6)
    ]


def window_frame(stream: int, more: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(WINDOW_UPDATE, 0, stream, more.to_bytes(4, "big"))


def reset_frame(stream: int, code: int) -> bytes:
    """A RST_STREAM frame."""
    return frame(RST_STREAM, 0, stream, code.to_bytes(4, "big"))


def goaway_frame(last_stream: int, code: int, text: str) -> bytes:
    """A GOAWAY frame; `text` is for people."""
    return frame(GOAWAY, 0, 0, last_stream.to_bytes(4, "big") + code.to_bytes(4, "big") + text.encode())


def number_of(payload: bytes, what: str) -> int:
    """The number of 31 bits that is all of a payload."""
    if len(payload) != 4:
        raise Http2Error(FRAME_SIZE_ERROR, f"{what} of {len(payload)} bytes")
    return int.from_bytes(payload, "big") & WINDOW_MAX


def unpadded(flags: int, payload: bytes) -> bytes:
    """The payload of a DATA or HEADERS frame without its padding."""
    if not flags & PADDED:
        return payload
    padding = payload[0] if payload else 0
    if padding >= len(payload):
        raise Http2Error(PROTOCOL_ERROR, "the padding is longer than the frame")
    return payload[1 : len(payload) - padding]


_HEAD: Final = struct.Struct(">HBBBL")
"""Length in two parts, kind, flags, stream."""


def frame_head(size: int, kind: int, flags: int, stream: int) -> bytes:
    """The head of a frame with a payload of so many bytes."""
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream)


class FrameCutter:
    """Cuts received bytes into frames; `buffered` bytes belong to an incomplete one."""

    __slots__ = ("_at", "_data")

    def __init__(self) -> None:
        self._data = b""
        self._at = 0

    @property
    def buffered(self) -> int:
        """Bytes that were received and not used yet."""
        return len(self._data) - self._at

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Up to `size` bytes that do not belong to a frame: the preface."""
        taken = self._data[self._at : self._at + size]
        self._at += len(taken)
        return taken

    def trim(self) -> None:
        """Release used bytes: a received chunk is much larger than the beginning of a frame."""
        self._data = self._data[self._at :]
        self._at = 0

    def next(self) -> Frame | None:
        """The next complete frame. Raises `Http2Error` for one that is too long."""
        data, at = self._data, self._at
        if len(data) - at < HEAD_BYTES:
            return None
        high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
        size = high << 8 | low
        if size > FRAME_BYTES_MAX:
            raise Http2Error(FRAME_SIZE_ERROR, f"a frame of {size} bytes, the limit is {FRAME_BYTES_MAX}")
        end = at + HEAD_BYTES + size
        if len(data) < end:
            return None
        self._at = end
        return Frame(kind, flags, stream & WINDOW_MAX, data[at + HEAD_BYTES : end])
