"""What a command changed in the settings that brokers keep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict


def changes_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, dict[str, list[Any]]]:
    """By broker: the settings that differ, each with its old and new value; no broker where it is new.

    `before` and `after` are the settings of a topic or group by broker, as `Admin` returns them.
    """
    found: dict[str, dict[str, list[Any]]] = {}
    for broker, config in after.items():
        if broker in before:
            old, new = asdict(before[broker]), asdict(config)
            found[broker] = {name: [old[name], new[name]] for name in new if old[name] != new[name]}
    return found


def changes_text(changes: Mapping[str, Mapping[str, list[Any]]]) -> str:
    """The changes in one line; brokers with the same ones are named together."""
    brokers: dict[str, list[str]] = {}
    for broker, values in sorted(changes.items()):
        text = ", ".join(f"{name} {old} to {new}" for name, (old, new) in values.items())
        brokers.setdefault(text or "nothing changed", []).append(broker)
    return "; ".join(f"{text} on {', '.join(names)}" for text, names in brokers.items())
