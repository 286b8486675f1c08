"""Writes the table of stalls in `docs/operations.md`: what each request may hold a server's loop for.

    python -m scripts.generate_stalls            full size: some minutes, on a machine that does nothing else
    python -m scripts.generate_stalls --small    the size that the tests take
    python -m scripts.generate_stalls --print    the table, and the page stays as it is

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


def measured(size: Size) -> list[Found]:
    """Every code, told as it is done."""
    results = []
    with (
        tempfile.TemporaryDirectory(prefix="sparrow-stalls-") as root,
        all_servers(size, Path(root)) as worlds,
    ):
        for found in measure(worlds, all_entries()):
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
    given = parser.parse_args()
    table = markdown(map(row, measured(SMALL if given.small else FULL)))
    if given.shows:
        sys.stdout.write(table)
        return
    PAGE.write_text(BLOCK.sub(lambda block: f"{block[1]}{table}{block[2]}", PAGE.read_text()))


if __name__ == "__main__":
    main()
