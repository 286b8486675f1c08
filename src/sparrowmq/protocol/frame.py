"""Frames of the remoting protocol: splitting a byte stream into frames, and decoding and encoding headers.

A frame is `length | header type and header length | header | body` (remoting:1.1), everything big-endian:

    0        4      5               8                8 + header length    4 + length
    | length | type | header length | header (UTF-8) | body (raw bytes)   |

Type 0 is a JSON header, type 1 the compact binary one. Both are read; JSON is written, which every peer
reads. `FrameReader` only splits, so a server can choose how much of a header it decodes; `decode` turns a
header into a `Command`.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import msgspec

from sparrowmq.core.errors import FrameError
from sparrowmq.protocol.codes import LANGUAGES, VERSION

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""A longer frame closes the connection, as with Java peers."""

LARGE_FRAME_BYTES: Final = 256 * 1024
"""From this size on, a frame received in parts is joined with as few copies as possible."""

SMALL_PART_BYTES: Final = 4096
"""Parts shorter than this are joined, so that a frame in many pieces needs little more memory than its bytes.
"""

JSON_HEADER: Final = 0
COMPACT_HEADER: Final = 1
FLAG_RESPONSE: Final = 1
FLAG_ONEWAY: Final = 2

RawFrame = tuple[int, bytes, bytes]
"""(header type, header bytes, body bytes)"""

_PREFIX = struct.Struct(">iI")
_unpack_prefix = _PREFIX.unpack_from
_COMPACT_HEAD = struct.Struct(">hBhii")
_INT = struct.Struct(">i")
_FOREIGN = {
    b"GET ": "an HTTP request",
    b"POST": "an HTTP request",
    b"PUT ": "an HTTP request",
    b"HEAD": "an HTTP request",
    b"OPTI": "an HTTP request",
    b"HTTP": "an HTTP answer",
    b"PRI ": "an HTTP/2 preface",
    b"SSH-": "an SSH greeting",
    b"PROX": "a PROXY protocol preamble",
}


class Command(msgspec.Struct, gc=False):
    """One request or answer: code, correlation number, flag, string header fields, body, error text."""

    code: int
    opaque: int = 0
    flag: int = 0
    ext: dict[str, str] = {}
    body: bytes = b""
    remark: str | None = None
    language: str = "PYTHON"
    version: int = VERSION

    @property
    def is_response(self) -> bool:
        """Whether this answers a request."""
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        """Whether the sender expects no response."""
        return bool(self.flag & FLAG_ONEWAY)


class _JsonHeader(msgspec.Struct, gc=False):
    code: int
    opaque: int = 0
    flag: int = 0
    extFields: dict[str, str | int | float | bool | None] | None = None
    remark: str | None = None
    language: str | int | None = None
    version: int = 0


class _PlainHeader(msgspec.Struct, gc=False):
    """A header as nearly all peers write it: all fields are text."""

    code: int
    opaque: int
    flag: int
    language: str
    version: int
    extFields: dict[str, str] = {}
    remark: str | None = None


class _JsonHeaderOut(msgspec.Struct, gc=False, omit_defaults=True):
    code: int
    opaque: int
    flag: int
    language: str
    version: int
    extFields: dict[str, str]
    serializeTypeCurrentRPC: str
    remark: str | None = None


_decode_json = msgspec.json.Decoder(_JsonHeader, strict=False).decode
_decode_plain = msgspec.json.Decoder(_PlainHeader).decode
_encode_json = msgspec.json.Encoder().encode


def frame(header: bytes, body: bytes = b"") -> bytes:
    """Header and body as one frame with a JSON header."""
    size = len(header)
    return _PREFIX.pack(4 + size + len(body), size) + header + body


def encode(command: Command) -> bytes:
    """The command as one frame with a JSON header; `extFields` is always present (remoting:1.3)."""
    return frame(
        _encode_json(
            _JsonHeaderOut(
                command.code,
                command.opaque,
                command.flag,
                command.language,
                command.version,
                command.ext,
                "JSON",
                command.remark,
            )
        ),
        command.body,
    )


def encode_head(command: Command, body_bytes: int) -> bytes:
    """The command without its body, for a frame whose `body_bytes` follow separately."""
    data = encode(command)
    return (int.from_bytes(data[:4], "big") + body_bytes).to_bytes(4, "big") + data[4:]


def decode(kind: int, header: bytes, body: bytes) -> Command:
    """The command of one raw frame. Raises `FrameError` on an invalid header."""
    if kind == JSON_HEADER:
        return _from_json(header, body)
    if kind == COMPACT_HEADER:
        return _from_compact(header, body)
    raise FrameError(f"header type {kind} is neither JSON (0) nor compact (1)", what="type", value=kind)


def _text(value: Any) -> str:
    """A header field as text: peers also send bare numbers and booleans (remoting:1.3)."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)


def _language(value: str | int | None) -> str:
    if isinstance(value, int):
        return LANGUAGES[value] if 0 <= value < len(LANGUAGES) else "OTHER"
    return value or "OTHER"


def _from_json(header: bytes, body: bytes) -> Command:
    try:
        plain = _decode_plain(header)
        return Command(
            plain.code,
            plain.opaque,
            plain.flag,
            plain.extFields,
            body,
            plain.remark,
            plain.language or "OTHER",
            plain.version,
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _from_odd_json(header, body)


def _from_odd_json(header: bytes, body: bytes) -> Command:
    """A header with numbers, booleans or nulls instead of texts, or with missing members."""
    try:
        head = _decode_json(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"a JSON header of {len(header)} bytes cannot be read: {error}") from None
    fields = head.extFields or {}
    ext = {name: _text(value) for name, value in fields.items() if value is not None}
    return Command(
        head.code, head.opaque, head.flag, ext, body, head.remark, _language(head.language), head.version
    )


def _from_compact(header: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag = _COMPACT_HEAD.unpack_from(header, 0)
        remark, position = _compact_text(header, _COMPACT_HEAD.size, 4)
        total = _INT.unpack_from(header, position)[0]
        position += 4
        if total < 0 or position + total != len(header):
            raise FrameError(
                f"a compact header names {total} bytes of fields, {len(header) - position} follow",
                what="fields",
                value=total,
                limit=len(header) - position,
            )
        ext: dict[str, str] = {}
        while position < len(header):
            name, position = _compact_text(header, position, 2)
            value, position = _compact_text(header, position, 4)
            if name and value:
                ext[name] = value
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"a compact header of {len(header)} bytes cannot be read: {error}") from None
    return Command(code, opaque, flag, ext, body, remark or None, _language(language), version)


def _compact_text(header: bytes, position: int, width: int) -> tuple[str, int]:
    start = position + width
    size = int.from_bytes(header[position:start], "big", signed=True)
    if size < 0 or start + size > len(header):
        raise FrameError(f"a compact header names {size} bytes of text, {len(header) - start} follow")
    return header[start : start + size].decode(), start + size


class LargeFrame(NamedTuple):
    """A large frame with a complete header: of its body of `size` bytes, `start` has arrived."""

    kind: int
    header: bytes
    size: int
    start: bytes


class FrameReader:
    """Cuts a byte stream into raw frames.

    `feed` takes received bytes and returns the complete frames; the remaining `buffered` bytes are kept. It
    raises `FrameError` on bytes that cannot be a frame (another protocol, a negative or oversized length, a
    header longer than its frame); the stream cannot be resynchronised after that, so every later `feed`
    raises the same error.

    With `hands_over`, a large partial frame is put into `large`: the caller takes it with `hand_over`, reads
    the rest of its body, and feeds what follows it.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, *, hands_over: bool = False) -> None:
        self.large: LargeFrame | None = None
        self._hands_over = hands_over
        self._frame_bytes_max = frame_bytes_max
        self._parts: list[bytes] = []
        self.buffered = 0
        self._needed = 0
        self._body_at = 0
        self._error: FrameError | None = None

    def feed(self, data: bytes) -> list[RawFrame]:
        """Frames completed by `data`, in order."""
        if self._error is not None:
            raise self._error
        frames: list[RawFrame] = []
        if self._parts:
            if len(data) < SMALL_PART_BYTES and len(self._parts[-1]) < SMALL_PART_BYTES:
                self._parts[-1] += data
            else:
                self._parts.append(data)
            self.buffered += len(data)
            if self.buffered < self._needed:
                return []
            if self._needed >= LARGE_FRAME_BYTES and self._body_at <= len(self._parts[0]) < self.buffered:
                large, data = self._take_large()
                frames.append(large)
            else:
                data = b"".join(self._parts)
            self._parts = []
            self.buffered = 0
        position, end, length_max = 0, len(data), self._frame_bytes_max - 4
        while end - position >= 8:
            length, word = _unpack_prefix(data, position)
            header_length = word & 0xFFFFFF
            body_at, stop = position + 8 + header_length, position + 4 + length
            if body_at > stop or length > length_max:
                self._error = self._refusal(data[position : position + 8], length, header_length)
                raise self._error
            if stop > end:
                self._needed = 4 + length
                self._body_at = 8 + header_length
                if self._needed >= LARGE_FRAME_BYTES and self._hands_over and end >= position + self._body_at:
                    self._begin_large(word >> 24, data[position:])
                    return frames
                break
            frames.append((word >> 24, data[position + 8 : body_at], data[body_at:stop]))
            position = stop
        else:
            if position == end:
                return frames
            self._needed = 8
        rest = data[position:] if position else data
        self._parts = [rest]
        self.buffered = len(rest)
        return frames

    def hand_over(self) -> LargeFrame:
        """The large partial frame; the caller owns it from now on."""
        assert self.large is not None, "no large frame has begun"
        large, self.large = self.large, None
        return large

    def _begin_large(self, kind: int, data: bytes) -> None:
        body_at = self._body_at
        self.large = LargeFrame(kind, data[8:body_at], self._needed - body_at, data[body_at:])
        self._needed = 8

    def _take_large(self) -> tuple[RawFrame, bytes]:
        """The frame in the parts, and the bytes after it. Its body is copied only once."""
        first, last, body_at = self._parts[0], self._parts[-1], self._body_at
        cut = len(last) - (self.buffered - self._needed)
        body = b"".join((memoryview(first)[body_at:], *self._parts[1:-1], memoryview(last)[:cut]))
        return (first[4], first[8:body_at], body), last[cut:]

    def _refusal(self, start: bytes, length: int, header_length: int) -> FrameError:
        foreign = _FOREIGN.get(start[:4])
        if foreign is not None:
            return FrameError(f"{foreign} arrived where RocketMQ's remoting protocol is spoken")
        if start[:2] == b"\x16\x03":
            return FrameError("a TLS handshake arrived on a port without TLS; turn TLS off at the client")
        if length > self._frame_bytes_max - 4:
            text = f"a frame of {length + 4} bytes is over the limit of {self._frame_bytes_max}"
            return FrameError(text, what="frame", value=length + 4, limit=self._frame_bytes_max)
        if length < 4:
            text = f"a frame length of {length} is too small: a frame has at least 8 bytes"
            return FrameError(text, what="length", value=length)
        text = f"a header of {header_length} bytes does not fit its frame of {length + 4} bytes"
        return FrameError(text, what="header", value=header_length, limit=length + 4)
