from __future__ import annotations

import pytest

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
    Value,
    is_condition,
    is_number,
)

A = Property("a")
YES = Literal(True)


@pytest.mark.parametrize(
    "node",
    [YES, Literal(False), Literal(None), Truth(A), Not(YES), And((YES, YES)), Or((YES, YES)), Equal(A, A),
     IsNull(A), Order("<", A, Literal(1)), In(A, ("x",), False), TextTest("CONTAINS", A, "x", True)],
    ids=lambda node: type(node).__name__,
)  # fmt: skip
def test_conditions_are_true_false_or_null_by_their_form(node: Node) -> None:
    assert is_condition(node)


@pytest.mark.parametrize(
    "node",
    [A, Literal(1), Literal(0), Literal(1.5), Literal(Long(1)), Literal("TRUE"), Literal(""), Negate(A)],
)
def test_values_are_no_conditions(node: Node) -> None:
    assert not is_condition(node)


@pytest.mark.parametrize(
    ("value", "number"),
    [(1, True), (0, True), (Long(1), True), (0.0, True), (True, False), (False, False), (None, False),
     ("1", False)],
)  # fmt: skip
def test_truth_and_text_are_no_numbers(value: Value, number: bool) -> None:
    assert is_number(value) is number


def test_nodes_are_values() -> None:
    assert And((Equal(A, Literal(1)), IsNull(A))) == And((Equal(Property("a"), Literal(1)), IsNull(A)))
    assert len({Literal("x"), Literal("x"), Literal("y")}) == 2
    with pytest.raises(AttributeError):
        A.name = "b"  # type: ignore[misc]
