"""Tokens of SQL92 filters, made one at a time: what follows a complete expression is not looked at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from sparrowmq.core.errors import InvalidExpressionError

KEYWORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
NAME: Final = "name"
STRING: Final = "string"
INTEGER: Final = "integer"
FLOAT: Final = "float"
END: Final = "end"
"""Kinds of tokens; a keyword (in capitals) or operator is its own kind."""

_SHOWN_CHARS: Final = 40
_SPACE: Final = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\r|\n)|/\*[\s\S]*?\*/)+")
_TOKEN: Final = re.compile(
    r"(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)"
    r"|(?P<string>'(?:''|[^'])*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<operator><>|<=|>=|[=<>(),+-])"
)


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `position` is where it starts, counted in characters from 0."""

    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == END else repr(shortened(self.text))


def shortened(text: str) -> str:
    """The text for a message: a long one is cut."""
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def refuse(expression: str, position: int, token: str, problem: str) -> InvalidExpressionError:
    """The error for something wrong at `position`; `token` is what stands there, empty at the end."""
    return InvalidExpressionError(
        f"the SQL92 expression {shortened(expression)!r} is wrong at column {position + 1}: {problem}",
        position=position,
        token=token,
    )


class Lexer:
    """The tokens of one expression: `peek` shows the next one, `take` goes on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._position = 0
        self._next: Token | None = None

    def peek(self) -> Token:
        """The next token. Raises `InvalidExpressionError` where none can start."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """The next token, which is then behind."""
        token = self.peek()
        self._next = None
        return token

    def error(self, token: Token, problem: str) -> InvalidExpressionError:
        """An error at `token`."""
        return refuse(self.text, token.position, token.text, problem)

    def _read(self) -> Token:
        text = self.text
        blank = _SPACE.match(text, self._position)
        position = blank.end() if blank is not None else self._position
        found = _TOKEN.match(text, position)
        if found is None:
            if position == len(text):
                return Token(END, "", position)
            raise self._unreadable(position)
        self._position = found.end()
        token = found.group()
        kind = found.lastgroup or ""
        if kind == "operator":
            kind = token
        elif kind == NAME and token.upper() in KEYWORDS:
            kind = token.upper()
        return Token(kind, token, position)

    def _unreadable(self, position: int) -> InvalidExpressionError:
        rest = self.text[position:]
        if rest.startswith("'"):
            return refuse(
                self.text, position, shortened(rest), "a string begins here and does not end; add '"
            )
        if rest.startswith("/*"):
            return refuse(self.text, position, "/*", "a comment begins here and does not end; add */")
        return refuse(self.text, position, rest[0], f"{rest[0]!r} has no meaning in an expression")
