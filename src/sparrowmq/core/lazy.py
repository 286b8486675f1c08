"""Lazy imports of a package's names, so that a small program loads little."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def names_by_module(homes: Mapping[str, str]) -> dict[str, str]:
    """Map name to module, from modules and their names as text separated by blanks."""
    return {name: module for module, names in homes.items() for name in names.split()}


def lazy_names(namespace: dict[str, Any], modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a package: it loads each name from its module and stores it in `namespace`.

    `namespace` is the package's `globals()`. Raises AttributeError for a name that `modules` lacks.
    """

    def find(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {namespace['__name__']!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        namespace[name] = value
        return value

    return find
