from __future__ import annotations

import pytest

from sparrowmq.console import shown
from sparrowmq.console.texts import words


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("number", 0, "0"),
        ("number", 1234567, "1\u202f234\u202f567"),
        ("number", None, "unknown"),
        ("bytes", 0, "0\u202fB"),
        ("bytes", 1536, "1.5\u202fKiB"),
        ("bytes", 1 << 60, "1024.0\u202fPiB"),
        ("rate", 0.04, "0.0"),
        ("rate", 12345.6, "12\u202f346"),
        ("span", 0, "0\u202fms"),
        ("span", 999, "999\u202fms"),
        ("span", 61_000, "1\u202fmin 1\u202fs"),
        ("span", 90_061_000, "1\u202fd 1\u202fh"),
        ("span", 86_400_000, "1\u202fd"),
        ("time", 0, "never"),
        ("time", 1_700_000_000_000, "2023-11-14 22:13:20 UTC"),
        ("time", 10**30, str(10**30)),
        ("time", -5, "-5"),
        ("text", True, "yes"),
        ("list", ["a", 1], "a, 1"),
        ("text", "", ""),
        ("number", 0.5, "0.5"),
    ],
)
def test_values_are_shown_in_words(kind: str, value: object, text: str) -> None:
    assert shown.said(kind, value, words("en")) == text


def test_times_are_machine_readable() -> None:
    assert shown.iso(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert shown.iso(10**20) == str(10**20)


def test_long_lists_say_how_many_more_there_are() -> None:
    names = [f"group-{number}" for number in range(shown.NAMES_MAX + 3)]
    assert shown.listed(names[:2]) == "group-0, group-1" and shown.listed([]) == "–"
    assert shown.listed(names).endswith(f"group-{shown.NAMES_MAX - 1}, … (+3)")
    assert shown.first(names[:2], words("en")) == names[:2]
    assert shown.first(names, words("en"), left=4) == [*names[: shown.NAMES_MAX], "And 7 more."]
