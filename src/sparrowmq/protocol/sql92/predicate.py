"""A compiled filter that is applied to messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from sparrowmq.core.bounded import remembered
from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.protocol import properties
from sparrowmq.protocol.sql92.evaluate import build
from sparrowmq.protocol.sql92.numbers import EvaluationError
from sparrowmq.protocol.sql92.parser import CONTAINED_CHARS_MIN, parse
from sparrowmq.protocol.sql92.syntax import Node, Property, TextTest

COMPILED_MAX: Final = 100
LONG_COMPILED_MAX: Final = 16
"""Number of cached expressions, valid or not, as in RocketMQ."""

_FOUND_SINGLY_MAX: Final = 3
"""Up to this number, properties are looked up one by one; otherwise all properties of a message
are decoded.
"""


class Predicate:
    """Evaluates a filter over the properties of a message."""

    def __init__(self, node: Node) -> None:
        self._compute = build(node)
        names, self.nodes, self.contained = _measure(node)
        """The filter's size: its number of nodes, and the characters of the strings it searches for."""
        self.names = tuple(sorted(names))
        """The names of the properties that it reads."""
        self._keys = tuple((name, name.encode()) for name in self.names)
        self._decode_all = len(self.names) > _FOUND_SINGLY_MAX

    def matches(self, values: Mapping[str, str]) -> bool:
        """Whether the filter is TRUE; it is not for FALSE, NULL and an evaluation error."""
        try:
            return self._compute(values.get) is True
        except EvaluationError:
            return False

    def matches_encoded(self, data: bytes) -> bool:
        """The same for a stored property string."""
        if self._decode_all:
            return self.matches(properties.decode(data))
        values = {}
        for name, key in self._keys:
            value = properties.find(data, key)
            if value is not None:
                values[name] = value.decode("utf-8", "replace")
        return self.matches(values)


def _measure(node: Node) -> tuple[set[str], int, int]:
    """The properties and nodes of a tree, and the characters of the strings in its CONTAINS."""
    names: set[str] = set()
    nodes = contained = 0
    waiting: list[Any] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, tuple):
            waiting += part
        elif dataclasses.is_dataclass(part):
            nodes += 1
            if isinstance(part, Property):
                names.add(part.name)
            elif isinstance(part, TextTest) and part.keyword == "CONTAINS":
                contained += max(len(part.text), CONTAINED_CHARS_MIN)
            waiting += (getattr(part, field.name) for field in dataclasses.fields(part))
    return names, nodes, contained


def compile_sql(text: str) -> Predicate:
    """The predicate of an expression as a broker accepts it; cached, errors included.

    Raises `InvalidExpressionError`.
    """
    result = _compiled(text)
    if isinstance(result, InvalidExpressionError):
        raise InvalidExpressionError(str(result), position=result.position, token=result.token)
    return result


@remembered(COMPILED_MAX, long_entries=LONG_COMPILED_MAX)
def _compiled(text: str) -> Predicate | InvalidExpressionError:
    try:
        return Predicate(parse(text))
    except InvalidExpressionError as error:
        return error
