"""gRPC's additions to HTTP/2: status codes, messages with a prefix, timeouts, response headers. Pure."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

OK: Final = 0
CANCELLED: Final = 1
UNKNOWN: Final = 2
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
PERMISSION_DENIED: Final = 7
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14
UNAUTHENTICATED: Final = 16

PREFIX_BYTES: Final = 5
CONTENT_TYPE: Final = "application/grpc"
STATUS_CHARS_MAX: Final = 1024
_TIMEOUT: Final = re.compile(r"(\d{1,8})([HMSmun])")
_SECONDS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS


class GrpcError(Exception):
    """A call that ends with gRPC's own status, not with a status in a response."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def timeout_seconds(text: str) -> float | None:
    """The seconds of a `grpc-timeout`; None without one. Raises `GrpcError`."""
    if not text:
        return None
    found = _TIMEOUT.fullmatch(text)
    if found is None:
        raise GrpcError(INTERNAL, f"grpc-timeout is {text[:20]!r}; it must be digits and a unit, such as 5S")
    return int(found[1]) * _SECONDS[found[2]]


def prefixed(message: bytes) -> bytes:
    """An encoded message: not compressed, with its length in front."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def unpacked(compressed: int, message: bytes, encoding: str, limit: int) -> bytes:
    """A received message, decompressed if necessary. Raises `GrpcError`."""
    if not compressed:
        return message
    if encoding != "gzip":
        raise GrpcError(
            UNIMPLEMENTED, f"messages compressed with {encoding[:40]!r} are not accepted; use gzip"
        )
    codec = zlib.decompressobj(_GZIP_WINDOW)
    try:
        plain = codec.decompress(message, limit + 1)
    except zlib.error as error:
        raise GrpcError(INTERNAL, f"the message is not valid gzip: {error}") from None
    if len(plain) > limit:
        raise too_large(len(plain), limit)
    if not codec.eof:
        raise GrpcError(INTERNAL, "the gzip data of the message is incomplete")
    return plain


def too_large(size: int, limit: int) -> GrpcError:
    """The refusal of a message with this many bytes or more."""
    return GrpcError(RESOURCE_EXHAUSTED, f"a message of {size} bytes, the limit is {limit}")


def whole_message(data: bytes) -> bytes | None:
    """The message if the data are one whole message that is not compressed; else None."""
    if (
        len(data) < PREFIX_BYTES
        or data[0]
        or int.from_bytes(data[1:PREFIX_BYTES], "big") != len(data) - PREFIX_BYTES
    ):
        return None
    return data[PREFIX_BYTES:]


MESSAGES_OF_FRAME_MAX: Final = 1024
"""Messages that one frame may complete."""


class MessageCutter:
    """Cuts the data of a stream into messages of at most `limit` bytes."""

    __slots__ = ("_data", "_limit")

    def __init__(self, limit: int) -> None:
        self._data = bytearray()
        self._limit = limit

    def __len__(self) -> int:
        return len(self._data)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """The messages that are complete now, each with a flag whether it is compressed. Raises
        `GrpcError`.
        """
        held = self._data
        held += data
        found: list[tuple[int, bytes]] = []
        at = 0
        while len(held) - at >= PREFIX_BYTES:
            size = int.from_bytes(held[at + 1 : at + PREFIX_BYTES], "big")
            if size > self._limit:
                raise too_large(size, self._limit)
            end = at + PREFIX_BYTES + size
            if len(held) < end:
                break
            if len(found) == MESSAGES_OF_FRAME_MAX:
                raise GrpcError(RESOURCE_EXHAUSTED, f"more than {MESSAGES_OF_FRAME_MAX} messages at once")
            found.append((held[at], bytes(held[at + PREFIX_BYTES : end])))
            at = end
        if at:
            del held[:at]
        return found


# Header blocks that we send: literals, so that they need no table

_STATUS_200: Final = b"\x88"
_STATUS_INDEX: Final = b"\x08"
"""A literal value for the name `:status` of the static table."""
_CONTENT_TYPE: Final = b"\x0f\x10" + bytes((len(CONTENT_TYPE),)) + CONTENT_TYPE.encode()


def _literal(name: str, value: str) -> bytes:
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    raw = text.encode("ascii")
    size = len(raw)
    if size < 127:
        return bytes((size,)) + raw
    length, rest = bytearray((127,)), size - 127
    while rest >= 128:
        length.append(rest % 128 + 128)
        rest //= 128
    length.append(rest)
    return bytes(length) + raw


RESPONSE_HEADERS: Final = _STATUS_200 + _CONTENT_TYPE
TRAILERS_OK: Final = _literal("grpc-status", "0")


def trailers(code: int, text: str) -> bytes:
    """The block that ends a response with a status."""
    if code == OK:
        return TRAILERS_OK
    shown = quote(text[:STATUS_CHARS_MAX], safe=" !\"#$&'()*+,-./:;<=>?@[]^_`{|}~")
    return _literal("grpc-status", str(code)) + _literal("grpc-message", shown)


def only_trailers(code: int, text: str) -> bytes:
    """The block of a response that consists of a status only."""
    return RESPONSE_HEADERS + trailers(code, text)


def plain_status(status: int, more: Sequence[tuple[str, str]] = ()) -> bytes:
    """The block of a response to a request that is not gRPC: a status of HTTP."""
    return _STATUS_INDEX + _text(str(status)) + b"".join(_literal(name, value) for name, value in more)
