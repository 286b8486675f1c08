"""Bounds of a server, and how much of each is used: for Prometheus, and in its runtime information (code 28).
Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from sparrowmq.core.figures.exposition import Exposition, labels

KEY: Final = "bound."
"""Prefix of the keys in runtime information; the value has what is used and the bound: `12 10000`."""
TOLD_MAX: Final = 100
"""Bounds that are read from one server; a server has about ten."""


class Bound(NamedTuple):
    """A bound by name, and what of it is used."""

    name: str
    used: int
    most: int


def add_bounds(into: Exposition, node: str, bounds: Iterable[Bound]) -> None:
    """Add bounds to a server's figures. `node` has the labels of the server."""
    used = into.gauge("sparrow_bound_used", "How much of a bound is used.")
    most = into.gauge("sparrow_bound_max", "The bound.")
    for bound in bounds:
        label = labels(node, bound=bound.name)
        used.add(label, bound.used)
        most.add(label, bound.most)


def bounds_table(bounds: Iterable[Bound]) -> dict[str, str]:
    """Bounds as a part of a server's runtime information."""
    return {f"{KEY}{bound.name}": f"{bound.used} {bound.most}" for bound in bounds}


def told_bounds(info: Mapping[str, str]) -> list[Bound]:
    """The inverse of `bounds_table`. What is not a bound is left out: another server may send anything."""
    found = []
    for key, value in info.items():
        numbers = value.split(" ") if key.startswith(KEY) else ()
        if len(numbers) == 2 and all(map(_is_count, numbers)):
            found.append(Bound(key.removeprefix(KEY), int(numbers[0]), int(numbers[1])))
    return sorted(found)[:TOLD_MAX]


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 18
