"""Which tests a tier leaves out: `tests/tiers.toml` says what only `./sparrow test full` runs.

Without `SPARROW_TEST_TIER`, as when a developer runs pytest, nothing is left out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).parent / "tiers.toml"
SHORT_TIERS: Final = ("fast", "gate")
SLOW_MARKS: Final = frozenset({"crash", "databases", "interop", "spark"})
"""Marks of tests that the fast tier leaves out, wherever they are."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """Tests by their tier: directories, files or tests, of which the longest that fits decides."""

    full: tuple[str, ...]
    gate: tuple[str, ...]

    def is_in_gate(self, test: str) -> bool:
        """Whether the gate runs this test, named as pytest does."""
        return _longest(self.gate, test) >= _longest(self.full, test)

    def leaves_out(self, tier: str, test: str, marks: Iterable[str]) -> bool:
        """Whether a tier does not run this test."""
        if tier not in SHORT_TIERS:
            return False
        return not self.is_in_gate(test) or (tier == "fast" and not SLOW_MARKS.isdisjoint(marks))


def read_tiers(path: Path = FILE) -> Tiers:
    """The tiers as the file has them."""
    found = tomllib.loads(path.read_text())
    return Tiers(tuple(found["full"]), tuple(found["gate"]))


def _longest(places: Iterable[str], test: str) -> int:
    """The length of the longest place that this test is in, 0 if it is in none."""
    return max((len(place) for place in places if _is_in(test, place)), default=0)


def _is_in(test: str, place: str) -> bool:
    rest = test.removeprefix(place)
    return test.startswith(place) and rest[:1] in ("", "/", ":", "[")
