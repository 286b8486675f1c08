"""Runs cells and records what was found, a line of JSON for each round.

    python -m tests.spark.matrix --missing                             the cells without a recorded round
    python -m tests.spark.matrix --missing --part 0/2                  half of them, beside another process
    python -m tests.spark.matrix --out other.jsonl                     every cell once, into another record
    python -m tests.spark.matrix --only stream-driver-fewer --seed 7   a round again

A round that is in the record already is not done again. `--missing` adds its rounds to `recorded.jsonl`, one
by one, and has `scripts/generate_matrix.py` write the table of `docs/spark.md` at the end, also if it is
stopped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

from tests.pages import ROOT
from tests.spark.matrix.cells import CELLS, Cell, cell_of
from tests.spark.matrix.drivers import Drivers
from tests.spark.matrix.record import RECORD, read, unrecorded
from tests.spark.matrix.rounds import run_round


def main() -> int:
    """The command; 1 when a promise was broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--missing", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--part", default="0/1")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--match", default="")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    number, parts = map(int, given.part.split("/"))
    cells = [cell_of(name) for name in given.only] or [cell for cell in CELLS if given.match in cell.id]
    cells = cells[number::parts]
    if given.missing:
        left = set(unrecorded(read(RECORD)))
        cells, given.out = [cell for cell in cells if cell in left], RECORD
    try:
        return _run(cells, given)
    finally:
        if given.missing:
            subprocess.run([sys.executable, ROOT / "scripts" / "generate_matrix.py"], check=True)


def _run(cells: list[Cell], given: argparse.Namespace) -> int:
    seen = {(one.cell, one.seed) for one in read(given.out)} if given.out else set[tuple[str, int]]()
    root = Path(tempfile.mkdtemp(prefix="sparrow-matrix-"))
    sys.stderr.write(f"files in {root}\n")
    broken = 0
    with Drivers(root) as drivers:
        for seed in range(given.seed, given.seed + given.rounds):
            for cell in cells:
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
