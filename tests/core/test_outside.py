"""Text from outside cannot control a terminal or forge a line, and nothing of it is lost."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.outside import json_line, lines, one_line

BIDI = {"RLE", "LRE", "RLO", "LRO", "PDF", "RLI", "LRI", "FSI", "PDI"}


def steers(char: str) -> bool:
    """Whether a character controls the display instead of being shown."""
    if char in "\t\n":
        return char == "\n"
    is_break = unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")
    return is_break or unicodedata.bidirectional(char) in BIDI or char in "\u061c\u200e\u200f"


def test_every_control_character_is_shown_as_its_escape() -> None:
    for number in range(0x110000):
        char = chr(number)
        if not steers(char):
            assert one_line(char) == char, hex(number)
        else:
            assert one_line(char) == char.encode("unicode_escape").decode(), hex(number)
        assert lines(char) == (char if char == "\n" else one_line(char)), hex(number)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("all is well", "all is well"),
        ("漢字 äöü 🚀\tx", "漢字 äöü 🚀\tx"),
        ("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\r\nBcc: b", r"a\r\nBcc: b"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("[red]x[/red]", "[red]x[/red]"),
    ],
)
def test_text_is_shown_in_one_line_with_control_characters_escaped(text: str, shown: str) -> None:
    assert one_line(text) == shown


def test_further_lines_are_indented() -> None:
    assert lines("a\nb\x1b\nc", "  ") == "a\n  b\\x1b\n  c"


@given(st.recursive(st.none() | st.integers() | st.text(st.characters()), st.lists, max_leaves=8))
def test_json_is_one_line_of_the_same_value(value: object) -> None:
    text = json_line(value)
    assert not any(map(steers, text))
    assert json.loads(text) == value


def test_lone_surrogates_become_json_that_can_be_encoded() -> None:
    assert json_line("\udcff").encode() == b'"\\udcff"'
