"""`./sparrow test`: which checks belong to a tier, in which turn they start, and the last line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from scripts import checks
from scripts.check_runs import Finished
from scripts.checks import CHECKS, Check, Tier, arguments_of, default_jobs, in_turn, main, repeated, start
from scripts.reports import Count, Report
from scripts.second_look import FLAKY_MAX

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

    def report(self) -> Report:
        return Report(self._count)

    def failed(self) -> set[str]:
        return set()


@pytest.fixture(autouse=True)
def no_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runs of these tests write no report of their own, and what is touched here is no matter."""
    monkeypatch.setattr(checks, "merge_reports", lambda *_: None)
    monkeypatch.setattr(checks, "touched_test_files", lambda root: [])


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
UNIT = ["clients", "broker", "unit", "console", "coordinator", "store"]
FAST = [*LINT[:2], *UNIT, "spark without a session", "mypy", "contract"]
GATE = [check.name for check in in_turn(CHECKS, Tier.GATE)]
LONG = [*GATE, "other versions of Spark", "mutation"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [(["fast"], FAST), (["gate"], GATE), ([], GATE), (["full"], GATE), (["long"], LONG),
     (["--jobs", "1"], GATE)],
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


def test_the_gate_runs_programs_of_others_too() -> None:
    assert set(GATE) - set(FAST) == {"crash", "databases", "interop", "spark"}


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
    ("tier", "cores", "jobs"), [(Tier.FULL, 1, 1), (Tier.FULL, 2, 3), (Tier.FAST, 64, 96), (Tier.LONG, 64, 1)]
)
def test_checks_run_side_by_side_where_there_is_room(tier: Tier, cores: int, jobs: int) -> None:
    assert default_jobs(tier, cores) == jobs


def test_the_number_side_by_side_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def fake(starts: Sequence[object], jobs: int, say: object) -> list[Finished]:
        given.append(jobs)
        return [Finished(Ended("it", Count(1)), Count(1), 0.0) for _ in starts]

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
        runs = [check.arguments for check in CHECKS if f"tests/{kind}" in check.arguments]
        assert [run[run.index("-m") + 1] if "-m" in run else "" for run in runs] == (
            ["not spark", "spark"] if kind == "spark" else [""]
        )


def test_no_check_of_the_gate_is_much_longer_than_the_others() -> None:
    """Three run side by side: the longest one must not be what the others wait for."""
    minutes = [check.minutes for check in CHECKS if check.belongs_to(Tier.GATE)]
    assert 4 * max(minutes) <= sum(minutes)


def test_those_of_seconds_start_before_the_longest() -> None:
    table = [Check("a", (), minutes=1), Check("b", ()), Check("c", (), minutes=9), Check("d", (), Tier.LONG)]
    assert [check.name for check in in_turn(table, Tier.LONG)] == ["b", "c", "a", "d"]
    assert [check.name for check in in_turn(table, Tier.FULL)] == ["b", "c", "a"]


TESTS = Check("unit", ("pytest", "tests"), pytest=True)


def test_the_long_tier_lets_tests_take_long() -> None:
    assert arguments_of(TESTS, Tier.FULL) == ["pytest", "tests"]
    assert arguments_of(TESTS, Tier.LONG) == ["pytest", "tests", "--timeout=3600"]
    assert [arguments_of(Check("mypy", ("mypy",)), tier) for tier in Tier] == [["mypy"]] * len(Tier)


@pytest.mark.parametrize("tier", Tier)
def test_a_check_knows_its_tier_and_where_it_runs(tmp_path: Path, tier: Tier) -> None:
    (tmp_path / "made.py").write_text("import os; print(os.getcwd(), os.environ['SPARROW_TEST_TIER'])")
    (tmp_path / "kept").mkdir()
    run = start(Check("it", ("made",)), root=tmp_path, directory=tmp_path / "kept", tier=tier)
    assert (run.name, run.count()) == ("it", Count(passed=1))
    assert run.output().split() == [str(tmp_path), tier.value]
    assert list((tmp_path / "kept").iterdir())


ONCE = """
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range({number}))
def test_once(number):
    seen = Path(f"seen-{{number}}")
    if not seen.exists():
        seen.touch()
        raise AssertionError("busy")
"""
TWICE = """
from pathlib import Path

def test_twice():
    runs = Path("runs")
    before = int(runs.read_text()) if runs.exists() else 0
    runs.write_text(str(before + 1))
    assert before == 2
"""
ALWAYS = "def test_always(): raise ValueError('wrong')\n"
STEADY = "from pathlib import Path\ndef test_steady(): Path('steady').touch(exist_ok=False)\n"
CRASH = "import os\ndef test_crash(): os._exit(1)\n"
BROKEN = "import nothing_of_this_name\n"


class Suite:
    """A suite of some files, run as one check."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys

    def run(self, status: int, **files: str) -> list[str]:
        for name, text in files.items():
            (self.root / f"test_{name}.py").write_text(text)
        assert main(["--jobs", "1"]) == status
        return self._capsys.readouterr().out.splitlines()


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Suite:
    monkeypatch.setattr(checks, "ROOT", tmp_path)
    monkeypatch.setattr(checks, "CHECKS", (Check("few tests", ("pytest", "."), pytest=True),))
    return Suite(tmp_path, capsys)


def begun(lines: list[str]) -> list[str]:
    return [line.split()[1] for line in lines if line.endswith(" begins")]


def test_a_test_that_fails_once_is_flaky(suite: Suite) -> None:
    lines = suite.run(0, steady=STEADY, once=ONCE.format(number=1))
    assert lines[-3:] == [
        "flaky: test_once.py::test_once[0] (first failure: AssertionError: busy)",
        "1 flaky",
        "2 passed, 0 failed",
    ]
    assert "not in tests/flaky.toml yet, add it: test_once.py::test_once[0]" in lines
    assert begun(lines) == ["few", "second"]
    assert not (suite.root / ".pytest_cache").exists()


def test_a_test_that_passes_at_last_is_flaky(suite: Suite) -> None:
    lines = suite.run(0, twice=TWICE)
    assert (lines[-1], begun(lines)) == ("1 passed, 0 failed", ["few", "second", "third"])


def test_a_test_that_fails_three_times_fails(suite: Suite) -> None:
    lines = suite.run(1, steady=STEADY, always=ALWAYS, once=ONCE.format(number=1))
    assert lines[-1] == "2 passed, 1 failed"
    assert "failed: test_always.py::test_always" in lines
    assert begun(lines) == ["few", "second", "third"]


def test_a_run_that_crashes_has_no_second_look(suite: Suite) -> None:
    lines = suite.run(1, once=ONCE.format(number=1), the=CRASH)
    assert (lines[-1], begun(lines)) == ("0 passed, 1 failed", ["few"])


def test_a_second_look_that_crashes_excuses_nothing(suite: Suite) -> None:
    text = ONCE.format(number=1) + "        return\n    import os\n    os._exit(0)\n"
    lines = suite.run(1, steady=STEADY, once=text)
    assert lines[-1] == "1 passed, 1 failed"


def test_files_that_cannot_be_imported_have_no_second_look(suite: Suite) -> None:
    lines = suite.run(1, broken=BROKEN)
    assert (lines[-1], begun(lines)) == ("0 passed, 1 failed", ["few"])


def test_too_many_flaky_tests_fail(suite: Suite) -> None:
    lines = suite.run(1, steady=STEADY, once=ONCE.format(number=FLAKY_MAX + 1))
    assert (lines[-1], begun(lines)) == (f"1 passed, {FLAKY_MAX + 1} failed", ["few"])
    assert f"{FLAKY_MAX + 1} tests failed, more than {FLAKY_MAX}: they do not run again" in lines


def test_tests_that_the_change_touches_run_five_times(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "touched_test_files", lambda root: ["test_once.py"])
    lines = suite.run(1, once=ONCE.format(number=1))
    assert (lines[-1], begun(lines)) == ("4 passed, 1 failed", ["few", *["touched"] * 4])


def test_touched_tests_may_belong_to_another_tier() -> None:
    assert [check.name for check in repeated(["tests/test_a.py"])] == [
        f"touched tests, {number} of 5" for number in (2, 3, 4, 5)
    ]
    assert all(check.may_be_empty for check in repeated(["tests/test_a.py"]))
    assert repeated([]) == []
