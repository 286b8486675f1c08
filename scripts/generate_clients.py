"""Writes the table of `docs/clients-5x.md`: what works with each of RocketMQ's clients, before each proxy.

    SPARROW_RECORD_CLIENTS=1 pytest tests/interop/client5 --timeout=3600     runs and records every case
    python -m scripts.generate_clients                                       writes the table of the record
    python -m scripts.generate_clients --print                               shows it

The table stands between `<!-- table: clients -->` and `<!-- end -->`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.interop.client5.cases import CASES  # noqa: E402 - the root comes first
from tests.interop.client5.peers import PEERS  # noqa: E402
from tests.interop.client5.results import WORKS, Results, read  # noqa: E402
from tests.interop.grpc_clients import KINDS  # noqa: E402

PAGE: Final = ROOT / "docs" / "clients-5x.md"
BLOCK: Final = re.compile(r"(<!-- table: clients -->\n).*?(<!-- end -->)", re.DOTALL)


class Notes:
    """Footnotes by text, numbered in the order in which they are first used."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, text: str) -> str:
        """The sign in the cell."""
        return f"<sup>{self._numbers.setdefault(text, len(self._numbers) + 1)}</sup>"

    def __str__(self) -> str:
        return "".join(f"{number}. {text[0].upper()}{text[1:]}.\n" for text, number in self._numbers.items())


def cell(cells: Mapping[str, str], notes: Notes) -> str:
    """What is said about one client in one case."""
    if not cells:
        return "not run"
    if all(cells.get(peer) == WORKS for peer in PEERS):
        return "yes"
    said = {peer: "yes" if cells.get(peer) == WORKS else "no" for peer in PEERS if peer in cells}
    reasons = dict.fromkeys(text for text in cells.values() if text != WORKS)
    marks = "".join(notes.mark(text) for text in reasons)
    if set(said.values()) == {"no"}:
        return f"no{marks}"
    return "; ".join(f"{peer}: {answer}" for peer, answer in said.items()) + marks


def markdown(results: Results) -> str:
    """The table and its notes."""
    notes = Notes()
    heads = " | ".join(f"{kind.language} {kind.version}" for kind in KINDS)
    lines = [f"| | {heads} |", f"| --- |{' --- |' * len(KINDS)}"]
    for case in CASES:
        row = [
            f"no{notes.mark(kind.cannot[case.name])}"
            if case.name in kind.cannot
            else cell(results.get(kind.name, {}).get(case.name, {}), notes)
            for kind in KINDS
        ]
        lines.append(f"| {case.feature} | {' | '.join(row)} |")
    return "\n".join(lines) + f"\n\n{notes}"


def page(text: str, table: str) -> str:
    """The page with the table in its place."""
    return BLOCK.sub(lambda block: f"{block[1]}{table}{block[2]}", text)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--print", action="store_true", dest="shows")
    table = markdown(read())
    if parser.parse_args().shows:
        print(table, end="")
    else:
        PAGE.write_text(page(PAGE.read_text(), table))


if __name__ == "__main__":
    main()
