"""SQL92 filters and the bloom filter against the reference's own classes: same answers, same refusals."""

from __future__ import annotations

import os
import random
from typing import Any, Final

import pytest
from tests.interop.driver import JavaDriver

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.protocol.bloom import BloomFilter
from sparrowmq.protocol.sql92 import compile_sql, parse
from sparrowmq.protocol.sql92.evaluate import build
from sparrowmq.protocol.sql92.numbers import EvaluationError

pytestmark = pytest.mark.interop

SEED: Final = int(os.environ.get("SPARROW_SEED", "20"))
CASES: Final = 40_000 if os.environ.get("SPARROW_TEST_TIER") == "long" else 3000
NAMES: Final = ("a", "b", "_c", "$d", "inner", "missing")
VALUES: Final = (
    *("0", "1", "5", "-5", "+5", "05", "5.0", "5.", ".5", "-0.0", "0.0", "1e3", "5f", "5d", " 5 ", "5 ", ""),
    *("2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807", "9223372036854775808"),
    *("NaN", "-NaN", "Infinity", "-Infinity", "inf", "nan", "0x1p3", "0x10", "1_000", "1e999", "1e-999"),
    *("true", "TRUE", "True", "false", "yes", "abc", "ABC", "it's", "中文", "٣", "𝟝", "５", "a b", "x"),
)
LITERALS: Final = (
    *("0", "1", "5", "05", "5L", "5l", "0L", "2147483647", "2147483648", "9223372036854775807"),
    *("9223372036854775808", "5.0", "5.", ".5", "0.0", "0e1", "5E1", "5e-1", "1e400", "1e-400", "00.5"),
    *("'abc'", "'5'", "''", "'it''s'", "'中文'", "'true'", "TRUE", "false", "Null", "NULL"),
)


def _unary(rng: random.Random, depth: int) -> str:
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(NAMES)
    if kind < 0.8:
        return rng.choice(LITERALS)
    if kind < 0.9 and depth:
        return f"({_expression(rng, depth - 1)})"
    return rng.choice(("-", "+", "NOT ", "not ")) + _unary(rng, depth)


def _strings(rng: random.Random) -> str:
    return ", ".join(rng.choice(("'abc'", "'5'", "''", "'x'", "'it''s'")) for _ in range(rng.randint(1, 6)))


def _condition(rng: random.Random, depth: int) -> str:
    left = _unary(rng, depth)
    negation = rng.choice(("", "", "NOT "))
    match rng.randrange(8):
        case 0 | 1:
            return f"{left} {rng.choice(('=', '<>'))} {_unary(rng, depth)}"
        case 2 | 3:
            return f"{left} {rng.choice(('<', '<=', '>', '>='))} {_unary(rng, depth)}"
        case 4:
            return f"{left} {negation}BETWEEN {_unary(rng, 0)} AND {_unary(rng, 0)}"
        case 5:
            return f"{left} {negation}IN ({_strings(rng)})"
        case 6:
            keyword = rng.choice(("CONTAINS", "STARTSWITH", "endsWith"))
            return f"{left} {negation}{keyword} {rng.choice(LITERALS[21:25])}"
        case _:
            return f"{left} IS {negation}NULL"


def _expression(rng: random.Random, depth: int) -> str:
    parts = [_condition(rng, depth)]
    while rng.random() < 0.4:
        parts += [rng.choice(("AND", "OR", "and", "or")), _condition(rng, depth)]
    if rng.random() < 0.2:
        parts.append(rng.choice(("= TRUE", "= b", "<> 'true'", "IS NULL")))
    return " ".join(parts)


def _damaged(rng: random.Random, text: str) -> str:
    """The text with something put in or taken out."""
    at = rng.randrange(len(text) + 1)
    odd = (
        "",
        "(",
        ")",
        "'",
        "=",
        "<",
        "-",
        "--",
        "--x\n",
        "/* c */",
        "/*",
        "@",
        ".",
        "0",
        "NOT ",
        "中",
        "\t",
        ";",
    )
    return text[:at] + rng.choice(odd) + text[at + rng.randrange(3) :]


def _properties(rng: random.Random) -> dict[str, str]:
    return {name: rng.choice(VALUES) for name in NAMES[:-1] if rng.random() < 0.8}


def _ours(text: str, sets: list[dict[str, str]]) -> dict[str, Any]:
    try:
        compute = build(parse(text))
    except InvalidExpressionError as error:
        assert error.position is not None and 0 <= error.position <= len(text)
        assert error.token is not None and (text.startswith(error.token.rstrip("…"), error.position))
        return {"error": True}
    results = []
    for values in sets:
        try:
            value = compute(values.get)
        except EvaluationError:
            results.append("ERROR")
        else:
            assert value is None or isinstance(value, bool)
            results.append("NULL" if value is None else str(value).upper())
        assert compile_sql(text).matches(values) is (results[-1] == "TRUE")
    return {"results": results}


@pytest.mark.proves("broker:14.2")
def test_generated_expressions_mean_what_the_reference_says(driver: JavaDriver) -> None:
    rng = random.Random(SEED)
    cases: list[dict[str, Any]] = []
    for _ in range(CASES):
        text = _expression(rng, 2)
        if rng.random() < 0.3:
            text = _damaged(rng, text)
        cases.append({"expression": text, "properties": [_properties(rng) for _ in range(6)]})
    theirs = driver.call("Filters.evaluate", cases=cases, seconds=300)
    seen = {"TRUE": 0, "FALSE": 0, "NULL": 0, "ERROR": 0, "refused": 0}
    for case, answer in zip(cases, theirs, strict=True):
        expected = {"error": True} if "error" in answer else answer
        assert _ours(case["expression"], case["properties"]) == expected, (SEED, case, answer)
        for result in answer.get("results", ["refused"]):
            seen[result] += 1
    assert min(seen.values()) > CASES // 100, seen


@pytest.mark.proves("broker:14.2")
def test_bloom_positions_are_those_of_the_reference(driver: JavaDriver) -> None:
    rng = random.Random(SEED)
    names = ["", "G#T", "中文#t", "🚀#x"]
    names += ["".join(rng.choices("abcXYZ#%_0", k=rng.randrange(60))) for _ in range(200)]
    for percent, groups in ((20, 32), (10, 128), (1, 1), (50, 7), (99, 3)):
        filter_ = BloomFilter(percent, groups)
        theirs = driver.call("Filters.bloom", percent=percent, groups=groups, names=names)
        assert (filter_.bits, filter_.hashes) == (theirs["bits"], theirs["hashes"])
        assert [list(filter_.positions(name)) for name in names] == theirs["positions"]
