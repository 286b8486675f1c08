"""What a check of a directory found: damage and notes, counted, with the first examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

EXAMPLES_MAX: Final = 20
"""Number of examples of each kind of finding; further findings are only counted."""


@dataclass(slots=True)
class FoundKind:
    """All findings of one kind in one part of the directory."""

    part: str
    what: str
    is_damage: bool
    count: int = 0
    examples: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """The values as a JSON object."""
        return {
            "part": self.part,
            "what": self.what,
            "damage": self.is_damage,
            "count": self.count,
            "examples": self.examples,
        }


class Findings:
    """All findings, by part and kind. Texts may contain names from the directory: escape them before you
    print them to a terminal.
    """

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str, bool], FoundKind] = {}

    def damage(self, part: str, what: str, example: str, count: int = 1) -> None:
        """Add damage: something differs from what was written, or contradicts something else."""
        self._add(part, what, True, example, count)

    def note(self, part: str, what: str, example: str, count: int = 1) -> None:
        """Add a note: something that a broker repairs when it starts, or that no check can decide."""
        self._add(part, what, False, example, count)

    def _add(self, part: str, what: str, is_damage: bool, example: str, count: int) -> None:
        key = part, what, is_damage
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = FoundKind(part, what, is_damage)
        kind.count += count
        if len(kind.examples) < EXAMPLES_MAX:
            kind.examples.append(example)

    @property
    def kinds(self) -> list[FoundKind]:
        """Damage first, then notes, in the order in which they were found."""
        return sorted(self._kinds.values(), key=lambda kind: not kind.is_damage)

    @property
    def is_damaged(self) -> bool:
        """Whether any damage was found."""
        return any(kind.is_damage for kind in self._kinds.values())
