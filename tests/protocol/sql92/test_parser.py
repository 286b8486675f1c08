"""From text to tree, and what is refused with place and token."""

from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.protocol.sql92 import EXPRESSION_CHARS_MAX, NESTING_MAX, parse
from sparrowmq.protocol.sql92.lexer import TOKENS_MAX
from sparrowmq.protocol.sql92.parser import CONTAINED_CHARS_MAX, CONTAINED_CHARS_MIN
from sparrowmq.protocol.sql92.syntax import (
    And,
    Equal,
    In,
    IsNull,
    Literal,
    Long,
    Negate,
    Node,
    Not,
    Or,
    Order,
    Property,
    TextTest,
    Truth,
)

A, B = Property("a"), Property("b")
ONE, TWO = Literal(1), Literal(2)


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", Truth(A)),
        ("TRUE", Literal(True)),
        ("null", Literal(None)),
        ("a = 1", Equal(A, ONE)),
        ("a <> 'x'", Not(Equal(A, Literal("x")))),
        ("a = 'it''s'''", Equal(A, Literal("it's'"))),
        ("a IS NULL", IsNull(A)),
        ("a IS NOT NULL", Not(IsNull(A))),
        ("a >= 1", Order(">=", A, ONE)),
        ("a BETWEEN 1 AND 2", And((Order(">=", A, ONE), Order("<=", A, TWO)))),
        ("a BETWEEN 1 AND 1", And((Order(">=", A, ONE), Order("<=", A, ONE)))),
        ("a BETWEEN 1.5 AND 1.5", And((Order(">=", A, Literal(1.5)), Order("<=", A, Literal(1.5))))),
        (  # above it as numbers, not as doubles
            "a BETWEEN 9007199254740993 AND 9007199254740992.0",
            And((Order(">=", A, Literal(2**53 + 1)), Order("<=", A, Literal(2.0**53)))),
        ),
        ("a NOT BETWEEN 1 AND 2", Or((Order("<", A, ONE), Order(">", A, TWO)))),
        ("a NOT BETWEEN 2 AND 1", Or((Order("<", A, TWO), Order(">", A, ONE)))),
        ("a BETWEEN -1 AND -2", And((Order(">=", A, Negate(ONE)), Order("<=", A, Negate(TWO))))),
        ("a IN ('x', 'y')", In(A, ("x", "y"), False)),
        ("(a) NOT IN ('x')", In(A, ("x",), True)),
        ("a CONTAINS 'x'", TextTest("CONTAINS", A, "x", False)),
        ("a NOT StartsWith 'x'", TextTest("STARTSWITH", A, "x", True)),
        ("a endswith ''", TextTest("ENDSWITH", A, "", False)),
        ("a OR b AND a", Or((Truth(A), And((Truth(B), Truth(A)))))),
        ("(a OR b) AND a", And((Or((Truth(A), Truth(B))), Truth(A)))),
        ("a OR b OR a", Or((Truth(A), Truth(B), Truth(A)))),
        ("NOT a = 1", Equal(Not(Truth(A)), ONE)),
        ("a = b = TRUE", Equal(Equal(A, B), Literal(True))),
        ("1 = TRUE", Equal(ONE, Literal(True))),
        ("a > 1 = b", Equal(Order(">", A, ONE), B)),
        ("+a = --1", Equal(A, Negate(Negate(ONE)))),
        ("a = 2147483647", Equal(A, Literal(2147483647))),
        ("a = 9223372036854775807", Equal(A, Literal(Long(9223372036854775807)))),
        ("a = 5L", Equal(A, Literal(5))),
        ("a = 5l", Equal(A, Literal(5))),
        ("a = 9223372036854775807L", Equal(A, Literal(Long(9223372036854775807)))),
        ("a = 1.5e1", Equal(A, Literal(15.0))),
    ],
)
def test_trees(text: str, tree: Node) -> None:
    assert parse(text) == tree
    assert parse(f" ( {text} ) /* c */ ", whole=True) == tree


def test_an_integer_outside_32_bits_is_a_long() -> None:
    small, large = parse("a = 2147483647"), parse("a = 2147483648")
    assert isinstance(small, Equal) and isinstance(small.right, Literal)
    assert isinstance(large, Equal) and isinstance(large.right, Literal)
    assert (type(small.right.value), type(large.right.value)) == (int, Long)


@pytest.mark.proves("broker:14.2")
@pytest.mark.parametrize(
    ("text", "position", "token", "problem"),
    [
        ("", 0, "", "expected a property, a literal or (, found the end"),
        ("a >", 3, "", "found the end"),
        ("a = = 1", 4, "=", "found '='"),
        ("a AND", 5, "", "found the end"),
        ("1", 0, "1", "1 is not a condition"),
        ("a = 1 AND 'x'", 10, "'x'", "'x' is not a condition"),
        ("'x' OR a", 0, "'x'", "'x' is not a condition"),
        ("a AND -b", 6, "-", "a negated value is not a condition"),
        ("5 AND a", 0, "5", "5 is not a condition"),
        ("a OR 5", 5, "5", "5 is not a condition"),
        ("a OR b OR 5 OR a", 10, "5", "5 is not a condition"),
        ("NOT 5", 4, "5", "5 is not a condition"),
        ("(a", 2, "", "expected ), found the end"),
        ("a IS 5", 5, "5", "expected NULL, found '5'"),
        ("a IS NOT b", 9, "b", "expected NULL"),
        ("a = 1 NOT b", 10, "b", "one of BETWEEN, IN"),
        ("a IN ()", 6, ")", "expected a string"),
        ("a IN (1)", 6, "1", "expected a string"),
        ("a IN ('x' 'y')", 10, "'y'", "expected )"),
        ("a IN 'x'", 5, "'x'", "expected ("),
        ("5 IN ('x')", 2, "IN", "IN needs a property"),
        ("a CONTAINS b", 11, "b", "expected a string"),
        ("a BETWEEN 1 OR 2", 12, "OR", "expected AND"),
        ("a BETWEEN 2 AND 1", 2, "BETWEEN", "is empty"),
        ("a BETWEEN 1.5 AND 1", 2, "BETWEEN", "is empty"),
        ("a BETWEEN 'x' AND 'y'", 2, "BETWEEN", "compares numbers and properties, not 'x'"),
        ("a BETWEEN 1 AND NULL", 2, "BETWEEN", "not NULL"),
        ("a NOT BETWEEN 'x' AND 2", 6, "BETWEEN", "compares numbers and properties, not 'x'"),
        ("a NOT BETWEEN 1 AND 'y'", 6, "BETWEEN", "compares numbers and properties, not 'y'"),
        ("a > 'x'", 2, ">", "not 'x'"),
        ("a > 1 > 2", 6, ">", "not a condition"),
        ("TRUE < a", 5, "<", "not TRUE"),
        ("(a = 1) > 2", 8, ">", "not a condition"),
        ("a = NULL", 2, "=", "NULL cannot be compared by '='; use IS NULL"),
        ("NULL <> a", 5, "<>", "use IS NULL"),
        ("FALSE = 1", 6, "=", "FALSE cannot be compared with 1"),
        ("a = 9223372036854775808", 4, "9223372036854775808", "above the largest integer"),
        ("a = " + "9" * 30, 4, "9" * 30, "above the largest integer"),
        ("a = " + "9" * 5000, 4, "9" * 5000, "above the largest integer"),
        ("a = 0.0", 4, "0.0", "below the smallest positive double; write 0"),
        ("a = 1e999", 4, "1e999", "above the largest double"),
    ],
)
def test_errors_name_position_and_token(text: str, position: int, token: str, problem: str) -> None:
    with pytest.raises(InvalidExpressionError) as caught:
        parse(text)
    assert problem in str(caught.value)
    assert f"column {position + 1}:" in str(caught.value)
    assert (caught.value.position, caught.value.token) == (position, token)


@pytest.mark.proves("broker:14.2")
def test_what_follows_a_complete_expression_is_ignored_as_by_the_reference_but_for_a_strict_reader() -> None:
    for text, position, token in (("a = 1 b = 2", 6, "b"), ("a = 1)", 5, ")"), ("a = 007", 5, "0")):
        assert isinstance(parse(text), Equal)
        with pytest.raises(InvalidExpressionError, match="is AND or OR missing") as caught:
            parse(text, whole=True)
        assert (caught.value.position, caught.value.token) == (position, token)
    assert parse("a = 1 -- the end", whole=True) == parse("a = 1")
    with pytest.raises(InvalidExpressionError, check=about(position=6, token="@")):
        parse("a = 1 @")
    assert parse("a = 1 b @") == parse("a = 1")


def deep(count: int) -> str:
    return "(" * count + "a = 1" + ")" * count


@pytest.mark.parametrize(
    ("fits", "too_much", "problem"),
    [
        (deep(NESTING_MAX), deep(NESTING_MAX + 1), "nested deeper than 100 levels"),
        ("NOT " * NESTING_MAX + "a", "NOT " * (NESTING_MAX + 1) + "a", "nested deeper"),
        ("a" + " = b" * (NESTING_MAX + 1), "a" + " = b" * (NESTING_MAX + 2), "comparisons of comparisons"),
        (
            "a" + " CONTAINS 'x'" * (NESTING_MAX + 1),
            "a" + " CONTAINS 'x'" * (NESTING_MAX + 2),
            "comparisons of comparisons",
        ),
        (f"(a) AND {deep(NESTING_MAX)}", f"(a) AND {deep(NESTING_MAX + 1)}", "nested deeper"),
        (
            "a " * 3 + " " * (EXPRESSION_CHARS_MAX - 6),
            "a" * (EXPRESSION_CHARS_MAX + 1),
            "characters, the limit",
        ),
        ("a OR " * (TOKENS_MAX // 2 - 1) + "NOT a", "a OR " * (TOKENS_MAX // 2) + "a", "words and signs"),
        (
            " OR ".join(["p CONTAINS 'x'"] * (CONTAINED_CHARS_MAX // CONTAINED_CHARS_MIN)),
            " OR ".join(["p CONTAINS 'x'"] * (CONTAINED_CHARS_MAX // CONTAINED_CHARS_MIN + 1)),
            "texts of its CONTAINS have more than",
        ),
        (
            f"p CONTAINS '{'x' * CONTAINED_CHARS_MAX}'",
            f"p CONTAINS '{'x' * (CONTAINED_CHARS_MAX + 1)}'",
            "texts of its CONTAINS have more than",
        ),
    ],
)
def test_depth_and_length_are_bounded(fits: str, too_much: str, problem: str) -> None:
    parse(fits)
    with pytest.raises(InvalidExpressionError, match=problem):
        parse(too_much)


@pytest.mark.parametrize("term", ["(a = 1)", "NOT a", "a = -1", "a = b = TRUE"])
def test_what_stands_side_by_side_is_no_depth(term: str) -> None:
    tree = parse(" AND ".join([term] * (NESTING_MAX - 1)), whole=True)
    assert isinstance(tree, And) and len(tree.terms) == NESTING_MAX - 1
    if "= b =" not in term:  # comparisons of comparisons are counted in all
        tree = parse(" AND ".join([term] * (2 * NESTING_MAX)), whole=True)
        assert isinstance(tree, And) and len(tree.terms) == 2 * NESTING_MAX


def test_a_long_chain_is_no_depth_and_a_long_text_is_cut_in_the_message() -> None:
    chain = " OR ".join(f"a{number} = {number}" for number in range(400))
    tree = parse(chain, whole=True)
    assert isinstance(tree, Or) and len(tree.terms) == 400
    with pytest.raises(InvalidExpressionError) as caught:
        parse(chain + " OR")
    assert len(str(caught.value)) < 250
