"""The reconciliation: every flight was sent, is stored, and is in Parquet exactly once.

Parquet is read with pyarrow, not with Spark, so that leftovers of an interrupted batch are detected.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

SHOWN_MAX: Final = 5


class Parquet(msgspec.Struct, frozen=True):
    """The content of the Parquet files; rows are the source's line numbers."""

    rows: int
    duplicates: int
    missing: int
    strangers: int
    missing_shown: list[int]
    duplicates_shown: list[int]
    queue_gaps: list[str]


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The three counts, and their discrepancies; `faults` is empty if there are none."""

    expected: int
    sent: int
    stored: int
    parquet: Parquet
    counted: int

    @property
    def faults(self) -> list[str]:
        """The discrepancies, in words."""
        found = self.parquet
        checks = (
            (self.sent != self.expected, f"{self.sent:,} of {self.expected:,} flights were sent"),
            (self.stored != self.sent, f"{self.sent:,} were sent but {self.stored:,} are stored"),
            (found.rows != self.stored, f"{self.stored:,} are stored but {found.rows:,} are in Parquet"),
            (found.duplicates > 0, f"{found.duplicates:,} twice in Parquet, e.g. {found.duplicates_shown}"),
            (found.missing > 0, f"{found.missing:,} not in Parquet, e.g. rows {found.missing_shown}"),
            (found.strangers > 0, f"{found.strangers:,} rows in Parquet were never sent"),
            (bool(found.queue_gaps), "gaps in queues: " + "; ".join(found.queue_gaps)),
            (
                self.counted != found.rows,
                f"the totals count {self.counted:,}, but Parquet has {found.rows:,}",
            ),
        )
        return [text for wrong, text in checks if wrong]


def read_parquet(directory: Path, expected: int) -> Parquet:
    """Check every row of the Parquet files under `directory`; the rows must be 1 to `expected`."""
    import numpy as np
    import pyarrow.dataset as dataset

    if not any(directory.rglob("*.parquet")):
        return Parquet(0, 0, expected, 0, list(range(1, min(expected, SHOWN_MAX) + 1)), [], [])
    table = dataset.dataset(directory, format="parquet").to_table(["row", "queue", "queue_offset"])
    rows = table["row"].to_numpy().astype(np.int64)
    known = rows[(rows >= 1) & (rows <= expected)]
    counts = np.bincount(known, minlength=expected + 1)
    missing = np.flatnonzero(counts[1:] == 0) + 1
    double = np.flatnonzero(counts > 1)
    queues = table["queue"].to_numpy(zero_copy_only=False)
    offsets = table["queue_offset"].to_numpy()
    gaps = []
    for queue in np.unique(queues):
        mine = np.unique(offsets[queues == queue])
        if mine[0] != 0 or mine[-1] != len(mine) - 1:
            gaps.append(f"{queue} has {len(mine)} offsets from {mine[0]} to {mine[-1]}")
    return Parquet(
        rows=len(rows),
        duplicates=int((counts[double] - 1).sum()),
        missing=len(missing),
        strangers=len(rows) - len(known),
        missing_shown=missing[:SHOWN_MAX].tolist(),
        duplicates_shown=double[:SHOWN_MAX].tolist(),
        queue_gaps=gaps,
    )
