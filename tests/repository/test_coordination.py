"""The tables of `tests/coordination.md`: every promise and every defect has tests, or is on a list here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from functools import cache

import pytest
from tests.pages import ROOT, Row, proven_rows
from tests.repository.test_behaviours import script

PAGE = ROOT / "tests" / "coordination.md"
NUMBERS = {
    "MUST-": range(70, 74),
    **{f"{point}.": range(1, 1 + count) for point, count in enumerate((6, 5, 13, 13, 16, 5), 1)},
    "B.": range(1, 25),
    **{kind: range(1, 1 + count) for kind, count in zip("LRCTSP", (12, 13, 12, 12, 6, 5), strict=True)},
    **{f"9.{part}-": range(1, 1 + count) for part, count in enumerate((14, 11, 10), 1)},
}
"""How many rows of each kind there are: none goes unnoticed."""
REQUIRED = [f"{kind}{number}" for kind, numbers in NUMBERS.items() for number in numbers]
PENDING = frozenset[str]()
"""What is being built: rows that say so."""
NOT_YET, NONE = "not yet", "–"
VERDICTS = {"kept", "adapted", "left out"}


@cache
def known_in(path: str) -> dict[str, bool]:
    """The tests of a module by their names, and whether each may be skipped."""
    place = ROOT / path
    source = place.read_text() if place.exists() else ""
    return {one.test: one.skipped for one in script.tests_in(source, path)}


def problems(rows: Iterable[Row], required: Collection[str], pending: Collection[str]) -> list[str]:
    """What is wrong with the tables, one sentence each."""
    rows = list(rows)
    names = [row.name for row in rows]
    found = [f"{name} has no row" for name in required if name not in names]
    found += [f"{name} is no row that there should be" for name in names if name not in required]
    found += [f"{name} has two rows" for name in sorted(set(names)) if names.count(name) > 1]
    for row in rows:
        found += _wrong(row, row.name in pending)
    return found


def _wrong(row: Row, may_wait: bool) -> list[str]:
    left_out = "left out" in row.cells
    if row.name.startswith("9.") and (len(row.cells) != 4 or row.cells[1] not in VERDICTS):
        return [f"{row.name} is {' or '.join(sorted(VERDICTS))}"]
    if left_out:
        told = bool(row.cells[2]) and row.cells[-1] == NONE
        return [] if told else [f"{row.name} is left out, which needs a reason and {NONE} for tests"]
    if not row.tests:
        waits = may_wait and row.cells[-1] == NOT_YET
        return [] if waits else [f"{row.name} has no test: it says {row.cells[-1]!r}"]
    found = []
    for test in row.tests:
        known = known_in(test.partition("::")[0])
        if test not in known:
            found.append(f"{row.name} names {test}, which does not exist")
        elif known[test]:
            found.append(f"{row.name} names {test}, which may be skipped")
    return found


def test_every_promise_and_every_defect_has_tests_that_run() -> None:
    assert problems(proven_rows(PAGE.read_text()), REQUIRED, PENDING) == []


def test_what_tests_say_they_prove_is_listed() -> None:
    defects = {name for name in REQUIRED if name[0] in "LRCTSP"}
    said = {
        fact.removeprefix("pmq:")
        for proof in script.read_proofs()
        for fact in proof.facts
        if fact.startswith("pmq:") and not fact[4].isdigit()
    }
    assert said <= defects


HERE = "tests/repository/test_coordination.py"
GOOD = f"| L1 | a | b | `{HERE}::{test_what_tests_say_they_prove_is_listed.__name__}` |"


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([GOOD], None),
        ([GOOD, GOOD], "L1 has two rows"),
        ([], "L1 has no row"),
        (["| L1 | a | b | not yet |"], "L1 has no test: it says 'not yet'"),
        (["| L1 | a | b |  |"], "L1 has no test"),
        ([GOOD, "| L2 | a | b | not yet |"], None),
        ([GOOD, "| L2 | a | b | |"], "L2 has no test"),
        ([GOOD, "| L9 | a | b | not yet |"], "L9 is no row that there should be"),
        (
            ["| L1 | a | b | `tests/test_nothing.py::test_a` |"],
            "test_nothing.py::test_a, which does not exist",
        ),
        (["| L1 | a | b | `tests/repository/test_coordination.py::test_a` |"], "which does not exist"),
        (["| L1 | a | b | `tests/repository/test_coordination.py::problems` |"], "which does not exist"),
        ([GOOD, "| 9.1-1 | f | dropped | why | – |"], "9.1-1 is adapted or kept or left out"),
        ([GOOD, "| 9.1-1 | f | left out |  | – |"], "needs a reason"),
        ([GOOD, "| 9.1-1 | f | left out | why | – |"], None),
        ([GOOD, "| 9.1-1 | f | kept | why | – |"], "9.1-1 has no test"),
    ],
)
def test_rows_that_prove_nothing_are_found(lines: list[str], says: str | None) -> None:
    rows = proven_rows("\n".join(["", "## What proves it", "", *lines]) + "\n")
    assert len(rows) == len(lines)
    required = {"L1", *(row.name for row in rows if row.name != "L9")}
    found = problems(rows, required, {"L2"})
    assert found == [] if says is None else any(says in one for one in found), found


def test_a_test_that_may_be_skipped_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "known_in", lambda path: {f"{path}::test_a": True})
    (row,) = proven_rows("\n## What proves it\n| L1 | a | b | `tests/test_x.py::test_a` |\n")
    assert problems([row], ["L1"], ()) == ["L1 names tests/test_x.py::test_a, which may be skipped"]
