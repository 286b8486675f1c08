"""Writes the tables of `docs/mqadmin.md`: each command of Apache's `mqadmin` at Apache's servers and at ours.

    python -m scripts.generate_mqadmin --run      runs every command on both sides (needs Java), then writes
    python -m scripts.generate_mqadmin            writes the tables from what was recorded
    python -m scripts.generate_mqadmin --print    shows them

The tables stand between `<!-- table: mqadmin -->` and `<!-- end -->`.
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

from tests.interop.mqadmin.commands import CASES, COMMANDS, Case  # noqa: E402 - the root comes first
from tests.interop.mqadmin.record import Seen, read, write  # noqa: E402

PAGE: Final = ROOT / "docs" / "mqadmin.md"
BLOCK: Final = re.compile(r"(<!-- table: mqadmin -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD: Final = "| command | asks | ours | Apache's | | `sparrow` |\n| --- | --- | --- | --- | --- | --- |\n"


def judged(case: Case, row: Seen) -> str:
    """Whether the two are the same, or why not."""
    if case.reason:
        return case.reason
    return f"same, apart from {case.apart}" if case.apart else "same"


def markdown(rows: Sequence[Seen]) -> str:
    """The summary and a table for each subject."""
    cases = {case.id: case for case in CASES}
    by_command: dict[str, list[Seen]] = {}
    for row in rows:
        by_command.setdefault(cases[row.case].command, []).append(row)
    same = sum(row.same for row in rows)
    parts = [
        f"{len(COMMANDS)} commands in {len(rows)} runs: {same} are the same, {len(rows) - same} differ for "
        "the reason given.\n"
    ]
    for subject in dict.fromkeys(command.subject for command in COMMANDS.values()):
        parts.append(f"\n### {subject}\n\n{HEAD}")
        for name, command in COMMANDS.items():
            if command.subject == subject:
                parts += _rows(by_command.get(name, ()), cases, command.sparrow)
    return "".join(parts)


def _rows(rows: Iterable[Seen], cases: dict[str, Case], sparrow: str) -> Iterable[str]:
    ours = ", ".join(
        f"[{one}](commands.md#sparrow-{one.replace(' ', '-')})" for one in sparrow.split(", ") if one
    )
    for row in rows:
        case = cases[row.case]
        asks = ", ".join(map(str, row.asks)) or "–"
        typed = row.case.replace("|", "\\|")
        yield f"| `{typed}` | {asks} | {row.ours} | {row.apache} | {judged(case, row)} | {ours or '–'} |\n"
        ours = "″"


def page(text: str, tables: str) -> str:
    """The page with the tables in their place."""
    return BLOCK.sub(lambda block: f"{block[1]}{tables}{block[2]}", text)


def main() -> int:
    """The command. The exit status is 1 when a run is not as the table of cases expects."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--print", action="store_true", dest="shows")
    arguments = parser.parse_args()
    surprising: dict[str, list[str]] = {}
    if arguments.run:
        from tests.interop.mqadmin.both import run_both

        rows, surprising = run_both()
        write(rows)
    tables = markdown(read())
    if arguments.shows:
        sys.stdout.write(tables)
    else:
        PAGE.write_text(page(PAGE.read_text(), tables))
    for case, found in surprising.items():
        sys.stderr.write(f"{case}\n" + "".join(f"    {line}\n" for line in found))
    return 1 if surprising else 0


if __name__ == "__main__":
    sys.exit(main())
