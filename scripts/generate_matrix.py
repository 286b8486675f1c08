"""Writes the table of the fault matrix in `docs/spark.md` from what was recorded of its rounds.

    python -m tests.spark.matrix --missing       runs the cells that lack a record, and writes the table
    python -m scripts.generate_matrix            writes the table
    python -m scripts.generate_matrix --print    shows it

The table stands between `<!-- table: matrix -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.spark.matrix.cells import CELLS, Cell, Change, Fault, Promise, Scenario  # noqa: E402 - the root comes first
from tests.spark.matrix.record import RECORD, Result, read  # noqa: E402

PAGE: Final = ROOT / "docs" / "spark.md"
BLOCK: Final = re.compile(r"(<!-- table: matrix -->\n).*?(<!-- end -->)", re.DOTALL)
SCENARIOS: Final = {
    Scenario.STREAM: "a stream from topic to topic",
    Scenario.JOB: "a batch with `jobId`",
    Scenario.KEYED: "a batch with `jobId` and `idempotenceKey`, behind a shuffle",
    Scenario.MIRROR: "mirror",
    Scenario.REPLAY: "replay",
    Scenario.ARCHIVE: "archive",
}
FAULTS: Final = {
    Fault.DRIVER: "driver killed",
    Fault.EXECUTOR: "executor killed",
    Fault.WORKER: "Python worker killed",
    Fault.BROKER: "broker killed and restarted",
    Fault.LOST: "broker lost permanently",
    Fault.FROZEN: "broker frozen for seconds",
}
CHANGES: Final = {
    Change.FEWER: "1 core in place of 2",
    Change.MORE: "4 cores",
    Change.SETTINGS: "other settings",
    Change.LARGER: "larger batches",
    Change.REMADE: "recreated topic",
}
MARKS: Final = {Promise.ONCE: "", Promise.AT_LEAST_ONCE: " (at least once ¹)", Promise.REFUSED: " ²"}


def entry(cell: Cell, found: Sequence[Result]) -> str:
    """What stands in a cell of the table: rounds, missing, doubled, seconds."""
    if not found:
        return f"–{MARKS[cell.promise]}"
    elsewhere = sum(one.elsewhere for one in found)
    doubled = f"{sum(one.doubled for one in found):,}" + (f" ({elsewhere:,})" if elsewhere else "")
    missing, longest = sum(one.missing for one in found), max(one.seconds for one in found)
    return f"{len(found)} · {missing} · {doubled} · {longest:.0f} s{MARKS[cell.promise]}"


def markdown(results: Iterable[Result]) -> str:
    """The table."""
    by_cell: dict[str, list[Result]] = {}
    for one in results:
        by_cell.setdefault(one.cell, []).append(one)
    lines = [("scenario", "fault", *CHANGES.values()), ("---",) * (2 + len(CHANGES))]
    for scenario, what in SCENARIOS.items():
        for fault, happens in FAULTS.items():
            cells = [Cell(scenario, fault, change) for change in CHANGES]
            lines.append((what, happens, *(entry(cell, by_cell.get(cell.id, [])) for cell in cells)))
            what = ""
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    have = f"{len(by_cell)} of the {len(CELLS)} cells have a recorded round; the others (–) have not."
    if len(by_cell) == len(CELLS):
        have = f"Each of the {len(CELLS)} cells has a recorded round."
    return f"{have}\n\n{table}"


def page(text: str, table: str) -> str:
    """The page with the table in its place."""
    return BLOCK.sub(lambda block: f"{block[1]}{table}{block[2]}", text)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--print", action="store_true", dest="shows")
    table = markdown(read(RECORD))
    if parser.parse_args().shows:
        sys.stdout.write(table)
        return
    PAGE.write_text(page(PAGE.read_text(), table))


if __name__ == "__main__":
    main()
