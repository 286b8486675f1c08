"""Property strings: `name 0x01 value 0x02 name 0x01 value 0x02 …` in UTF-8 (remoting:5.3, broker:2.2).

`find` is for the hot path: it looks up one property in the bytes without decoding the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparrowmq.core.errors import InvalidMessageError
from sparrowmq.core.message import PROPERTIES_BYTES_MAX

NAME_END: Final = b"\x01"
VALUE_END: Final = b"\x02"
_VALUE_END_ORD: Final = 2


def encode(properties: Mapping[str, str]) -> bytes:
    """The property string of `properties`.

    Entries with an empty name or value are omitted; readers drop them anyway.

    Raises `InvalidMessageError` when a name or value contains 0x01 or 0x02 or cannot be encoded as UTF-8, or
    the result is longer than 32,767 bytes.
    """
    parts = [f"{name}\x01{value}\x02" for name, value in properties.items() if name and value]
    text = "".join(parts)
    if text.count("\x01") != len(parts) or text.count("\x02") != len(parts):
        raise InvalidMessageError(
            "names and values of properties must not hold the characters 0x01 and 0x02", part="properties"
        )
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise InvalidMessageError(
            f"properties cannot be written as UTF-8: {error.reason}", part="properties"
        ) from None
    if len(data) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"the properties take {len(data)} bytes, the limit is {PROPERTIES_BYTES_MAX}; send less of them",
            limit=PROPERTIES_BYTES_MAX,
            part="properties",
        )
    return data


def decode(data: bytes) -> dict[str, str]:
    """All properties of a property string.

    Java's rules: pieces without separator, with an empty name or an empty value are dropped; of equal names
    the last wins; a missing final 0x02 is accepted; bytes that are not UTF-8 become U+FFFD.
    """
    properties = {}
    for piece in data.decode("utf-8", "replace").split("\x02"):
        name, _, value = piece.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def find(data: bytes, name: bytes) -> bytes | None:
    """The value of property `name`, or None; the same result as from `decode`, but much faster."""
    key = name + NAME_END
    position = data.rfind(key)
    while position >= 0:
        if position == 0 or data[position - 1] == _VALUE_END_ORD:
            start = position + len(key)
            end = data.find(VALUE_END, start)
            value = data[start:] if end < 0 else data[start:end]
            if value:
                return value
        position = data.rfind(key, 0, position + len(key) - 1)
    return None
