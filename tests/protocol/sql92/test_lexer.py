"""Tokens: the longest one wins, keywords ignore case, blanks and comments are passed over."""

from __future__ import annotations

import pytest

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.protocol.sql92.lexer import END, Lexer, shortened


def tokens(text: str) -> list[tuple[str, str]]:
    lexer = Lexer(text)
    found = []
    while (token := lexer.take()).kind != END:
        found.append((token.kind, token.text))
    return found


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        (" \t\r\n\f", []),
        ("a_1$ $x _y", [("name", "a_1$"), ("name", "$x"), ("name", "_y")]),
        ("And nOT startswith", [("AND", "And"), ("NOT", "nOT"), ("STARTSWITH", "startswith")]),
        ("android nots", [("name", "android"), ("name", "nots")]),
        ("<= <> < >= > =", [(op, op) for op in ("<=", "<>", "<", ">=", ">", "=")]),
        ("0 12 7l 7L 0L", [("integer", t) for t in ("0", "12", "7l", "7L", "0")] + [("name", "L")]),
        ("007", [("integer", "0"), ("integer", "0"), ("integer", "7")]),
        ("5. .5 5.5e-3 5E10 00.5", [("float", t) for t in ("5.", ".5", "5.5e-3", "5E10", "00.5")]),
        ("5e", [("integer", "5"), ("name", "e")]),
        ("'a''b' ''", [("string", "'a''b'"), ("string", "''")]),
        ("'中\n'", [("string", "'中\n'")]),
        ("a--b\n=--c\r\n1--d\r", [("name", "a"), ("=", "="), ("integer", "1")]),
        ("a -- b", [("name", "a"), ("-", "-"), ("-", "-"), ("name", "b")]),
        ("a/* ** /x */b/**/c", [("name", "a"), ("name", "b"), ("name", "c")]),
    ],
)
def test_tokens(text: str, expected: list[tuple[str, str]]) -> None:
    assert tokens(text) == expected


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("text", "position", "token", "problem"),
    [
        ("a = @", 4, "@", "'@' has no meaning in an expression"),
        ("a = 'it s", 4, "'it s", "a string begins here and does not end; add '"),
        ("a /* b", 2, "/*", "a comment begins here and does not end; add */"),
        ("a . b", 2, ".", "'.' has no meaning in an expression"),
        ("é", 0, "é", "'é' has no meaning in an expression"),
    ],
)
def test_what_cannot_be_a_token_is_named_with_its_place(
    text: str, position: int, token: str, problem: str
) -> None:
    with pytest.raises(InvalidExpressionError) as caught:
        tokens(text)
    assert (caught.value.position, caught.value.token) == (position, token)
    assert str(caught.value).endswith(f" is wrong at column {position + 1}: {problem}")


def test_long_texts_are_cut_in_messages() -> None:
    assert shortened("x" * 40) == "x" * 40
    assert shortened("x" * 41) == "x" * 40 + "…"


def test_peeking_does_not_go_on_and_nothing_is_read_ahead() -> None:
    lexer = Lexer("a b @")
    assert lexer.peek() is lexer.peek()
    assert (lexer.take().text, lexer.take().text) == ("a", "b")
    with pytest.raises(InvalidExpressionError):
        lexer.peek()
