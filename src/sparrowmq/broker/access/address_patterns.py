"""Patterns of remote addresses, as `plain_acl.yml` writes them (remoting:7.2).

""                      nobody
"*", "*.*.*.*"          everybody
"10.0.0.5"              one address
"10.0.0.5,10.0.0.6"     several
"10.0.0.{5,6,9}"        several in the last place
"10.0.0.*", "10.0.1-20.*"   ranges in the last two places
"fe80::1-ff", "fe80::*"     the same for IPv6, in hexadecimal
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from sparrowmq.core.errors import SettingsError

Matches = Callable[[str], bool]
Place = tuple[int, int]
"""Lowest and highest number in one place of an address."""

_EVERYBODY: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_V4_PLACES: Final = 4
_V6_PLACES: Final = 8
_OPEN_PLACES: Final = 2
"""How many places from the right may contain ranges."""


def address_pattern(text: str) -> Matches:
    """A function that checks a numeric host against `text`. Raises `SettingsError` naming a bad pattern."""
    text = text.strip()
    if not text:
        return lambda host: False
    if text in _EVERYBODY:
        return lambda host: True
    alternatives = [_places(part) for part in _split(text)]
    return lambda host: any(_match(places, host) for places in alternatives)


def _split(text: str) -> list[str]:
    """The individual patterns of a list, or of braces at the end."""
    if not text.endswith("}"):
        return [part.strip() for part in text.split(",") if part.strip()]
    head, brace, tail = text.partition("{")
    if not brace or not head or head[-1] not in ".:":
        raise _wrong(text, "braces may enclose only the last part")
    return [head + part.strip() for part in tail[:-1].split(",")]


def _places(text: str) -> list[Place]:
    v6 = ":" in text
    parts = _expand(text) if v6 else text.split(".")
    wanted, top, base = (_V6_PLACES, 0xFFFF, 16) if v6 else (_V4_PLACES, 255, 10)
    if len(parts) != wanted:
        raise _wrong(text, f"an address has {wanted} parts")
    places = []
    for index, part in enumerate(parts):
        place = _place(text, part, top, base)
        if place[0] != place[1] and index < wanted - _OPEN_PLACES:
            raise _wrong(text, "only the last two parts may be ranges")
        places.append(place)
    return places


def _place(text: str, part: str, top: int, base: int) -> Place:
    if part == "*":
        return 0, top
    low, minus, high = part.partition("-")
    try:
        first = int(low, base)
        last = int(high, base) if minus else first
    except ValueError:
        raise _wrong(text, f"{part!r} is not a number, a range or '*'") from None
    if not 0 <= first <= last <= top:
        raise _wrong(
            text, f"{part!r} is not within 0 and {top:x}" if base == 16 else f"{part!r} is not 0-255"
        )
    return first, last


def _expand(text: str) -> list[str]:
    """The eight places of an IPv6 pattern with `::` expanded."""
    head, gap, tail = text.partition("::")
    if not gap:
        return text.split(":")
    left = head.split(":") if head else []
    right = tail.split(":") if tail else []
    return [*left, *(["0"] * (_V6_PLACES - len(left) - len(right))), *right]


def _match(places: list[Place], host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if address.version == 4:
        numbers = list(address.packed)
    else:
        packed = address.packed
        numbers = [int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2)]
    if len(numbers) != len(places):
        return False
    return all(low <= number <= high for number, (low, high) in zip(numbers, places, strict=True))


def _wrong(text: str, why: str) -> SettingsError:
    wording = f"{text!r} is not an address pattern: {why}; write 10.0.0.5, 10.0.0.* or *"
    return SettingsError(wording, what="address", value=text)
