"""SQL92 filters and the bloom filter against the reference's own classes: same answers, same refusals."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import pytest
from tests.interop.driver import JavaDriver
from tests.interop.sql92_expressions import Case, Properties, Writer, tables

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.protocol.bloom import BloomFilter
from sparrowmq.protocol.sql92 import compile_sql, parse
from sparrowmq.protocol.sql92.evaluate import build
from sparrowmq.protocol.sql92.numbers import EvaluationError

pytestmark = pytest.mark.interop

SEED: Final = int(os.environ.get("SPARROW_SEED", "20"))
LONG: Final = os.environ.get("SPARROW_TEST_TIER") == "long"
CASES: Final = 40_000 if LONG else 3000
"""Random expressions."""

TABLE_SHARE: Final = 1 if LONG else 10
"""Of the tables one case in so many is compared."""

CHUNK: Final = 20_000
"""Expressions and evaluations the driver is asked for at once."""


def _ours(text: str, sets: list[Properties]) -> dict[str, Any]:
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


def _compare(driver: JavaDriver, cases: Iterable[Case]) -> Counter[str]:
    """Both sides' answers must be the same; how often each came."""
    seen: Counter[str] = Counter()
    for some in _chunks(cases):
        asked = [{"expression": text, "properties": sets} for text, sets in some]
        theirs = driver.call("Filters.evaluate", cases=asked, seconds=300)
        for (text, sets), answer in zip(some, theirs, strict=True):
            expected = {"error": True} if "error" in answer else answer
            ours = _ours(text, sets)
            assert ours == expected, (SEED, text, _first_difference(sets, ours, expected))
            seen.update(answer.get("results", ["refused"]))
    return seen


def _first_difference(sets: list[Properties], ours: dict[str, Any], theirs: dict[str, Any]) -> Any:
    if "error" in ours or "error" in theirs:
        return {
            side: "refused" if "error" in answer else "taken"
            for side, answer in (("ours", ours), ("theirs", theirs))
        }
    results = zip(sets, ours["results"], theirs["results"], strict=True)
    return next((values, f"ours {mine}, theirs {their}") for values, mine, their in results if mine != their)


def _chunks(cases: Iterable[Case]) -> Iterator[list[Case]]:
    chunk: list[Case] = []
    size = 0
    for case in cases:
        chunk.append(case)
        size += 1 + len(case[1])
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


@pytest.mark.proves("broker:14.2")
def test_random_expressions_mean_what_the_reference_says(driver: JavaDriver) -> None:
    writer = Writer(random.Random(SEED))
    seen = _compare(driver, (writer.case(6) for _ in range(CASES)))
    kinds = ("TRUE", "FALSE", "NULL", "ERROR", "refused")
    assert min(seen[kind] for kind in kinds) > CASES // 100, seen


@pytest.mark.proves("broker:14.2")
def test_every_border_of_numbers_texts_and_logic_is_where_the_reference_has_it(driver: JavaDriver) -> None:
    """All tables in the long tier, else a sample that is another for each seed."""
    rng = random.Random(SEED)
    cases = (case for case in tables() if TABLE_SHARE == 1 or rng.randrange(TABLE_SHARE) == 0)
    seen = _compare(driver, cases)
    assert min(seen[kind] for kind in ("TRUE", "FALSE", "NULL", "ERROR", "refused")) > 100, seen


@pytest.mark.proves("broker:14.2")
def test_depth_is_taken_as_far_as_ours_goes(driver: JavaDriver) -> None:
    """Ours has a limit where the reference has its stack; below it both say the same."""
    values = [{"a": "5", "b": "x"}, {"a": "6"}, {}]
    deep = [
        "(" * 99 + "a = 5" + ")" * 99,
        "NOT (" * 49 + "a = 5" + ")" * 49,
        "- " * 98 + "a = 5",
        "a = 5" + " = TRUE" * 99,
        " OR ".join(f"a = {number}" for number in range(500)),
        " AND ".join("b <> 'y'" for _ in range(500)),
        f"b IN ({', '.join(repr(str(number)) for number in range(990))}, 'x')",
    ]
    seen = _compare(driver, [(text, values) for text in deep])
    assert seen["refused"] == 0, seen
    assert seen.total() == len(deep) * len(values)


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
