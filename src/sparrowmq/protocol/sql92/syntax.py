"""The tree of a parsed SQL92 filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


class Long(int):
    """A 64-bit integer: a property compared with it is read as Java's `long`, with a plain int as `int`."""


Value = str | bool | int | float | None
"""Values of expressions: text, boolean, numbers (int, `Long`, double) or NULL."""

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as written; numbers are not negative."""

    value: Value


@dataclass(frozen=True, slots=True)
class Property:
    """A property of the message: text, or NULL when it is missing."""

    name: str


@dataclass(frozen=True, slots=True)
class Negate:
    """Minus: negates a number; NULL for anything else."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Truth:
    """A property used as a condition: NULL when it is missing, otherwise FALSE, because texts are not
    booleans.
    """

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """NOT."""

    operand: Node


@dataclass(frozen=True, slots=True)
class And:
    """AND of two or more conditions, from left to right."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """OR of two or more conditions, from left to right."""

    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Equal:
    """`left = right`."""

    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class IsNull:
    """IS NULL."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Order:
    """`left operator right` with `<`, `<=`, `>` or `>=`: numbers only."""

    operator: str
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class In:
    """A property that is one of some texts."""

    operand: Property
    values: tuple[str, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class TextTest:
    """CONTAINS, STARTSWITH or ENDSWITH with a text."""

    keyword: str
    operand: Node
    text: str
    negated: bool


Node = Literal | Property | Negate | Truth | Not | And | Or | Equal | IsNull | Order | In | TextTest

_CONDITIONS: Final = (Truth, Not, And, Or, Equal, IsNull, Order, In, TextTest)


def is_condition(node: Node) -> bool:
    """Whether the node is TRUE, FALSE or NULL by its form; NULL itself counts as one."""
    if isinstance(node, Literal):
        return node.value is None or isinstance(node.value, bool)
    return isinstance(node, _CONDITIONS)


def is_number(value: Value) -> bool:
    """Whether a literal's value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)
