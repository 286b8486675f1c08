"""Writes the table of stalls in `docs/operations.md`: what each request may hold a server's loop for.

    python -m scripts.generate_stalls            full size: some minutes, on a machine that does nothing else
    python -m scripts.generate_stalls --small    the size that the tests take
    python -m scripts.generate_stalls --print    the table, and the page stays as it is
    python -m scripts.generate_stalls --only proxy    rows whose server or name has this text; others stay

It starts the servers itself. The table stands between `<!-- table: stalls -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.hostile.catalogue import all_entries, all_servers  # noqa: E402 - the root comes first
from tests.hostile.load import Found, measure  # noqa: E402
from tests.hostile.size import FULL, SMALL, Size  # noqa: E402

PAGE = ROOT / "docs" / "operations.md"
BLOCK = re.compile(r"(<!-- table: stalls -->\n).*?(<!-- end -->)", re.DOTALL)
HEAD = (
    "server",
    "code",
    "name",
    "request; each is also sent many at once, and with overlong fields",
    "longest stall, ms",
    "99 of 100 pings waited at most, ms of the loop's processor time",
)


def row(found: Found) -> tuple[str, ...]:
    """One line of the table."""
    entry = found.entry
    said = ", ".join(part for part in (entry.said, "hostile JSON" if entry.bombs else "") if part)
    stall = f"{found.stall:.0f}" if found.stall else "below 50"
    return (
        entry.kind,
        str(int(entry.code)) if entry.code else "–",
        f"`{entry.name}`",
        said,
        stall,
        f"{found.held:.0f}",
    )


def markdown(rows: Iterable[tuple[str, ...]]) -> str:
    """The table."""
    return "".join(f"| {' | '.join(line)} |\n" for line in (HEAD, ("---",) * len(HEAD), *rows))


def standing() -> dict[tuple[str, str], tuple[str, ...]]:
    """The rows of the page, by server and name."""
    found = BLOCK.search(PAGE.read_text())
    assert found is not None, f"{PAGE} has no table of stalls"
    lines = [line.strip("| ").split(" | ") for line in found[0].splitlines()[3:-1]]
    return {(cells[0], cells[2]): tuple(cells) for cells in lines}


def measured(size: Size, only: str) -> list[Found]:
    """Every code whose server or name has the text, told as it is done."""
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="sparrow-stalls-") as root,
        all_servers(size, Path(root)) as worlds,
    ):
        wanted = [entry for entry in all_entries() if only in f"{entry.kind} {entry.name}"]
        for found in measure(worlds, wanted):
            results.append(found)
            line = " | ".join(row(found))
            sys.stderr.write(f"{line}\n")
            if found.worst is not None:
                sys.stderr.write(f"    {found.worst.sentence()}\n")
    return results


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--print", action="store_true", dest="shows")
    parser.add_argument("--only", default="", metavar="TEXT")
    given = parser.parse_args()
    rows = [row(found) for found in measured(SMALL if given.small else FULL, given.only)]
    if given.only:
        rows = list((standing() | {(cells[0], cells[2]): cells for cells in rows}).values())
    table = markdown(rows)
    if given.shows:
        sys.stdout.write(table)
        return
    PAGE.write_text(BLOCK.sub(lambda block: f"{block[1]}{table}{block[2]}", PAGE.read_text()))


if __name__ == "__main__":
    main()
