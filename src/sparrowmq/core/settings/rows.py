"""The rows of settings tables: one per name, with its type, bounds and meaning. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.errors import SettingsError

INT_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Setting:
    """One row: the wire name, the attribute, the type and the bounds (both included) or choices.

    The value of a `secret` setting is never shown.
    """

    name: str
    attribute: str
    kind: str
    default: Any
    low: int | None
    high: int | None
    choices: tuple[Any, ...]
    help: str
    secret: bool = False

    @property
    def range_text(self) -> str:
        """The allowed values, in words."""
        if self.choices:
            return "one of " + ", ".join(str(choice) for choice in self.choices)
        if self.kind == "bool":
            return "true or false"
        if self.kind == "int":
            return f"a whole number from {self.low} to {self.high}"
        return "a path" if "Path" in self.kind else "a text"

    def parse(self, text: str) -> Any:
        """The typed value of `text`; raises ValueError when it has the wrong form."""
        text = text.strip()
        if self.kind == "int":
            return int(text)
        if self.kind == "bool":
            return {"true": True, "false": False}[text.lower()]
        if "Path" in self.kind:
            return Path(text).expanduser() if text else self.default
        return text

    def allows(self, value: Any) -> bool:
        """Whether `value` has the type and lies in the range."""
        if self.choices:
            return value in self.choices
        if self.kind == "int":
            number = isinstance(value, int) and not isinstance(value, bool)
            return number and (self.low or 0) <= value <= (INT_MAX if self.high is None else self.high)
        if self.kind == "bool":
            return isinstance(value, bool)
        return True


def row(
    default: Any,
    help_text: str,
    *,
    low: int | None = None,
    high: int | None = None,
    choices: tuple[Any, ...] = (),
    name: str = "",
    secret: bool = False,
) -> Any:
    """A field of a settings class with its bounds and meaning."""
    metadata = {"help": help_text, "low": low, "high": high, "choices": choices, "name": name}
    return field(default=default, metadata=metadata, repr=not secret)


def _wire_name(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(part.capitalize() for part in rest)


_tables: dict[type, dict[str, Setting]] = {}


def table(settings_class: type) -> Mapping[str, Setting]:
    """The rows of a settings class by wire name; those that it inherits are last."""
    if settings_class not in _tables:
        rows = {}
        own = settings_class.__annotations__
        for item in sorted(fields(settings_class), key=lambda item: item.name not in own):
            meta = item.metadata
            name = meta["name"] or _wire_name(item.name)
            rows[name] = Setting(
                name,
                item.name,
                str(item.type),
                item.default,
                meta["low"],
                meta["high"],
                meta["choices"],
                meta["help"],
                not item.repr,
            )
        _tables[settings_class] = rows
    return _tables[settings_class]


def check_ranges(settings: object) -> None:
    """Raise `SettingsError` for values that their rows do not allow; it is about the first of them."""
    problems = [
        (one, value)
        for one in table(type(settings)).values()
        if not one.allows(value := getattr(settings, one.attribute))
    ]
    if problems:
        text = "\n".join(f"{one.name}={value}: must be {one.range_text}" for one, value in problems)
        raise SettingsError(text, problems[0][0].name, problems[0][1])
