"""What rounds of the fault matrix found, and the record of a run of all of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.spark.matrix.cells import CELLS, Cell, Promise, cell_of

RECORD: Final = Path(__file__).parent / "recorded.jsonl"


@dataclass(frozen=True, slots=True)
class Result:
    """What the audit of a round found, in rows."""

    cell: str
    seed: int
    killed_at: int
    """Rows that had arrived when the first run ended."""
    held: int
    """Rows that had to arrive."""
    arrived: int
    missing: int
    doubled: int
    """Rows that are there more than once."""
    unknown: int
    """Rows that nobody sent."""
    elsewhere: int
    """Rows that a lost broker has, and that were sent once more to another."""
    seconds: float
    """That the second run took, from its start to its end."""

    @property
    def fault(self) -> str:
        """What breaks the promise; empty when it is kept."""
        promise = cell_of(self.cell).promise
        doubled = self.doubled if promise is not Promise.AT_LEAST_ONCE else 0
        if not (self.missing or doubled or self.unknown):
            return ""
        return f"{self.cell}, seed {self.seed}, promised {promise}: {asdict(self)}"

    def to_json(self) -> str:
        """In one line."""
        return json.dumps(asdict(self))


def read(path: Path) -> list[Result]:
    """The rounds of a record."""
    if not path.exists():
        return []
    return [Result(**json.loads(line)) for line in path.read_text().splitlines()]


def unrecorded(results: Iterable[Result]) -> list[Cell]:
    """The cells without a round."""
    seen = {one.cell for one in results}
    return [cell for cell in CELLS if cell.id not in seen]
