"""SQL92 expressions and properties to compare with the reference: tables of borders, and random text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product
from typing import Final

NAMES: Final = ("a", "b", "_c", "$d", "inner", "missing")
INTEGERS: Final = (
    *("0", "1", "5", "05", "00", "5L", "5l", "0L", "2147483647", "2147483648", "2147483647L", "4294967296"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "9223372036854775807L",
        "99999999999999999999",
        "9" * 400,
    ),
)
DOUBLES: Final = (
    *(
        "5.0",
        "5.",
        ".5",
        "0.0",
        "0e1",
        "5E1",
        "5e-1",
        "5e+1",
        "00.5",
        "5.5",
        "2147483648.0",
        "1e308",
        "1e309",
    ),
    *("1.7976931348623157e308", "1.7976931348623159e308", "4.9e-324", "1e-323", "2e-324", "1e400", "1e-400"),
    *("9007199254740993.0", "0.1", "1e5L", "5.0f", "5.e1", "." + "0" * 400 + "1"),
)
TEXTS: Final = (
    *("'abc'", "'5'", "'x'", "''", "'it''s'", "''''", "' '", "'true'", "'TRUE'", "'中文'", "'😀'", "'-- x'"),
    *("'/* x */'", "'a\nb'", "'a\\'", "'%'", "'\"'", "'a\x01b'", "'\x00'", "'5.0'"),
)
CONSTANTS: Final = ("TRUE", "false", "Null", "NULL", "true")
NUMBERS: Final = (*INTEGERS, *DOUBLES, *(f"-{number}" for number in (*INTEGERS[:9], *DOUBLES[:12])))
LITERALS: Final = (*INTEGERS, *DOUBLES, *TEXTS, *CONSTANTS)

VALUES: Final = (
    *("0", "1", "5", "-5", "+5", "05", "-0", "+0", "00", "5L", "5l", "-", "+", "--5", "5-", "", " ", "\t5"),
    *(
        "5.0",
        "5.",
        ".5",
        "-0.0",
        "0.0",
        "1e3",
        "1E3",
        "1e+3",
        "5f",
        "5d",
        "5F",
        "5D",
        " 5 ",
        "5 ",
        " 5",
        ".",
        "e5",
    ),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "+2147483647", "02147483647", "4294967296"),
    *(
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "-9223372036854775809",
        "9" * 400,
    ),
    *("NaN", "-NaN", "+NaN", "Infinity", "-Infinity", "+Infinity", "inf", "nan", "NAN", "infinity"),
    *("0x1p3", "0X1.8P-1", "0x10", "0x1p3d", "0x.8p1", "0xp1", "0b1", "1_000", "1,000", "1e999", "1e-999"),
    *("1.7976931348623157e308", "1.7976931348623159e308", "4.9e-324", "2e-324", "9007199254740993", "0.1"),
    *(
        "true",
        "TRUE",
        "True",
        " true",
        "false",
        "yes",
        "abc",
        "ABC",
        "abcabc",
        "it's",
        "'",
        "中文",
        "😀",
        "-- x",
    ),
    *(
        "٣",
        "𝟝",
        "５",
        "−5",
        "5\u00a0",
        "\u00a05",
        "\u20035",
        "a b",
        "x",
        "a\nb",
        "a\x01b",
        "\x00",
        "5\x00",
        "%",
    ),
)
"""Texts that a reader of numbers must take or refuse as Java's `Integer`, `Long` and `Double` do."""

COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=")
TEXT_TESTS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
BLANKS: Final = (" ", " ", " ", "  ", "\t", "\n", "\r\n", "\f", " /* c */ ", "/**/", " -- c\n", "--\r")
ODD: Final = (
    *(
        "",
        "(",
        ")",
        "'",
        "''",
        "=",
        "<",
        ">",
        "<>",
        "!",
        "-",
        "+",
        "--",
        "--x\n",
        "/* c */",
        "/*",
        "*/",
        "@",
        ".",
    ),
    *(
        "0",
        "5",
        "L",
        "e",
        "NOT ",
        "IN",
        ",",
        "中",
        "\t",
        "\v",
        "\u00a0",
        ";",
        '"',
        "\\",
        "$",
        "_",
        "%",
        "#",
        "\x00",
    ),
    *("\x1a", "\ud83d", "|", "{", "NULL", "IS "),
)

Properties = dict[str, str]
Case = tuple[str, list[Properties]]


# Tables


def comparisons() -> Iterator[Case]:
    """A property with every value against every literal, from both sides, signed and not."""
    alone: list[Properties] = [{"a": value} for value in VALUES] + [{}]
    for operator in COMPARISONS:
        for literal in (*LITERALS, *(f"-{number}" for number in NUMBERS[:20]), "+5", "- 5", "-a"):
            yield f"a {operator} {literal}", alone
            yield f"{literal} {operator} a", alone


def pairs() -> Iterator[Case]:
    """Two properties with every pair of values."""
    both: list[Properties] = [{"a": one, "b": other} for one, other in product(VALUES, VALUES)]
    both += [{"a": "5"}, {"b": "5"}, {}]
    for operator in COMPARISONS:
        yield f"a {operator} b", both


def constants() -> Iterator[Case]:
    """Literals against literals: what is refused before anything is evaluated."""
    for operator, left, right in product(COMPARISONS, LITERALS, LITERALS):
        yield f"{left} {operator} {right}", [{}]
    for literal in LITERALS:
        for text in (
            literal,
            f"NOT {literal}",
            f"-{literal}",
            f"+{literal}",
            f"({literal})",
            f"- -{literal}",
        ):
            yield text, [{}]
            yield f"{text} IS NULL", [{}]


def ranges() -> Iterator[Case]:
    """BETWEEN with every pair of some numbers, and with what is none."""
    some = (
        "0",
        "5",
        "5L",
        "-5",
        "2147483647",
        "2147483648",
        "5.0",
        "-0.5",
        "1e308",
        "b",
        "'5'",
        "TRUE",
        "NULL",
    )
    few: list[Properties] = [{"a": value, "b": "5"} for value in VALUES] + [{"a": "5"}, {"b": "5"}]
    for low, high, negation in product(some, some, ("", "NOT ")):
        yield f"a {negation}BETWEEN {low} AND {high}", few


def texts() -> Iterator[Case]:
    """IN and the tests of texts, with every text."""
    alone: list[Properties] = [{"a": value} for value in VALUES] + [{}]
    for text, negation in product((*TEXTS, "5", "TRUE", "NULL", "b"), ("", "NOT ")):
        yield f"a {negation}IN ({text})", alone
        yield f"a {negation}IN ('abc', {text}, 'abc')", alone
        for keyword in TEXT_TESTS:
            yield f"a {negation}{keyword} {text}", alone
            yield f"'abcabc' {negation}{keyword} {text}", [{}]
            yield f"5 {negation}{keyword} {text}", [{}]


def logic() -> Iterator[Case]:
    """TRUE, FALSE, NULL, a missing property and one that cannot be compared, in all their combinations."""
    terms = (
        "TRUE",
        "FALSE",
        "NULL",
        "missing",
        "missing = 1",
        "a",
        "a = 1",
        "a > 5",
        "b = '5'",
        "(b <> '5')",
    )
    values: list[Properties] = [{"a": "many", "b": "5"}]  # `a = 1` raises
    for one in terms:
        for text in (one, f"NOT {one}", f"NOT ({one})", f"NOT NOT ({one})", f"({one}) IS NULL"):
            yield text, values
            yield f"{text} IS NOT NULL", values
    for one, other in product(terms, terms):
        for operator in ("AND", "OR", "=", "<>"):
            yield f"({one}) {operator} ({other})", values
            yield f"{one} {operator} {other}", values
    for one, two, three in product(terms[:6], terms[:6], terms[:7]):
        for first, second in product(("AND", "OR"), repeat=2):
            yield f"{one} {first} {two} {second} {three}", values


def tables() -> Iterator[Case]:
    """All of them."""
    for table in (comparisons, pairs, constants, ranges, texts, logic):
        yield from table()


# Random text


class Writer:
    """Writes random expressions: most can be read, some are damaged."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def case(self, sets: int) -> Case:
        """An expression and so many sets of properties."""
        text = self._dressed(self._expression(2))
        if self._rng.random() < 0.3:
            text = self._damaged(text)
        return text, [self._properties() for _ in range(sets)]

    def _properties(self) -> Properties:
        rng = self._rng
        return {name: rng.choice(VALUES) for name in NAMES[:-1] if rng.random() < 0.8}

    def _unary(self, depth: int) -> str:
        rng = self._rng
        kind = rng.random()
        if kind < 0.4:
            return rng.choice(NAMES)
        if kind < 0.8:
            return rng.choice(LITERALS)
        if kind < 0.9 and depth:
            return f"({self._expression(depth - 1)})"
        return rng.choice(("- ", "+ ", "NOT ", "-", "+")) + self._unary(depth)

    def _comparison(self, depth: int) -> str:
        rng = self._rng
        text = self._unary(depth)
        for _ in range(rng.choice((0, 1, 1, 1, 1, 1, 2, 3))):
            text += f" {self._tail(depth)}"
        return text

    def _tail(self, depth: int) -> str:
        rng = self._rng
        negation = rng.choice(("", "", "NOT "))
        match rng.randrange(8):
            case 0 | 1:
                return f"{rng.choice(COMPARISONS[:2])} {self._unary(depth)}"
            case 2 | 3:
                return f"{rng.choice(COMPARISONS[2:])} {self._unary(depth)}"
            case 4:
                return f"{negation}BETWEEN {self._unary(0)} AND {self._unary(0)}"
            case 5:
                listed = ", ".join(rng.choice(TEXTS) for _ in range(rng.randint(1, 6)))
                return f"{negation}IN ({listed})"
            case 6:
                return f"{negation}{rng.choice(TEXT_TESTS)} {rng.choice(TEXTS)}"
            case _:
                return f"IS {negation}NULL"

    def _expression(self, depth: int) -> str:
        parts = [self._comparison(depth)]
        while self._rng.random() < 0.4:
            parts += [self._rng.choice(("AND", "OR")), self._comparison(depth)]
        return " ".join(parts)

    def _dressed(self, text: str) -> str:
        """The text with other blanks, comments and cases of words, and now and then without any blank."""
        rng = self._rng
        if rng.random() < 0.6:
            return text
        pieces = text.split(" ")
        pieces = [piece if rng.random() < 0.7 or "'" in piece else piece.swapcase() for piece in pieces]
        tight = rng.random() < 0.2
        joined = pieces[0]
        for piece in pieces[1:]:
            joined += ("" if tight and rng.random() < 0.5 else rng.choice(BLANKS)) + piece
        return joined

    def _damaged(self, text: str) -> str:
        """The text with something put in or taken out."""
        at = self._rng.randrange(len(text) + 1)
        return text[:at] + self._rng.choice(ODD) + text[at + self._rng.randrange(3) :]
