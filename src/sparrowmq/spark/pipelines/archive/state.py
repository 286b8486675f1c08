"""Contents of an archive on an object store, according to its commits.

Pure. The complete state takes at most two commits: each commit names a *base*, a commit that lists every
unit, and lists the units added and removed since. When the list becomes long, the next commit is a base
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isqrt
from typing import Any, Final

from sparrowmq.spark.pipelines.archive.ledger import ArchiveError, ArchiveLedger, ArchiveUnit
from sparrowmq.spark.pipelines.common.notes import check_version, reading

VERSION: Final = 1
CHANGES: Final = 32
"""Maximum number of changes in a commit before a base is written; more in an archive of thousands of units.
"""


@dataclass(frozen=True, slots=True)
class Kept:
    """A unit and the folder of its files, below `data`."""

    unit: ArchiveUnit
    folder: str


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """The units that readers see, by number."""

    kept: Mapping[int, Kept] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    """Folders of units that the last merge replaced: readers may still use them."""

    @property
    def ledger(self) -> ArchiveLedger:
        """The offsets it covers."""
        return ArchiveLedger(one.unit for one in self.kept.values())

    @property
    def folders(self) -> set[str]:
        """Every folder that must be kept."""
        return {*self.dropped, *(one.folder for one in self.kept.values())}

    def with_unit(self, unit: ArchiveUnit, folder: str) -> ArchiveState:
        """The state with one more unit."""
        return replace(self, kept={**self.kept, unit.number: Kept(unit, folder)})

    def with_merged(self, group: Sequence[ArchiveUnit], unit: ArchiveUnit, folder: str) -> ArchiveState:
        """The state with several units replaced by one."""
        gone = {one.number for one in group}
        left = {number: one for number, one in self.kept.items() if number not in gone}
        dropped = tuple(self.kept[number].folder for number in sorted(gone))
        return ArchiveState({**left, unit.number: Kept(unit, folder)}, dropped)


def to_commit(state: ArchiveState, base: tuple[int, ArchiveState] | None) -> dict[str, Any]:
    """The commit for `state`; with the number of the base it needs, or None when it is a base."""
    if base is not None:
        number, known = base
        added = [one for key, one in state.kept.items() if known.kept.get(key) != one]
        gone = [key for key in known.kept if key not in state.kept]
        if len(added) + len(gone) < max(CHANGES, isqrt(len(state.kept))):
            return {"version": VERSION, "base": number, **_content(added, gone, state.dropped)}
    return {"version": VERSION, "base": None, **_content(state.kept.values(), [], state.dropped)}


def _content(added: Any, gone: list[int], dropped: Sequence[str]) -> dict[str, Any]:
    units = [{"folder": one.folder, "unit": one.unit.to_json()} for one in added]
    return {"add": units, "remove": gone, "dropped": list(dropped)}


def base_of(commit: Mapping[str, Any], where: object) -> int | None:
    """The number of the base that a commit needs. Raises `ArchiveError` for an invalid commit."""
    with reading("a commit of an archive", where, ArchiveError):
        check_version(commit, VERSION, where, ArchiveError)
        base = commit["base"]
        return None if base is None else int(base)


def from_commit(commit: Mapping[str, Any], base: ArchiveState, where: object) -> ArchiveState:
    """The state in a commit; `base` is the state of its base, empty for a base itself. Raises
    `ArchiveError`.
    """
    with reading("a commit of an archive", where, ArchiveError):
        kept = {number: one for number, one in base.kept.items() if number not in set(commit["remove"])}
        for one in commit["add"]:
            unit = ArchiveUnit.from_json(one["unit"], where)
            kept[unit.number] = Kept(unit, str(one["folder"]))
        return ArchiveState(kept, tuple(map(str, commit["dropped"])))
