"""What expressions are for properties: TRUE, FALSE, NULL or an error, as broker:14.2 has it."""

from __future__ import annotations

import pytest

from sparrowmq.protocol.sql92 import parse
from sparrowmq.protocol.sql92.evaluate import build, compare
from sparrowmq.protocol.sql92.numbers import EvaluationError
from sparrowmq.protocol.sql92.syntax import Long, Value

T, F, N, E = "TRUE", "FALSE", "NULL", "ERROR"


def value(text: str, **properties: str) -> str:
    try:
        found = build(parse(text))(properties.get)
    except EvaluationError:
        return E
    assert found is None or isinstance(found, bool)
    return N if found is None else str(found).upper()


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("text", "results"),
    [
        # for a = missing, '5', '6', '5.0', '3000000000', 'x', 'true'
        ("a = 5", (N, T, F, E, E, E, E)),
        ("a <> 5", (N, F, T, E, E, E, E)),
        ("5 = a", (F, T, F, E, E, E, E)),
        ("5 <> a", (T, F, T, E, E, E, E)),
        ("a > 5", (N, F, T, E, E, E, E)),
        ("5 < a", (N, F, T, E, E, E, E)),
        ("a = 3000000000", (N, F, F, E, T, E, E)),
        ("a >= 3000000000", (N, F, F, E, T, E, E)),
        ("a = 5.0", (N, T, F, T, F, E, E)),
        ("a < 5.5", (N, T, F, T, F, E, E)),
        ("5.5 <= a", (N, F, T, F, T, E, E)),
        ("a = '5'", (N, T, F, F, F, F, F)),
        ("a = TRUE", (N, F, F, F, F, F, T)),
        ("a = FALSE", (N, T, T, T, T, T, F)),
        ("TRUE = a", (F, E, E, E, E, E, E)),
        ("a", (N, F, F, F, F, F, F)),
        ("NOT a", (N, T, T, T, T, T, T)),
        ("a IS NULL", (T, F, F, F, F, F, F)),
        ("a IS NOT NULL", (F, T, T, T, T, T, T)),
        ("a IN ('5', 'x')", (N, T, F, F, F, T, F)),
        ("a NOT IN ('5', 'x')", (N, F, T, T, T, F, T)),
        ("a CONTAINS '0'", (F, F, F, T, T, F, F)),
        ("a NOT CONTAINS '0'", (F, T, T, F, F, T, T)),
        ("a STARTSWITH '5'", (F, T, F, T, F, F, F)),
        ("a NOT ENDSWITH '0'", (F, T, T, F, F, T, T)),
        ("a CONTAINS ''", (F, F, F, F, F, F, F)),
        ("a NOT CONTAINS ''", (F, F, F, F, F, F, F)),
        ("a BETWEEN 5 AND 6", (N, T, T, E, E, E, E)),
        ("a NOT BETWEEN 5 AND 5", (N, F, T, E, E, E, E)),
        ("a = -5", (N, F, F, E, E, E, E)),
        ("a = -2147483648", (N, F, F, E, F, E, E)),
        ("-a = 5", (N, N, N, N, N, N, N)),
        ("-a IS NULL", (T, T, T, T, T, T, T)),
        ("a = 1.0 OR TRUE", (T, T, T, T, T, E, E)),
        ("TRUE OR a = 1", (T, T, T, T, T, T, T)),
        ("FALSE AND a = 1", (F, F, F, F, F, F, F)),
    ],
)
def test_one_property(text: str, results: tuple[str, ...]) -> None:
    given = ("5", "6", "5.0", "3000000000", "x", "true")
    assert (value(text), *(value(text, a=a) for a in given)) == results


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("text", "properties", "expected"),
    [
        ("a = b", {}, T),
        ("a = b", {"a": "1"}, F),
        ("a = b", {"b": "1"}, N),
        ("a = b", {"a": "1", "b": "1.0"}, F),
        ("a = b", {"a": "1", "b": "1"}, T),
        ("a < b", {"a": "9", "b": "10"}, T),
        ("a < b", {"a": "9"}, N),
        ("a < b", {"b": "9"}, N),
        ("a < b", {"a": "x", "b": "10"}, E),
        ("a <= b", {"a": "-0.0", "b": "0.0"}, T),
        ("a >= b", {"a": "-0.0", "b": "0.0"}, F),
        ("a > b", {"a": "NaN", "b": "Infinity"}, T),
        ("a > 1.0", {"a": "NaN"}, T),
        ("(a = 1) = TRUE", {"a": "1"}, T),
        ("(a = 1) = TRUE", {}, N),
        ("(a = 1) = b", {"a": "1", "b": "true"}, E),
        ("b = (a = 1)", {"a": "1", "b": "True"}, T),
        ("(a = 1) = 5", {"a": "1"}, F),
        ("5 = (a = 1)", {"a": "1"}, F),
        ("1 = 1.0", {}, T),
        ("1 = 3000000000", {}, F),
        ("3000000000 > 1", {}, T),
        ("1 < 1.5", {}, T),
        ("2 > 1.5", {}, T),
        ("'a' = 'b'", {}, F),
        ("'b' = 'a'", {}, F),
        ("'a' = 'a'", {}, T),
        ("'x' = 5", {}, E),
        ("'5' = 5", {}, T),
        ("5 = '5'", {}, T),
        ("1 = TRUE", {}, F),
        ("TRUE = TRUE", {}, T),
        ("TRUE = FALSE", {}, F),
        ("-'x' IS NULL", {}, T),
        ("- -5 = 5", {}, T),
        ("-(a = 1) IS NULL", {"a": "1"}, T),
        ("-(a = 1) IS NULL", {"a": "x"}, E),
        ("-5.5 < -5", {}, T),
        ("'abc' CONTAINS 'b'", {}, T),
        ("5 CONTAINS 'b'", {}, F),
        ("(a = 1) CONTAINS 'x'", {"a": "x"}, E),
        ("NULL", {}, N),
        ("NOT NULL", {}, N),
        ("a IS NULL IS NULL", {}, F),
    ],
)
def test_forms_of_comparison(text: str, properties: dict[str, str], expected: str) -> None:
    assert value(text, **properties) == expected


@pytest.mark.proves("broker:14.2")
def test_three_valued_logic() -> None:
    word = {T: "TRUE", F: "FALSE", N: "NULL"}
    both = {(F, T): F, (F, N): F, (F, F): F, (T, T): T, (T, N): N, (N, N): N}
    either = {(F, T): T, (F, N): N, (F, F): F, (T, T): T, (T, N): T, (N, N): N}
    for left in word:
        for right in word:
            key = (left, right) if (left, right) in both else (right, left)
            pair = f"{word[left]} {{}} {word[right]}"
            assert value(pair.format("AND")) == both[key]
            assert value(pair.format("OR")) == either[key]
            three = f"{pair} {{}} {word[right]}"
            assert value(three.format("AND", "AND")) == both[key]
            assert value(three.format("OR", "OR")) == either[key]
    assert [value(f"NOT {word[one]}") for one in (T, F, N)] == [F, T, N]


@pytest.mark.proves("broker:14.2")
def test_large_numbers_stay_large_when_they_are_negated() -> None:
    assert value("a = -3000000000", a="-3000000000") == T
    assert value("a = -3000000000", a="3000000000") == F
    assert value("a > -3000000000", a="-2999999999") == T
    assert value("-3000000000 <= a", a="-3000000001") == F
    assert value("a = - -3000000000", a="3000000000") == T
    assert value("a = -5", a="-3000000000") == E, "read as a small one"


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("left", "right", "order"),
    [
        *(
            (True, True, 0),
            (True, False, 1),
            (False, True, -1),
            (True, 5, -1),
            (5, True, -1),
            (5.5, False, -1),
        ),
        *(("true", True, 0), ("TRUE", False, 1), ("yes", True, -1), ("yes", False, 0)),
        *(("a", "b", -1), ("b", "a", 1), ("a", "a", 0), ("10", "9", -1)),
        *(("5", 5, 0), ("4", 5, -1), (5, "4", 1), ("5", 5.5, -1), (5.5, "5.5", 0), (5.5, "5", 1)),
        *(("3000000000", Long(3000000000), 0), (Long(3000000000), "3000000001", -1)),
        *((5, 5.0, 0), (5.0, 6, -1), (7, 5.5, 1), (4, 5, -1), (5, 5, 0), (6, 5, 1)),
        *((2**53 + 1, 2.0**53, 0), (2.0**53, 2**53 + 1, 0)),
    ],
)
def test_values_have_an_order(left: Value, right: Value, order: int) -> None:
    """Of other types the left one is below; of an integer and a double both are doubles."""
    assert compare(left, right) == order


def test_a_truth_left_of_a_text_cannot_be_compared() -> None:
    with pytest.raises(EvaluationError):
        compare(True, "true")


def test_long_chains_look_at_the_properties_too() -> None:
    assert value("a = 1 OR b = 2 OR c = 3", a="0", b="0", c="3") == T
    assert value("a = 1 AND b = 2 AND c = 3", a="1", b="2", c="3") == T
    assert value("a = 1 AND b = 2 AND c = 3", a="1", b="2", c="4") == F
    assert value("a = 1 OR b = 2 OR c = 3", a="0", b="0") == N
