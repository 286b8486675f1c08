"""Tests that failed run again, alone; those that pass then are flaky, and their ledger says why.

A flaky test is a fault whose cause has to be found: of the test, or of what it tests. `tests/flaky.toml`
names each one that was ever seen.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

FLAKY_MAX: Final = 30
"""More tests that failed get no second look: so many are not the machine's."""
LOOKS: Final = ("second look", "third look")
LEDGER: Final = Path("tests/flaky.toml")


@dataclass(frozen=True, slots=True)
class Flaky:
    """A test that failed and passed when it ran alone."""

    test: str
    first_failure: str

    def __str__(self) -> str:
        return f"flaky: {self.test} (first failure: {self.first_failure})"


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """A flaky test that was seen. Without `cause` nobody knows yet why; `mended` says what ended it."""

    test: str
    seen: str
    failure: str
    cause: str = ""
    mended: str = ""


class Look(Protocol):
    """One run of tests by their names."""

    def __call__(self, name: str, tests: Sequence[str]) -> set[str]:
        """Those that failed again; all of them if the run itself broke."""


def look_again(
    failures: Mapping[str, str], final: Iterable[str], look: Look, say: Callable[[str], None]
) -> tuple[list[Flaky], list[str]]:
    """Run the tests that failed up to twice more; which are flaky, and which failed every time.

    `failures` are first failures by test. Tests of `final` are judged by their first run.
    """
    judged = {test for test in final if test in failures}
    open_tests = set(failures) - judged
    if len(open_tests) > FLAKY_MAX:
        say(f"{len(open_tests)} tests failed, more than {FLAKY_MAX}: they do not run again")
        return [], sorted(failures)
    for name in LOOKS:
        if open_tests:
            open_tests &= look(name, sorted(open_tests))
    failed = sorted(open_tests | judged)
    return [Flaky(test, failures[test]) for test in sorted(set(failures) - set(failed))], failed


def read_ledger(path: Path) -> list[LedgerEntry]:
    """The entries of `tests/flaky.toml`; none if there is no such file."""
    if not path.is_file():
        return []
    return [LedgerEntry(**entry) for entry in tomllib.loads(path.read_text()).get("flaky", [])]


def unexplained(flaky: Sequence[Flaky], ledger: Sequence[LedgerEntry]) -> list[str]:
    """Lines about flaky tests whose cause is not known: those of this run first, then those of the ledger."""
    known = {entry.test: entry for entry in ledger}
    lines = [
        f"not in {LEDGER} yet, add it: {one.test}"
        for one in flaky
        if one.test.partition("[")[0] not in known and one.test not in known
    ]
    open_entries = [entry for entry in ledger if not entry.cause]
    return lines + [f"flaky since {entry.seen}, cause not known: {entry.test}" for entry in open_entries]


def failed_tests(cache: Path) -> set[str] | None:
    """The names of tests that failed, as pytest noted them in its cache; None if it noted nothing."""
    try:
        noted = json.loads((cache / "v" / "cache" / "lastfailed").read_text())
    except (OSError, ValueError):
        return None
    return {test for test in noted if "::" in test}


def note_failed(cache: Path, tests: Iterable[str]) -> None:
    """Let `pytest --last-failed` take these tests."""
    file = cache / "v" / "cache" / "lastfailed"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(dict.fromkeys(tests, True)))
