"""Closures that compute a parsed filter, with Java's types and three-valued logic (broker:14.2).

A closure takes `get`, which returns the text of a property or None. It returns a string, number or boolean,
or None for NULL. Where Java's evaluation raises, it raises `EvaluationError`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final, cast

from sparrowmq.protocol.sql92.numbers import (
    EvaluationError,
    compare_doubles,
    to_double,
    to_int,
    to_long,
)
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
    is_number,
)

Get = Callable[[str], str | None]
Compute = Callable[[Get], Value]

_OPERATORS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_TEXT_TESTS: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def build(node: Node) -> Compute:
    """The closure of a tree."""
    match node:
        case Literal(value):
            return lambda get: value
        case Property(name):
            return lambda get: get(name)
        case Negate():
            return _negate(node)
        case Truth(Property(name)):
            return lambda get: None if get(name) is None else False
        case Not(operand):
            return _not(build(operand))
        case And(terms):
            return _chain(tuple(map(build, terms)), decisive=False)
        case Or(terms):
            return _chain(tuple(map(build, terms)), decisive=True)
        case Equal(left, right):
            return _equal(left, right)
        case IsNull(operand):
            return _is_null(build(operand))
        case Order(name, left, right):
            return _order(name, left, right)
        case In(Property(name), values, negated):
            return _in(name, frozenset(values), negated)
        case TextTest(keyword, operand, text, negated):
            return _text_test(keyword, build(operand), text, negated)


def _negated(value: Value) -> Value:
    """Minus a value; NULL unless it is a number. Longs stay longs: `-2147483648` is one."""
    if not is_number(value):
        return None
    number = cast("int | float", value)
    return Long(-number) if isinstance(number, Long) else -number


def _constant(node: Node) -> int | float | None:
    """The number a node always is; None for anything else."""
    if isinstance(node, Literal) and is_number(node.value):
        return cast("int | float", node.value)
    if isinstance(node, Negate):
        value = _constant(node.operand)
        return None if value is None else cast("int | float", _negated(value))
    return None


def _negate(node: Negate) -> Compute:
    value = _constant(node)
    if value is not None:
        return lambda get: value
    operand = build(node.operand)
    return lambda get: _negated(operand(get))


def _not(operand: Compute) -> Compute:
    def compute(get: Get) -> Value:
        value = operand(get)
        return None if value is None else not value

    return compute


def _chain(terms: tuple[Compute, ...], *, decisive: bool) -> Compute:
    """AND (`decisive` False) or OR (True): the first decisive term is the result, otherwise any NULL makes it
    NULL.
    """

    def two(get: Get) -> Value:
        left = first(get)
        if left is decisive:
            return decisive
        right = second(get)
        if right is decisive:
            return decisive
        return None if left is None or right is None else not decisive

    def many(get: Get) -> Value:
        unknown = False
        for term in terms:
            value = term(get)
            if value is decisive:
                return decisive
            if value is None:
                unknown = True
        return None if unknown else not decisive

    if len(terms) != 2:
        return many
    first, second = terms
    return two


def _is_null(operand: Compute) -> Compute:
    """TRUE for NULL; for the rest FALSE, as any comparison with a missing right side."""
    return lambda get: operand(get) is None


# Comparing


def _reader(number: float) -> Callable[[str], float]:
    """The function that converts a text for comparison with `number`."""
    if isinstance(number, float):
        return to_double
    return to_long if isinstance(number, Long) else to_int


def compare(left: Value, right: Value) -> int:
    """Below 0, 0 or above 0, as in the reference, for two values that are not NULL.

    Texts are converted to the other side's type. Incompatible types are unequal, and the left one is smaller.
    Raises `EvaluationError` for a text that cannot be converted.
    """
    if isinstance(left, bool):
        if isinstance(right, str):
            raise EvaluationError("a boolean left of a text")
        return int(left) - int(right) if isinstance(right, bool) else -1
    if isinstance(right, bool):
        if not isinstance(left, str):
            return -1
        return (len(left) == len("true") and left.lower() == "true") - int(right)
    if isinstance(left, str):
        if isinstance(right, str):
            return (left > right) - (left < right)
        left = _reader(cast("float", right))(left)
    elif isinstance(right, str):
        right = _reader(cast("float", left))(right)
    if isinstance(left, float) or isinstance(right, float):
        return compare_doubles(float(cast("float", left)), float(cast("float", right)))
    return (cast("int", left) > cast("int", right)) - (cast("int", left) < cast("int", right))


def _equal(left: Node, right: Node) -> Compute:
    if isinstance(left, Property) and isinstance(right, Literal):
        return _equal_literal(left.name, right.value)
    first, second = build(left), build(right)

    def compute(get: Get) -> Value:
        one, other = first(get), second(get)
        if one is None:
            return True if other is None else None
        return False if other is None else compare(one, other) == 0

    return compute


def _equal_literal(name: str, value: Value) -> Compute:
    """A property on the left, a literal on the right: the usual form."""
    if isinstance(value, str):

        def same_text(get: Get) -> Value:
            text = get(name)
            return None if text is None else text == value

        return same_text

    def same(get: Get) -> Value:
        text = get(name)
        return None if text is None else compare(text, value) == 0

    return same


def _order(name: str, left: Node, right: Node) -> Compute:
    number = _constant(right)
    if isinstance(left, Property) and number is not None:
        return _order_constant(name, left.name, number)
    number = _constant(left)
    if isinstance(right, Property) and number is not None:
        return _order_constant(_MIRRORED[name], right.name, number)
    first, second = build(left), build(right)
    holds = _OPERATORS[name]

    def compute(get: Get) -> Value:
        one = first(get)
        if one is None:
            return None
        other = second(get)
        if other is None:
            return None
        if isinstance(one, str):  # comparison of two properties: other texts were refused before
            one, other = to_double(one), to_double(cast("str", other))
        return bool(holds(compare(one, other), 0))

    return compute


def _order_constant(name: str, property_name: str, number: float) -> Compute:
    holds, read = _OPERATORS[name], _reader(number)
    if isinstance(number, float):

        def doubles(get: Get) -> Value:
            text = get(property_name)
            return None if text is None else bool(holds(compare_doubles(to_double(text), number), 0))

        return doubles

    def integers(get: Get) -> Value:
        text = get(property_name)
        return None if text is None else bool(holds(read(text), number))

    return integers


# Texts


def _in(name: str, values: frozenset[str], negated: bool) -> Compute:
    def compute(get: Get) -> Value:
        text = get(name)
        return None if text is None else (text in values) is not negated

    return compute


def _text_test(keyword: str, operand: Compute, wanted: str, negated: bool) -> Compute:
    """FALSE for an empty text and for values that are not text, also in the negated form."""
    test = _TEXT_TESTS[keyword]

    def compute(get: Get) -> Value:
        if not wanted:
            return False
        text = operand(get)
        return test(text, wanted) is not negated if isinstance(text, str) else False

    return compute
