"""How many fields a serialized message has. Pure.

The parser of protobuf makes an object of each inner message, and an inner message takes only two bytes of
the request. So a request of a few MB could take hundreds of MB; its fields are counted before it is parsed.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

UNCOUNTED_BYTES: Final = 16 * 1024
"""A message up to this size is not counted: it has no room for many fields."""
FIELDS_MAX: Final = 50_000
"""Fields of one request, those of inner messages included."""
_FIELDS_OF_STEP: Final = 500
_VARINT_BYTES_MAX: Final = 10
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5


class MessageFields:
    """The fields of a message type that are messages, each with its own."""

    def __init__(self, descriptor: Any, known: dict[str, MessageFields] | None = None) -> None:
        known = {} if known is None else known
        known[descriptor.full_name] = self
        self.inner: dict[int, MessageFields] = {}
        for each in descriptor.fields:
            inner = each.message_type
            if inner is not None:
                self.inner[each.number] = known.get(inner.full_name) or MessageFields(inner, known)


def count_fields(data: bytes, kind: MessageFields, most: int = FIELDS_MAX) -> Generator[None, None, int]:
    """Steps that count the fields of a message up to `most` + 1. Of a damaged inner message only those before
    the damage count: the parser refuses the message, but makes objects of everything before.
    """
    count = 0
    waiting = [(0, len(data), kind)]
    while waiting:
        at, end, kind = waiting.pop()
        try:
            while at < end:
                count += 1
                if count > most:
                    return count
                if not count % _FIELDS_OF_STEP:
                    yield
                tag, at = _varint(data, at)
                wire = tag & 7
                if wire == _LENGTH:
                    size, at = _varint(data, at)
                    inner = kind.inner.get(tag >> 3)
                    if inner is not None:
                        waiting.append((at, min(at + size, end), inner))
                    at += size
                elif wire == _VARINT:
                    _, at = _varint(data, at)
                elif wire in (_FIXED64, _FIXED32):
                    at += 8 if wire == _FIXED64 else 4
        except (IndexError, ValueError):
            continue
    return count


def _varint(data: bytes, at: int) -> tuple[int, int]:
    first = data[at]
    if first < 0x80:
        return first, at + 1
    value = first & 0x7F
    for number in range(1, _VARINT_BYTES_MAX):
        part = data[at + number]
        value |= (part & 0x7F) << (7 * number)
        if part < 0x80:
            return value, at + number + 1
    raise ValueError
