"""Conversion of strings to Java's numbers, and Java's comparison of them."""

from __future__ import annotations

import re
from functools import lru_cache
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
    """RocketMQ raises during evaluation; the message does not match (broker:14.2)."""


LONG_CHARS: Final = 64
"""Longer strings are converted once for all comparisons of a message."""


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
    return _read_integer(text) if len(text) <= LONG_CHARS else _long_integer(text)


def _read_integer(text: str) -> int:
    """A sign and digits of any script, read like Java: by UTF-16 units."""
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
    return _read_double(text) if len(text) <= LONG_CHARS else _long_double(text)


def _read_double(text: str) -> float:
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


_long_integer: Final = lru_cache(maxsize=8)(_read_integer)
_long_double: Final = lru_cache(maxsize=8)(_read_double)


def compare_doubles(left: float, right: float) -> int:
    """`Double.compareTo`: -0.0 is less than 0.0; NaN is greater than everything and equal to itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    left_key, right_key = _odd_key(left), _odd_key(right)
    return (left_key > right_key) - (left_key < right_key)


def _odd_key(value: float) -> int:
    """The order for values that `<` and `>` leave undefined."""
    if value != value:
        return 2
    if value == 0.0:
        return 0 if str(value)[0] == "-" else 1
    return 1
