"""Text taken apart by the lexical rules of Spark's SQL: names, and where statements end. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

_PATTERN: Final = re.compile(
    r"""
    (?P<comment> --(?:\\\r?\n|[^\r\n])* )
  | (?P<bracket> /\*(?!\+) )
  | (?P<text> [rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*+' | "(?:[^"\\]|\\.|"")*+"
            | \$(?P<tag>[A-Za-z]*)\$.*?\$(?P=tag)\$ )
  | (?P<quoted> `(?:[^`]|``)*+` )
  | (?P<open> [rR]?['"] | ` )
  | (?P<word> \w+ )
  | (?P<end> ; )
  | (?P<other> \S )
    """,
    re.DOTALL | re.VERBOSE,
)
_BRACKET: Final = re.compile(r"/\*|\*/")


class TokenKind(Enum):
    """What a piece of text is."""

    COMMENT = "comment"
    TEXT = "text"
    QUOTED = "quoted"
    WORD = "word"
    OTHER = "other"
    END = "end"
    OPEN = "open"
    """A comment, text or name that does not end."""


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A piece of text and where it is."""

    kind: TokenKind
    text: str
    start: int
    stop: int


def tokens(text: str) -> Iterator[SqlToken]:
    """The pieces of a text without the blanks between them, in order; an open one is the last."""
    place = 0
    while found := _PATTERN.search(text, place):
        start, place, kind = found.start(), found.end(), found.lastgroup or ""
        if kind == "bracket":
            closed = _closed(text, place)
            kind, place = ("open", len(text)) if closed is None else ("comment", closed)
        elif kind == "open":
            place = len(text)
        yield SqlToken(TokenKind(kind), text[start:place], start, place)


def _closed(text: str, place: int) -> int | None:
    """The end of a bracketed comment; others may be in it."""
    depth = 1
    for found in _BRACKET.finditer(text, place):
        depth += 1 if found.group() == "/*" else -1
        if not depth:
            return found.end()
    return None


def names_in(query: str) -> set[str]:
    """Every word of a query that may be a table name; quoted ones without quotes."""
    found = set()
    for token in tokens(query):
        if token.kind is TokenKind.WORD:
            found.add(token.text)
        elif token.kind is TokenKind.QUOTED:
            found.add(token.text[1:-1].replace("``", "`"))
    return found


class Script:
    r"""Statements in lines: a query ends with `;`, a command (a line that begins with `\`) with its line."""

    def __init__(self) -> None:
        self._text = ""

    @property
    def waiting(self) -> bool:
        """Whether a statement has begun."""
        return bool(self._text)

    def add(self, line: str) -> list[str]:
        """The statements that end in the next line."""
        if not self._text and line.lstrip().startswith("\\"):
            return [line.strip()]
        found, self._text = _split(self._text + line)
        return found

    def rest(self) -> list[str]:
        """The last statement, if the text ends without `;`."""
        text, self._text = self._text.strip(), ""
        return [text] if text else []


def statements_in(text: str) -> list[str]:
    """The statements of a text, without `;`. A text without any is one: Spark says what is wrong with it."""
    found, rest = _split(text)
    return [*found, rest.strip()] if rest else found or [text]


def _split(text: str) -> tuple[list[str], str]:
    """The statements that end in a text, and the text after them if something begins there."""
    found, start, begun = list[str](), 0, False
    for token in tokens(text):
        if token.kind is not TokenKind.END:
            begun = begun or token.kind is not TokenKind.COMMENT
            continue
        if begun:
            found.append(text[start : token.start].strip())
        start, begun = token.stop, False
    return found, text[start:] if begun else ""
