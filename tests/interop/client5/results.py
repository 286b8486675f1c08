"""What the cases came to, by client and peer; `scripts/generate_clients.py` makes a table of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.interop.client5.cases import CASES
from tests.interop.client5.peers import PEERS
from tests.interop.grpc_clients import KINDS

RECORD: Final = Path(__file__).resolve().parent / "recorded.json"
WORKS: Final = "works"

Results = dict[str, dict[str, dict[str, str]]]
"""`WORKS`, or what went wrong, by client, case and peer."""


def read(path: Path = RECORD) -> Results:
    """What is recorded; nothing of other versions of a client."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())
    current = {kind.name: kind.version for kind in KINDS}
    return {
        client: entry["cases"] for client, entry in stored.items() if current.get(client) == entry["version"]
    }


def write(results: Mapping[str, Mapping[str, Mapping[str, str]]], path: Path = RECORD) -> None:
    """Keep it, in the order of the tables."""
    ordered = {
        kind.name: {
            "version": kind.version,
            "cases": {
                case.name: {peer: cells[peer] for peer in PEERS if peer in cells}
                for case in CASES
                if (cells := results.get(kind.name, {}).get(case.name, {}))
            },
        }
        for kind in KINDS
        if kind.name in results
    }
    path.write_text(json.dumps(ordered, indent=1) + "\n")


def merged(old: Results, new: Results) -> Results:
    """The new ones, and the old ones of other cells."""
    found: Results = {}
    for each in (old, new):
        for client, cases in each.items():
            for case, cells in cases.items():
                found.setdefault(client, {}).setdefault(case, {}).update(cells)
    return found
