"""Chooses the units of an archive to merge. Pure; `directory` and `job` merge them."""

from __future__ import annotations

from collections.abc import Sequence

from sparrowmq.spark.pipelines.archive.ledger import ArchiveUnit


def groups(units: Sequence[ArchiveUnit], *, least: int, size_max: int) -> list[tuple[ArchiveUnit, ...]]:
    """Runs of adjacent units, each of which becomes one unit.

    A run has at least `least` units and together at most `size_max` bytes; a unit larger than half of that is
    left alone, because each merge would copy it again.
    """
    found: list[tuple[ArchiveUnit, ...]] = []
    run: list[ArchiveUnit] = []
    size = 0

    def close() -> None:
        nonlocal size
        if len(run) >= max(2, least):
            found.append(tuple(run))
        run.clear()
        size = 0

    for unit in sorted(units, key=lambda unit: unit.number):
        if unit.size > size_max // 2:
            close()
            continue
        if size + unit.size > size_max:
            close()
        run.append(unit)
        size += unit.size
    close()
    return found
