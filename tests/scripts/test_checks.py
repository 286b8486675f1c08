"""`./sparrow test`: which checks belong to a tier, in which turn they start, and the last line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from scripts import checks
from scripts.check_runs import Count
from scripts.checks import CHECKS, Check, Tier, arguments_of, default_jobs, in_turn, main, start

ROOT = Path(__file__).parents[2]


class Ended:
    """A check that ended at once with these results."""

    def __init__(self, name: str, count: Count) -> None:
        self.name = name
        self._count = count

    def has_ended(self) -> bool:
        return True

    def interrupt(self) -> None:
        raise AssertionError("it has ended")

    def end(self, seconds: float) -> None:
        raise AssertionError("it has ended")

    def output(self) -> str:
        return f"{self.name} says this"

    def count(self) -> Count:
        return self._count


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the checks that were started; each counts two passed tests."""
    names: list[str] = []

    def fake(check: Check, *, root: Path, directory: Path, tier: Tier) -> Ended:
        names.append(check.name)
        assert root == ROOT and directory.is_dir()
        return Ended(check.name, Count(passed=2))

    monkeypatch.setattr(checks, "start", fake)
    return names


LINT = ["ruff check", "ruff format", "mypy"]
FAST = [*LINT, "unit", "coordinator", "clients", "contract"]
FULL = [*LINT, "spark", "unit", "interop", "coordinator", "clients", "crash", "databases", "contract"]
LONG = [*FULL, "other versions of Spark", "mutation"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [(["fast"], FAST), (["full"], FULL), ([], FULL), (["long"], LONG), (["--jobs", "1"], FULL)],
)  # fmt: skip
def test_a_tier_runs_its_checks_the_longest_first(
    capsys: pytest.CaptureFixture[str], ran: list[str], arguments: list[str], names: list[str]
) -> None:
    assert main(arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ran == names
    assert lines[-1] == f"{2 * len(names)} passed, 0 failed"
    for name in names:
        assert f"{name} says this" in lines
        assert f"=== {name}: 2 passed, 0 failed in 0 s" in lines


def test_the_long_tier_runs_every_check(ran: list[str]) -> None:
    main(["long"])
    assert sorted(ran) == sorted(check.name for check in CHECKS)


@pytest.mark.parametrize(
    ("count", "line"),
    [(Count(1, 1, 0), "1 passed, 1 failed"), (Count(3, 1, 2), "3 passed, 1 failed, 2 skipped"),
     (Count(0, 0, 0), "0 passed, 0 failed")],
)  # fmt: skip
def test_a_failure_or_nothing_at_all_is_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, count: Count, line: str
) -> None:
    monkeypatch.setattr(checks, "start", lambda check, **_: Ended(check.name, count))
    monkeypatch.setattr(checks, "CHECKS", CHECKS[:1])
    assert main([]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == line


@pytest.mark.parametrize(
    ("tier", "cores", "jobs"), [(Tier.FULL, 1, 1), (Tier.FULL, 2, 2), (Tier.FAST, 64, 2), (Tier.LONG, 64, 1)]
)
def test_checks_run_side_by_side_where_there_is_room(tier: Tier, cores: int, jobs: int) -> None:
    assert default_jobs(tier, cores) == jobs


def test_the_number_side_by_side_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def fake(starts: Sequence[object], jobs: int, say: object) -> dict[str, Count]:
        given.append(jobs)
        return {str(number): Count(1) for number in range(len(starts))}

    monkeypatch.setattr(checks, "run_all", fake)
    assert main(["--jobs", "7"]) == 0
    assert given == [7, 1]


@pytest.mark.parametrize("arguments", [("--jobs", "0"), ("--jobs", "-1"), ("--jobs", "x"), ("quick",)])
def test_wrong_usage_is_status_2(
    capsys: pytest.CaptureFixture[str], ran: list[str], arguments: tuple[str, ...]
) -> None:
    with pytest.raises(SystemExit) as error:
        main(arguments)
    assert (error.value.code, ran) == (2, [])
    assert "./sparrow test: error:" in capsys.readouterr().err


def test_every_directory_of_tests_is_run_once() -> None:
    unit = next(check for check in CHECKS if check.name == "unit")
    for kind in checks.KINDS:
        assert f"--ignore=tests/{kind}" in unit.arguments
        assert sum(f"tests/{kind}" in check.arguments for check in CHECKS) == 1


def test_those_of_seconds_start_before_the_longest() -> None:
    table = [Check("a", (), minutes=1), Check("b", ()), Check("c", (), minutes=9), Check("d", (), Tier.LONG)]
    assert [check.name for check in in_turn(table, Tier.LONG)] == ["b", "c", "a", "d"]
    assert [check.name for check in in_turn(table, Tier.FULL)] == ["b", "c", "a"]


UNIT = Check("unit", ("pytest", "tests"), pytest=True)


def test_the_fast_tier_leaves_slow_tests_out_and_the_long_one_lets_them_take_long() -> None:
    assert arguments_of(UNIT, Tier.FAST) == [
        "pytest",
        "tests",
        "-m",
        "not crash and not databases and not interop and not spark",
    ]
    assert arguments_of(UNIT, Tier.FULL) == ["pytest", "tests"]
    assert arguments_of(UNIT, Tier.LONG) == ["pytest", "tests", "--timeout=3600"]
    assert [arguments_of(Check("mypy", ("mypy",)), tier) for tier in Tier] == [["mypy"]] * 3


@pytest.mark.parametrize("tier", Tier)
def test_a_check_knows_its_tier_and_where_it_runs(tmp_path: Path, tier: Tier) -> None:
    (tmp_path / "made.py").write_text("import os; print(os.getcwd(), os.environ['SPARROW_TEST_TIER'])")
    (tmp_path / "kept").mkdir()
    run = start(Check("it", ("made",)), root=tmp_path, directory=tmp_path / "kept", tier=tier)
    assert (run.name, run.count()) == ("it", Count(passed=1))
    assert run.output().split() == [str(tmp_path), tier.value]
    assert list((tmp_path / "kept").iterdir())


TESTS = """
from pathlib import Path
import pytest

def test_steady():
    Path("steady").touch(exist_ok=False)

def test_unsteady():
    if not Path("seen").exists():
        Path("seen").touch()
        raise AssertionError("busy")

def test_wrong():
    assert not Path("wrong").exists()
"""


@pytest.mark.parametrize(
    ("wrong", "status", "line"),
    [(False, 0, "3 passed, 0 failed, 1 unsteady"), (True, 1, "2 passed, 1 failed, 1 unsteady")],
)
def test_tests_that_failed_run_once_more(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    wrong: bool,
    status: int,
    line: str,
) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    if wrong:
        (tmp_path / "wrong").touch()
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "CHECKS", (Check("few tests", ("pytest", "test_it.py"), pytest=True),))
    assert main([]) == status
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == line
    assert [text for text in lines if text.endswith(" begins")] == [
        "=== few tests begins",
        "=== few tests again begins",
    ]
    assert not (tmp_path / ".pytest_cache").exists()


@pytest.mark.parametrize(
    ("check", "count", "repeated"),
    [
        (UNIT, Count(5, 1), True),
        (UNIT, Count(5, checks.REPEATED_MAX), True),
        (UNIT, Count(5, checks.REPEATED_MAX + 1), False),
        (UNIT, Count(5), False),
        (Check("mypy", ("mypy",)), Count(0, 1), False),
    ],
)
def test_few_failures_of_tests_are_repeated(check: Check, count: Count, repeated: bool) -> None:
    assert checks.is_repeated(check, count) is repeated
