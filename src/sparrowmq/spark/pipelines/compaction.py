"""Which units of an archive are merged into one. Pure; `archive_home` and `archive` do it."""

from __future__ import annotations

from collections.abc import Sequence

from sparrowmq.spark.pipelines.ledger import Unit


def groups(units: Sequence[Unit], *, least: int, size_max: int) -> list[tuple[Unit, ...]]:
    """Runs of units next to each other that become one unit each.

    A run has at least `least` units and together at most `size_max` bytes; a unit that is larger than half of
    that is left alone, for merging it again and again would copy it each time.
    """
    found: list[tuple[Unit, ...]] = []
    run: list[Unit] = []
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
