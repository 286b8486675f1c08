"""`sparrow test`: which checks belong to a tier, how results are counted, and the last line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrowmq.cli import checks
from sparrowmq.cli.checks import CHECKS, Check, Count, Tier, read_report, repository, run_check

if TYPE_CHECKING:
    from tests.cli.conftest import Sparrow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the checks that were run; each counts two passed tests."""
    names: list[str] = []

    def fake(check: Check, root: Path, tier: Tier) -> Count:
        names.append(check.name)
        assert root == ROOT
        return Count(passed=2)

    monkeypatch.setattr(checks, "run_check", fake)
    return names


FAST = ["ruff check", "ruff format", "mypy", "unit", "contract"]
FULL = [*FAST, "crash", "interop", "spark"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [(["fast"], FAST), (["full"], FULL), ([], FULL), (["long"], [*FULL, "mutation"])],
)
def test_a_tier_runs_its_checks_in_order(
    sparrow: Sparrow, ran: list[str], arguments: list[str], names: list[str]
) -> None:
    outcome = sparrow("test", *arguments)
    assert ran == names
    assert outcome.lines[-1] == f"{2 * len(names)} passed, 0 failed"


def test_the_long_tier_runs_every_check(sparrow: Sparrow, ran: list[str]) -> None:
    sparrow("test", "long")
    assert ran == [check.name for check in CHECKS]


@pytest.mark.parametrize(
    ("count", "line"),
    [(Count(1, 1, 0), "1 passed, 1 failed"), (Count(3, 1, 2), "3 passed, 1 failed, 2 skipped"),
     (Count(0, 0, 0), "0 passed, 0 failed")],
)  # fmt: skip
def test_a_failure_or_nothing_at_all_is_status_1(
    sparrow: Sparrow, monkeypatch: pytest.MonkeyPatch, count: Count, line: str
) -> None:
    monkeypatch.setattr(checks, "run_check", lambda *_: count)
    monkeypatch.setattr(checks, "CHECKS", CHECKS[:1])
    assert sparrow("test", status=1).lines[-1] == line


def test_every_directory_of_tests_is_run_once() -> None:
    unit = next(check for check in CHECKS if check.name == "unit")
    for kind in checks.KINDS:
        assert f"--ignore=tests/{kind}" in unit.arguments
        assert any(check.arguments == ("pytest", f"tests/{kind}") for check in CHECKS)


def make_repository(root: Path, test: str) -> Check:
    (root / "tests" / "unit").mkdir(parents=True)
    (root / "pyproject.toml").write_text(
        "[tool.pytest.ini_options]\nmarkers = ['crash', 'interop', 'spark']\n"
    )
    (root / "tests" / "unit" / "test_it.py").write_text(test)
    return Check("unit", ("pytest", "tests/unit", "-p", "no:cacheprovider"), pytest=True)


def test_pytest_is_counted(tmp_path: Path) -> None:
    check = make_repository(
        tmp_path,
        "import os, pytest\n"
        "def test_a(): assert os.environ['SPARROW_TEST_TIER'] == 'full'\n"
        "def test_b(): assert False\n"
        "@pytest.mark.skip\ndef test_c(): pass\n"
        "@pytest.mark.crash\ndef test_d(): pass\n"
        "@pytest.fixture\ndef broken(): raise ValueError\n"
        "def test_e(broken): pass\n",
    )
    assert run_check(check, tmp_path, Tier.FULL) == Count(2, 2, 1)
    assert run_check(check, tmp_path, Tier.FAST) == Count(0, 3, 1)


@pytest.mark.parametrize("test", ["", "def test_(:"])
def test_no_test_at_all_is_a_failure(tmp_path: Path, test: str) -> None:
    check = make_repository(tmp_path, test)
    assert run_check(check, tmp_path, Tier.FULL) == Count(0, 1, 0)


@pytest.mark.parametrize(
    ("code", "count"), [("raise SystemExit(0)", Count(1, 0)), ("raise SystemExit(3)", Count(0, 1))]
)
def test_other_checks_count_one(tmp_path: Path, code: str, count: Count) -> None:
    (tmp_path / "lint.py").write_text(code)
    assert run_check(Check("lint", ("lint",)), tmp_path, Tier.FULL) == count


def test_no_report_counts_nothing(tmp_path: Path) -> None:
    assert read_report(tmp_path / "none.xml") == Count()


def test_outside_a_clone_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert repository() == ROOT
    monkeypatch.setattr(checks, "__file__", str(tmp_path / "a" / "b" / "c" / "d.py"))
    with pytest.raises(checks.UsageError, match=r"clone it and type \./sparrow test"):
        repository()
