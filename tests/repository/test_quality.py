"""The page of quality: what it says of the long tier is what the tests take there, and take elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.tiers import SHORT_TIERS

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "quality.md"
HEAD = "| part of the long tier | in the other tiers |"

PARTS = {
    "samples for each property test": "conftest.py EXAMPLES",
    "while keys are indexed": "crash/store/test_index_power_cut.py CUTS",
    "with delayed messages": "crash/store/test_delay_power_cut.py CUTS",
    "power cuts of a store": "crash/store/test_store_power_cut.py CUTS",
    "while messages are stored": "crash/store/test_store_kill.py ROUNDS",
    "seeds of a group": "client/test_churn.py SEEDS",
    "filters": "interop/reference/test_sql92_reference.py CASES",
    "rounds of allocation": "interop/reference/test_allocation_reference.py ROUNDS",
    "consumers in one process": "crash/test_long_clients.py CONSUMERS",
    "constant memory": "crash/test_long_clients.py MESSAGES",
    "schedules of hand-overs": "coordinator/groups/test_handover.py SEEDS",
    "schedules of take-overs": "simulation/test_takeover.py SCHEDULES",
    "seeds of leases": "coordinator/leases/test_simulation.py SEEDS",
    "faults of coordinator": "databases/test_processes.py ROUNDS",
    "seconds without a broker": "spark/queries/test_counted.py AWAY_SECONDS",
    "histories of a store": "store/test_model.py StoreModel.TestCase.settings",
}
"""Words of a row, and what its number is called where."""


def number(place: str, tier: str) -> int:
    """The number, or how many there are, as the tests of a tier have it. Nothing is imported."""
    path, name = place.split()
    values = [
        line.value
        for line in ast.parse((ROOT / "tests" / path).read_text()).body
        if isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None
        if ast.unparse(line.targets[0] if isinstance(line, ast.Assign) else line.target) == name
    ]
    (value,) = values
    names = {
        "LONG": tier == "long",
        "SHORT": tier in SHORT_TIERS,
        "os": SimpleNamespace(environ={"SPARROW_TEST_TIER": tier}),
        "GIVEN": None,
        "settings": lambda max_examples, **others: max_examples,
    }
    found = eval(ast.unparse(value), names)
    return found if isinstance(found, int) else len(found)


def rows() -> list[list[str]]:
    """The cells of the table."""
    lines = iter(PAGE.read_text().splitlines())
    next(line for line in lines if line.startswith(HEAD))
    next(lines)
    found = []
    for line in lines:
        if not line.startswith("| "):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


@pytest.mark.parametrize(("words", "place"), PARTS.items())
def test_the_table_of_the_long_tier_has_the_numbers_of_the_tests(words: str, place: str) -> None:
    (row,) = [row for row in rows() if words in row[0]]
    long, full = number(place, "long"), number(place, "full")
    said = [cell.replace(", ", " ").split() for cell in row[:2]]
    assert f"{long:,}" in said[0] and f"{full:,}" in said[1], row
    assert long > full
