"""The parser of SQL92 filters, with the checks that RocketMQ makes before it evaluates (broker:14.2).

The grammar, lowest precedence first; each level repeats from left to right:

    or          and { OR and }
    and         equality { AND equality }
    equality    comparison { = comparison | <> comparison | IS [NOT] NULL }
    comparison  unary { (> | >= | < | <=) unary
                      | [NOT] BETWEEN unary AND unary | [NOT] IN ( string {, string} )
                      | [NOT] CONTAINS string | [NOT] STARTSWITH string | [NOT] ENDSWITH string }
    unary       + unary | - unary | NOT unary | primary
    primary     literal | property | ( or )
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.protocol.sql92.lexer import END, FLOAT, INTEGER, NAME, STRING, Lexer, Token, refuse
from sparrowmq.protocol.sql92.syntax import (
    INT_MAX,
    LONG_MAX,
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

EXPRESSION_CHARS_MAX: Final = 32 * 1024
"""Longer expressions are refused; see also `lexer.TOKENS_MAX`."""

CONTAINED_CHARS_MAX: Final = 2048
CONTAINED_CHARS_MIN: Final = 16
"""Limit of the total length of all CONTAINS texts of an expression, each counted as at least 16 characters.
Each is searched in a property of up to 32 KB; at the limit that takes some milliseconds per message.
"""

NESTING_MAX: Final = 100
"""Maximum nesting of parentheses, signs and comparisons. The reference is limited only by its stack."""

_ORDERS: Final = (">", ">=", "<", "<=")
_TEXT_TESTS: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_NEGATABLE: Final = ("BETWEEN", "IN", *_TEXT_TESTS)


def parse(text: str, *, whole: bool = False) -> Node:
    """The tree of an expression.

    The reference stops reading where an expression is complete and ignores what follows (`a = 1 b = 2` means
    `a = 1`); with `whole` that is an error. Raises `InvalidExpressionError` with position and token.
    """
    if len(text) > EXPRESSION_CHARS_MAX:
        raise refuse(
            text,
            EXPRESSION_CHARS_MAX,
            "",
            f"it has {len(text)} characters, the limit is {EXPRESSION_CHARS_MAX}; filter by fewer conditions",
        )
    return _Parser(text).parse(whole)


class _Parser:
    def __init__(self, text: str) -> None:
        self._lexer = Lexer(text)
        self._depth = 0
        self._chained = 0
        self._contained = 0

    def parse(self, whole: bool) -> Node:
        start = self._lexer.peek()
        node = self._condition(self._or(), start)
        rest = self._lexer.peek()
        if whole and rest.kind != END and not self._lexer.text.startswith("--", rest.position):
            raise self._lexer.error(rest, f"{rest} follows a complete expression; is AND or OR missing?")
        return node

    # Levels

    def _or(self) -> Node:
        start = self._lexer.peek()
        terms = [self._and()]
        while self._lexer.peek().kind == "OR":
            self._lexer.take()
            terms[-1] = self._condition(terms[-1], start)
            start = self._lexer.peek()
            terms.append(self._condition(self._and(), start))
        return terms[0] if len(terms) == 1 else Or(tuple(terms))

    def _and(self) -> Node:
        start = self._lexer.peek()
        terms = [self._equality()]
        while self._lexer.peek().kind == "AND":
            self._lexer.take()
            terms[-1] = self._condition(terms[-1], start)
            start = self._lexer.peek()
            terms.append(self._condition(self._equality(), start))
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    def _equality(self) -> Node:
        left = self._comparison()
        while (token := self._lexer.peek()).kind in ("=", "<>", "IS"):
            self._lexer.take()
            self._chain(left, token)
            if token.kind == "IS":
                negated = self._lexer.peek().kind == "NOT"
                if negated:
                    self._lexer.take()
                self._expect("NULL")
                left = IsNull(left)
            else:
                negated = token.kind == "<>"
                right = self._comparison()
                self._check_equal(left, right, token)
                left = Equal(left, right)
            left = Not(left) if negated else left
        return left

    def _comparison(self) -> Node:
        left = self._unary()
        while (token := self._lexer.peek()).kind in (*_ORDERS, "NOT", *_NEGATABLE):
            self._lexer.take()
            self._chain(left, token)
            if token.kind in _ORDERS:
                left = self._order(token, left, self._unary())
                continue
            negated = token.kind == "NOT"
            if negated:
                token = self._lexer.take()
                if token.kind not in _NEGATABLE:
                    raise self._unexpected(token, f"one of {', '.join(_NEGATABLE)} after NOT")
            if token.kind == "BETWEEN":
                left = self._between(token, left, negated)
            elif token.kind == "IN":
                left = self._in(token, left, negated)
            else:
                left = self._text_test(token, left, negated)
        return left

    def _unary(self) -> Node:
        token = self._lexer.peek()
        if token.kind not in ("+", "-", "NOT"):
            return self._primary()
        self._lexer.take()
        start = self._lexer.peek()
        operand = self._nested(token, self._unary)
        if token.kind == "+":
            return operand
        return Negate(operand) if token.kind == "-" else Not(self._condition(operand, start))

    def _primary(self) -> Node:
        token = self._lexer.take()
        if token.kind == NAME:
            return Property(token.text)
        if token.kind == "(":
            node = self._nested(token, self._or)
            self._expect(")")
            return node
        return Literal(self._literal(token))

    # Parts

    def _literal(self, token: Token) -> Value:
        if token.kind == STRING:
            return _unquoted(token.text)
        if token.kind == INTEGER:
            number = int(token.text.rstrip("lL")) if len(token.text) <= 20 else LONG_MAX + 1
            if number > LONG_MAX:
                raise self._lexer.error(token, f"{token} is above the largest integer, {LONG_MAX}")
            return number if number <= INT_MAX else Long(number)
        if token.kind == FLOAT:
            value = float(token.text)
            if value == 0.0:
                raise self._lexer.error(token, f"{token} is below the smallest positive double; write 0")
            if value == float("inf"):
                raise self._lexer.error(token, f"{token} is above the largest double")
            return value
        if token.kind in ("TRUE", "FALSE", "NULL"):
            return None if token.kind == "NULL" else token.kind == "TRUE"
        raise self._unexpected(token, "a property, a literal or (")

    def _string(self) -> str:
        return _unquoted(self._expect(STRING).text)

    def _in(self, token: Token, left: Node, negated: bool) -> Node:
        self._expect("(")
        values = [self._string()]
        while self._lexer.peek().kind == ",":
            self._lexer.take()
            values.append(self._string())
        self._expect(")")
        if not isinstance(left, Property):
            raise self._lexer.error(token, "IN needs a property on its left side; put NOT directly before IN")
        return In(left, tuple(values), negated)

    def _text_test(self, token: Token, left: Node, negated: bool) -> Node:
        text = self._string()
        if token.kind == "CONTAINS":
            self._contained += max(len(text), CONTAINED_CHARS_MIN)
            if self._contained > CONTAINED_CHARS_MAX:
                raise self._lexer.error(
                    token,
                    f"the texts of its CONTAINS have more than {CONTAINED_CHARS_MAX} characters, each "
                    f"counted as {CONTAINED_CHARS_MIN} or more; filter by fewer or shorter ones",
                )
        return TextTest(token.kind, left, text, negated)

    def _between(self, token: Token, left: Node, negated: bool) -> Node:
        low = self._unary()
        self._expect("AND")
        high = self._unary()
        if negated:
            return Or((self._order(token, left, low, "<"), self._order(token, left, high, ">")))
        parts = (self._order(token, left, low, ">="), self._order(token, left, high, "<="))
        if isinstance(low, Literal) and isinstance(high, Literal) and _is_above(low.value, high.value):
            raise self._lexer.error(
                token, f"BETWEEN {low.value} AND {high.value} is empty; write the smaller value first"
            )
        return And(parts)

    def _order(self, token: Token, left: Node, right: Node, operator: str = "") -> Node:
        for side in (left, right):
            if is_condition(side) or (isinstance(side, Literal) and not is_number(side.value)):
                shown = _shown(side)
                raise self._lexer.error(token, f"{token} compares numbers and properties, not {shown}")
        return Order(operator or token.kind, left, right)

    def _check_equal(self, left: Node, right: Node, token: Token) -> None:
        for side in (left, right):
            if isinstance(side, Literal) and side.value is None:
                raise self._lexer.error(token, f"NULL cannot be compared by {token}; use IS NULL")
        if (
            isinstance(left, Literal)
            and isinstance(right, Literal)
            and is_condition(left)
            and not is_condition(right)
        ):
            raise self._lexer.error(token, f"{_shown(left)} cannot be compared with {_shown(right)}")

    def _condition(self, node: Node, start: Token) -> Node:
        """The node, which must be a condition."""
        if isinstance(node, Property):
            return Truth(node)
        if not is_condition(node):
            raise self._lexer.error(start, f"{_shown(node)} is not a condition: it is neither true nor false")
        return node

    # Tools

    def _nested(self, token: Token, level: Callable[[], Node]) -> Node:
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise self._lexer.error(token, f"nested deeper than {NESTING_MAX} levels")
        node = level()
        self._depth -= 1
        return node

    def _chain(self, left: Node, token: Token) -> None:
        """Count comparisons whose left side is a comparison: they nest like parentheses."""
        if is_condition(left):
            self._chained += 1
            if self._chained > NESTING_MAX:
                raise self._lexer.error(token, f"more than {NESTING_MAX} comparisons of comparisons")

    def _expect(self, kind: str) -> Token:
        token = self._lexer.take()
        if token.kind != kind:
            raise self._unexpected(token, "a string" if kind == STRING else kind)
        return token

    def _unexpected(self, token: Token, wanted: str) -> InvalidExpressionError:
        return self._lexer.error(token, f"expected {wanted}, found {token}")


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")


def _is_above(low: Value, high: Value) -> bool:
    """Whether one literal number is above another, compared as Java does: with a double as doubles."""
    assert isinstance(low, int | float) and isinstance(high, int | float)
    if isinstance(low, float) or isinstance(high, float):
        return float(low) > float(high)
    return low > high


def _shown(node: Node) -> str:
    if isinstance(node, Literal):
        if node.value is None or isinstance(node.value, bool):
            return str(node.value).upper() if node.value is not None else "NULL"
        return repr(node.value)
    return "a condition" if is_condition(node) else "a negated value"
