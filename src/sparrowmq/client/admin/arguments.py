"""The types of the arguments of `Admin`'s calls, checked in one place by their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final

from sparrowmq.core.errors import InvalidNameError, SettingsError
from sparrowmq.core.message import MessageQueue

_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "MessageQueue": (MessageQueue,),
    "None": (type(None),),
}
_WORDS: Final = {"int": "a whole number", "float": "a number", "bool": "True or False"}


def checked(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call`, with arguments of wrong types refused: `InvalidNameError`, or `SettingsError` where no text is
    due. Only arguments whose annotation has nothing but simple types are checked.
    """
    signature = inspect.signature(call)
    wanted = {
        name: one.annotation.split(" | ")
        for name, one in signature.parameters.items()
        if isinstance(one.annotation, str) and set(one.annotation.split(" | ")) <= _KINDS.keys()
    }

    @wraps(call)
    def check(*args: Any, **options: Any) -> Any:
        try:
            given = signature.bind(*args, **options).arguments
        except TypeError:
            return call(*args, **options)  # its own error has its name
        for name, value in given.items():
            names = wanted.get(name, [])
            if not names or any(isinstance(value, _KINDS[one]) for one in names):
                continue
            kind = type(value).__name__  # its value could be a password
            if names[0] == "str":
                raise InvalidNameError(f"the {name} must be text, not {kind}", what=name)
            allowed = _WORDS.get(names[0], f"a {names[0]}")
            raise SettingsError(f"{name} is of type {kind}; must be {allowed}", name, value)
        return call(*args, **options)

    return check


class CheckedCalls(type):
    """For classes whose public methods refuse arguments of wrong types before they begin."""

    def __new__(cls, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> CheckedCalls:
        """The class, with its public methods `checked`."""
        found = {
            key: checked(value) if inspect.isfunction(value) and not key.startswith("_") else value
            for key, value in members.items()
        }
        return super().__new__(cls, name, bases, found)
