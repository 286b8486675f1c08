"""Tokens of SQL92 filters, read one at a time: text after a complete expression is not read."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from sparrowmq.core.errors import InvalidExpressionError

KEYWORDS: Final = frozenset(
    ("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH")
)
NAME: Final = "name"
STRING: Final = "string"
INTEGER: Final = "integer"
FLOAT: Final = "float"
END: Final = "end"
"""Kinds of tokens. Each keyword (in capitals) and each operator is its own kind."""

TOKENS_MAX: Final = 2000
"""Maximum tokens of one expression: about 500 comparisons, or 1,000 strings of an IN. Reading an expression
blocks all other requests.
"""

_SHOWN_CHARS: Final = 40
_SPACE: Final = re.compile(r"(?:[ \t\n\r\f]+|--[^\n\r]*(?:\r\n|\r|\n)|/\*[\s\S]*?\*/)+")
_TOKEN: Final = re.compile(
    r"(?P<float>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)"
    r"|(?P<integer>0|[1-9][0-9]*[lL]?)"
    r"|(?P<string>'(?:''|[^'])*')"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<operator><>|<=|>=|[=<>(),+-])"
)


class Token(NamedTuple):
    """One token; `position` is the index of its first character, from 0."""

    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return "the end" if self.kind == END else repr(shortened(self.text))


def shortened(text: str) -> str:
    """The text for an error; long text is shortened."""
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def refuse(expression: str, position: int, token: str, problem: str) -> InvalidExpressionError:
    """The error for a problem at `position`; `token` is the token there, empty at the end."""
    return InvalidExpressionError(
        f"the SQL92 expression {shortened(expression)!r} is wrong at column {position + 1}: {problem}",
        position=position,
        token=token,
    )


class Lexer:
    """The tokens of one expression: `peek` returns the next one, `take` consumes it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._position = 0
        self._next: Token | None = None
        self._count = 0

    def peek(self) -> Token:
        """The next token. Raises `InvalidExpressionError` where no token can start."""
        if self._next is None:
            self._next = self._read()
        return self._next

    def take(self) -> Token:
        """Consume and return the next token."""
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
        self._count += 1
        if self._count > TOKENS_MAX:
            problem = f"it has more than {TOKENS_MAX} words and signs; filter by fewer conditions"
            raise refuse(text, position, shortened(found.group()), problem)
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
