"""A compiled filter, to be asked about messages."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.protocol import properties
from sparrowmq.protocol.sql92.evaluate import build
from sparrowmq.protocol.sql92.numbers import EvaluationError
from sparrowmq.protocol.sql92.parser import parse
from sparrowmq.protocol.sql92.syntax import Node, Property

COMPILED_MAX: Final = 100
"""Expressions, good or bad, that are remembered, as in the reference."""

_FOUND_SINGLY_MAX: Final = 3
"""Up to so many properties are looked up one by one; for more, all of a message are decoded."""


class Predicate:
    """Says of a message's properties whether the filter is TRUE for them."""

    def __init__(self, node: Node) -> None:
        self._compute = build(node)
        self.names = tuple(sorted(_names(node)))
        """The properties it looks at."""
        self._keys = tuple((name, name.encode()) for name in self.names)
        self._decode_all = len(self.names) > _FOUND_SINGLY_MAX

    def matches(self, values: Mapping[str, str]) -> bool:
        """Whether the filter is TRUE; FALSE, NULL and an evaluation error are not."""
        try:
            return self._compute(values.get) is True
        except EvaluationError:
            return False

    def matches_encoded(self, data: bytes) -> bool:
        """The same for a property string as it is stored."""
        if self._decode_all:
            return self.matches(properties.decode(data))
        values = {}
        for name, key in self._keys:
            value = properties.find(data, key)
            if value is not None:
                values[name] = value.decode("utf-8", "replace")
        return self.matches(values)


def _names(node: Node) -> set[str]:
    names: set[str] = set()
    waiting: list[Any] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Property):
            names.add(part.name)
        elif isinstance(part, tuple):
            waiting += part
        elif dataclasses.is_dataclass(part):
            waiting += (getattr(part, field.name) for field in dataclasses.fields(part))
    return names


def compile_sql(text: str) -> Predicate:
    """The predicate of an expression as a broker takes it, remembered with its error.

    Raises `InvalidExpressionError`.
    """
    result = _compiled(text)
    if isinstance(result, InvalidExpressionError):
        raise InvalidExpressionError(str(result), position=result.position, token=result.token)
    return result


@lru_cache(maxsize=COMPILED_MAX)
def _compiled(text: str) -> Predicate | InvalidExpressionError:
    try:
        return Predicate(parse(text))
    except InvalidExpressionError as error:
        return error
