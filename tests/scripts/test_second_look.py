"""The second look: which tests it takes, what it says of them, and the ledger of flaky tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from scripts.second_look import (
    FLAKY_MAX,
    LEDGER,
    Flaky,
    LedgerEntry,
    failed_tests,
    look_again,
    note_failed,
    read_ledger,
    unexplained,
)

ROOT = Path(__file__).parents[2]


class Looks:
    """Looks whose failures are given; what each of them was asked."""

    def __init__(self, *failures: set[str]) -> None:
        self._failures = [*failures]
        self.asked: list[tuple[str, list[str]]] = []

    def __call__(self, name: str, tests: Sequence[str]) -> set[str]:
        self.asked.append((name, [*tests]))
        return self._failures.pop(0)


@pytest.mark.parametrize(
    ("failures", "flaky", "failed", "asked"),
    [
        ([set()], ["a", "b"], [], [["a", "b"]]),
        ([{"b"}, set()], ["a", "b"], [], [["a", "b"], ["b"]]),
        ([{"b"}, {"b"}], ["a"], ["b"], [["a", "b"], ["b"]]),
    ],
)
def test_failures_are_looked_at_up_to_twice_more(
    failures: list[set[str]], flaky: list[str], failed: list[str], asked: list[list[str]]
) -> None:
    looks = Looks(*failures)
    found = look_again({"b": "two", "a": "one"}, [], looks, print)
    assert found == ([Flaky(test, {"a": "one", "b": "two"}[test]) for test in flaky], failed)
    assert [tests for _, tests in looks.asked] == asked
    assert [name for name, _ in looks.asked] == ["second look", "third look"][: len(asked)]


def test_final_failures_are_not_looked_at() -> None:
    looks = Looks(set())
    assert look_again({"a": "one", "b": "two"}, ["b", "c"], looks, print) == ([Flaky("a", "one")], ["b"])
    assert looks.asked == [("second look", ["a"])]


def test_more_failures_than_a_machine_makes_are_final() -> None:
    said: list[str] = []
    failures = {f"t{number:02d}": "x" for number in range(FLAKY_MAX + 1)}
    assert look_again(failures, [], Looks(), said.append) == ([], sorted(failures))
    assert said == ["31 tests failed, more than 30: they do not run again"]


def test_what_pytest_noted(tmp_path: Path) -> None:
    assert failed_tests(tmp_path) is None
    note_failed(tmp_path, ["tests/a.py::b", "tests/broken.py"])
    assert failed_tests(tmp_path) == {"tests/a.py::b"}


LEDGER_TEXT = """
[[flaky]]
test = "t.py::known"
seen = "2026-11-28"
failure = "busy"
cause = "a fixed port"
mended = "the port is free"

[[flaky]]
test = "t.py::open"
seen = "2026-11-27"
failure = "busy"
"""


def test_flaky_tests_without_a_cause_are_named(tmp_path: Path) -> None:
    (tmp_path / "flaky.toml").write_text(LEDGER_TEXT)
    ledger = read_ledger(tmp_path / "flaky.toml")
    flaky = [Flaky("t.py::known[1]", "x"), Flaky("t.py::new", "x")]
    assert unexplained(flaky, ledger) == [
        "not in tests/flaky.toml yet, add it: t.py::new",
        "flaky since 2026-11-27, cause not known: t.py::open",
    ]
    assert read_ledger(tmp_path / "none.toml") == []


def test_the_ledger_is_complete() -> None:
    ledger = read_ledger(ROOT / LEDGER)
    assert len({entry.test for entry in ledger}) == len(ledger)
    for entry in ledger:
        assert entry.seen and entry.failure, entry
        assert entry.cause or not entry.mended, f"{entry.test} was mended, but its cause is not known"
        if not entry.mended:
            assert exists(entry), f"{entry.test} is not there any more: say what mended it"


def exists(entry: LedgerEntry) -> bool:
    file, _, name = entry.test.partition("::")
    return (ROOT / file).is_file() and f"def {name.split('::')[-1].partition('[')[0]}(" in (
        ROOT / file
    ).read_text()
