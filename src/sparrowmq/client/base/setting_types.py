"""Checks that the values of a settings object have the declared types and ranges."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from sparrowmq.core.errors import SettingsError, SparrowError

Check = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The smallest and largest value of a setting, beside its type: `Annotated[int, ValueRange(1, 20)]`."""

    low: float
    high: float
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.low:.15g} to {self.high:.15g}{self.unit and f' {self.unit}'}"

    def problem(self, name: str, value: float) -> SettingsError | None:
        """What is wrong with a value; None if it is in the range."""
        if self.low <= value <= self.high:
            return None
        limit = self.low if value < self.low else self.high
        return SettingsError(f"{name}={value!r} is out of range: must be {self}", name, value, limit=limit)


def check_settings(settings: Any, conflicts: Callable[[], Iterable[SparrowError]]) -> None:
    """Raise one error with all problems: fields whose values do not have the declared type, range or choice,
    and `conflicts`, which are looked for when all types are right. A single problem is raised as it is.

    Integers are accepted for floats; True and False are not numbers. Elements of sequences are checked,
    members of other containers are not. Values that `repr` hides are not shown.
    """
    rows = [(row, getattr(settings, row.name)) for row in _rows(settings.__class__)]
    problems: list[SparrowError] = [
        problem for row, value in rows if (problem := row.problem(value)) is not None
    ]
    if all(row.check(value) for row, value in rows):
        problems += conflicts()
    if len(problems) == 1:
        raise problems[0]
    if problems:
        first = next((one for one in problems if isinstance(one, SettingsError)), SettingsError(""))
        text = "\n".join(map(str, problems))
        raise SettingsError(text, first.setting, first.value, limit=first.limit, other=first.other)


@dataclass(frozen=True, slots=True)
class _Row:
    """What is declared about one field."""

    name: str
    shown: bool
    hint: Any
    range: ValueRange | None
    check: Check

    def problem(self, value: Any) -> SettingsError | None:
        """What is wrong with a value; None if nothing is."""
        if not self.check(value):
            given = f"{self.name}={value!r}" if self.shown else self.name
            text = f"{given} is of type {type(value).__name__}; must be {_words(self.hint)}"
            return SettingsError(text, self.name, value if self.shown else None)
        if self.range is not None and value is not None:
            return self.range.problem(self.name, value)
        choices = choices_of(self.hint)
        if choices and isinstance(value, str) and value not in choices:
            known = " or ".join([*map(repr, choices), *map(_words, _other_types(self.hint))])
            return SettingsError(f"{self.name}={value!r} is unknown; choose {known}", self.name, value)
        return None


def choices_of(hint: Any) -> tuple[str, ...]:
    """The allowed texts; empty where any text is allowed, or none."""
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(choice for part in get_args(hint) for choice in choices_of(part))
    return ()


def _other_types(hint: Any) -> list[Any]:
    """The members of a union that are not choices."""
    return (
        [part for part in get_args(hint) if not choices_of(part)] if get_origin(hint) is not Literal else []
    )


def declared(settings_class: type) -> Mapping[str, tuple[Any, ValueRange | None]]:
    """The type and the range of each field."""
    return {row.name: (row.hint, row.range) for row in _rows(settings_class)}


@cache
def _rows(settings_class: type) -> tuple[_Row, ...]:
    hints = get_type_hints(settings_class, include_extras=True)
    rows = []
    for item in fields(settings_class):
        hint, span = hints[item.name], None
        if get_origin(hint) is Annotated:
            hint, span = get_args(hint)
        rows.append(_Row(item.name, item.repr, hint, span, _check(hint)))
    return tuple(rows)


def _check(hint: Any) -> Check:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        checks = [_check(part) for part in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin is Literal:
        return lambda value: isinstance(value, str)  # `wrong_value` says which are allowed
    if isinstance(origin, type) and issubclass(origin, Sequence | Set) and origin is not tuple:
        kind, element = origin, _check(arguments[0])
        return lambda value: (
            isinstance(value, kind) and not isinstance(value, str | bytes) and all(map(element, value))
        )
    if origin is Callable:
        return callable
    if hint is float:
        return lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    if isinstance(hint, type) and not getattr(hint, "_is_protocol", False):
        return lambda value: isinstance(value, hint)
    return lambda value: True


def _words(hint: Any) -> str:
    """The type in words."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_words, arguments)))
    if origin is Literal:
        return "one of " + ", ".join(map(repr, arguments))
    if origin is Callable:
        return "a function"
    if isinstance(origin, type) and arguments:
        return f"a {origin.__name__.lower()} of {_words(arguments[0])}"
    named = {float: "a number", int: "a whole number", str: "a string", bool: "True or False"}
    if hint is types.NoneType:
        return "None"
    return named.get(hint, getattr(hint, "__name__", str(hint)))
