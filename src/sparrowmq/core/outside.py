"""Untrusted text that is shown to people: names, reasons, bodies, remarks and errors from other parties.

Every such text is escaped here before it reaches a terminal, a log or a mail. Characters that control a
terminal, forge a log line or change the direction of text are shown as Python escapes. Pure.
"""

from __future__ import annotations

import json
import re
from typing import Final

_STEERS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""C0 except tab and line feed, DEL, C1, other line breaks, characters that change the text direction, and
lone surrogates, which no output can encode.
"""
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Characters with which formulas begin in spreadsheets."""
_IN_A_LINE: Final = re.compile(f"[\n{_STEERS}]")
_IN_LINES: Final = re.compile(f"[{_STEERS}]")


def one_line(text: str) -> str:
    """The text in one line; only tabs and visible characters are unchanged."""
    return _IN_A_LINE.sub(_escaped, text)


def lines(text: str, indent: str = "") -> str:
    """The text with its line feeds. `indent` before each further line keeps it from looking like a line of
    SparrowMQ.
    """
    return _IN_LINES.sub(_escaped, text).replace("\n", f"\n{indent}")


def json_line(value: object) -> str:
    """The value as one line of JSON that decodes to the same value."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _IN_A_LINE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def cell(text: str) -> str:
    """The text for a cell of a CSV file, with an apostrophe before a text that a spreadsheet would treat as a
    formula.
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
