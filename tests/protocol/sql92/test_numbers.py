"""Java's reading and ordering of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from sparrowmq.protocol.sql92.numbers import EvaluationError, compare_doubles, to_double, to_int, to_long

REFUSED = "refused"


def read(reader: Callable[[str], object], text: str) -> object:
    try:
        return reader(text)
    except EvaluationError:
        return REFUSED


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("text", "as_int", "as_long"),
    [
        ("0", 0, 0),
        ("-0", 0, 0),
        ("+7", 7, 7),
        ("007", 7, 7),
        ("2147483647", 2147483647, 2147483647),
        ("2147483648", REFUSED, 2147483648),
        ("-2147483648", -2147483648, -2147483648),
        ("-2147483649", REFUSED, -2147483649),
        ("9223372036854775807", REFUSED, 9223372036854775807),
        ("9223372036854775808", REFUSED, REFUSED),
        ("-9223372036854775808", REFUSED, -9223372036854775808),
        ("-9223372036854775809", REFUSED, REFUSED),
        ("٣", 3, 3),
        ("５", 5, 5),
        ("𝟝", REFUSED, REFUSED),
        ("-" + "0" * 5000 + "12", -12, -12),
        ("+" + "0" * 5000 + "12", 12, 12),
        ("0" * 5000 + "12", 12, 12),
        ("0" * 5000, 0, 0),
        ("1" * 5000, REFUSED, REFUSED),
        *(
            (text, REFUSED, REFUSED)
            for text in ("", "+", "-", "5.0", " 5", "5 ", "1_000", "--5", "abc", "5l")
        ),
    ],
)
def test_integers(text: str, as_int: object, as_long: object) -> None:
    assert (read(to_int, text), read(to_long, text)) == (as_int, as_long)


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5.0),
        ("5.", 5.0),
        (".5", 0.5),
        ("-5.5e-1", -0.55),
        ("\x00 5\t", 5.0),
        ("5f", 5.0),
        ("5D", 5.0),
        ("1e999", math.inf),
        ("-1e999", -math.inf),
        ("1e-999", 0.0),
        ("Infinity", math.inf),
        ("+Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("0x1p3", 8.0),
        ("-0X.8P1f", -1.0),
        ("0x1p99999", math.inf),
        ("-0x1p99999", -math.inf),
        *(
            (text, REFUSED)
            for text in (
                "",
                ".",
                "e5",
                "inf",
                "nan",
                "NaNf",
                "0x10",
                "1_0",
                "5ff",
                "٣",
                "\xa05",
                "1e",
                "0xp1",
            )
        ),
    ],
)
def test_doubles(text: str, value: object) -> None:
    assert read(to_double, text) == value


def test_not_a_number_is_read_with_any_sign() -> None:
    assert all(math.isnan(to_double(text)) for text in ("NaN", "+NaN", "-NaN"))


@pytest.mark.proves("broker:14.2")
def test_doubles_have_a_total_order() -> None:
    ordered = [-math.inf, -1.0, -0.0, 0.0, 1.0, math.inf, math.nan]
    for i, left in enumerate(ordered):
        for j, right in enumerate(ordered):
            assert compare_doubles(left, right) == (i > j) - (i < j), (left, right)
