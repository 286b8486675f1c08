"""Runs cells and records what was found, a line of JSON for each round.

    python -m tests.spark.matrix --out recorded.jsonl                  every cell once
    python -m tests.spark.matrix --out recorded.jsonl --part 0/2       half of them, beside another process
    python -m tests.spark.matrix --only stream-driver-fewer --seed 7   a round again

A round that is in the record already is not done again. `scripts/generate_matrix.py` makes the table of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.spark.matrix.cells import CELLS, cell_of
from tests.spark.matrix.drivers import Drivers
from tests.spark.matrix.record import read
from tests.spark.matrix.rounds import run_round


def main() -> int:
    """The command; 1 when a promise was broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--match", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    number, parts = map(int, given.part.split("/"))
    cells = [cell_of(name) for name in given.only] or [cell for cell in CELLS if given.match in cell.id]
    seen = {(one.cell, one.seed) for one in read(given.out)} if given.out else set[tuple[str, int]]()
    root = Path(tempfile.mkdtemp(prefix="sparrow-matrix-"))
    sys.stderr.write(f"files in {root}\n")
    broken = 0
    with Drivers(root) as drivers:
        for seed in range(given.seed, given.seed + given.rounds):
            for cell in cells[number::parts]:
                if (cell.id, seed) in seen:
                    continue
                began = time.monotonic()
                try:
                    result = run_round(cell, seed, drivers, root)
                except Exception:
                    broken += 1
                    sys.stderr.write(f"{cell.id} seed {seed}: {traceback.format_exc()}\n")
                    continue
                broken += bool(result.fault)
                line = result.to_json()
                sys.stderr.write(
                    f"{'BROKEN ' if result.fault else ''}{line} in {time.monotonic() - began:.0f} s\n"
                )
                if given.out is not None and not result.fault:
                    with given.out.open("a") as out:
                        out.write(line + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
