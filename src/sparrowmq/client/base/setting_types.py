"""Checks that the values of a settings object have the declared types."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence, Set
from dataclasses import fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sparrowmq.core.errors import SettingsError

Check = Callable[[Any], bool]


def check_types(settings: Any) -> None:
    """Raises `SettingsError` with every field whose value does not have the declared type.

    Integers are accepted for floats; True and False are not numbers. Elements of sequences are checked,
    members of other containers are not. Values that `repr` hides are not shown.
    """
    problems = [
        f"{name}{f'={value!r}' if shown else ''} is of type {type(value).__name__}; must be {wanted}"
        for name, shown, wanted, check in _checks(settings.__class__)
        if not check(value := getattr(settings, name))
    ]
    if problems:
        raise SettingsError("\n".join(problems))


@cache
def _checks(settings_class: type) -> tuple[tuple[str, bool, str, Check], ...]:
    hints = get_type_hints(settings_class)
    return tuple(
        (item.name, item.repr, _words(hints[item.name]), _check(hints[item.name]))
        for item in fields(settings_class)
    )


def _check(hint: Any) -> Check:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        checks = [_check(part) for part in arguments]
        return lambda value: any(check(value) for check in checks)
    if origin is Literal:
        return lambda value: isinstance(value, str)  # the settings check which values are allowed
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
