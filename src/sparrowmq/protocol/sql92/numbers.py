"""Texts as Java's numbers, and Java's comparison of them."""

from __future__ import annotations

import re
from typing import Final

from sparrowmq.protocol.sql92.syntax import INT_MAX, INT_MIN, LONG_MAX, LONG_MIN

_DIGITS_MAX: Final = 4000
_INTEGER: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_SPECIAL: Final = {
    sign + name: factor * float(name.replace("Infinity", "inf"))
    for name in ("NaN", "Infinity")
    for sign, factor in (("", 1.0), ("+", 1.0), ("-", -1.0))
}
_TRIMMED: Final = "".join(map(chr, range(0x21)))


class EvaluationError(Exception):
    """The reference raises while it evaluates; the message does not match (broker:14.2)."""


def to_int(text: str) -> int:
    """`Integer.valueOf`; raises `EvaluationError`."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else _to_integer(text)
    if not INT_MIN <= value <= INT_MAX:
        raise EvaluationError(text)
    return value


def to_long(text: str) -> int:
    """`Long.valueOf`; raises `EvaluationError`."""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else _to_integer(text)
    if not LONG_MIN <= value <= LONG_MAX:
        raise EvaluationError(text)
    return value


def _to_integer(text: str) -> int:
    """A sign and digits of any script, as Java reads them: UTF-16 unit by unit."""
    if _INTEGER.fullmatch(text) is None or max(text) > "\uffff":
        raise EvaluationError(text)
    if len(text) > _DIGITS_MAX:
        sign = -1 if text[0] == "-" else 1
        text = text.lstrip("+-").lstrip("0")
        if len(text) > _DIGITS_MAX:
            raise EvaluationError(text)
        return sign * int(text or "0")
    return int(text)


def to_double(text: str) -> float:
    """`Double.valueOf`; raises `EvaluationError`."""
    trimmed = text.strip(_TRIMMED)
    if (found := _DECIMAL.fullmatch(trimmed)) is not None:
        return float(found[1])
    if trimmed in _SPECIAL:
        return _SPECIAL[trimmed]
    if (found := _HEXADECIMAL.fullmatch(trimmed)) is not None:
        try:
            return float.fromhex(found[1])
        except OverflowError:
            return float("-inf") if trimmed.startswith("-") else float("inf")
    raise EvaluationError(text)


def compare_doubles(left: float, right: float) -> int:
    """`Double.compareTo`: -0.0 lies below 0.0, NaN above everything and equal to itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key, right_key = _odd_key(left), _odd_key(right)
    return (left_key > right_key) - (left_key < right_key)


def _odd_key(value: float) -> int:
    """Orders what `<` and `>` leave undecided."""
    if value != value:
        return 2
    if value == 0.0:
        return 0 if str(value)[0] == "-" else 1
    return 1
