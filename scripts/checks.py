"""`./sparrow test`: every check of a clone of the repository, and one count at the end.

    python -m scripts.checks [fast|gate|full|long] [--jobs N]

The last line is the count. One failure, or no test at all, makes the exit status 1.

Checks run side by side on machines that may be busy. So tests that failed run again at the end, alone, up
to twice (`scripts/second_look.py`). Those that pass then are shown as flaky and do not fail the run. A check
that broke as a whole, lint, types, and tests of files that the change touches get no such second look; the
latter run five times. `build/tests.xml` has all results.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from scripts.check_runs import Finished, Process, run_all
from scripts.reports import Count, junit_name, merge_reports, slowest
from scripts.second_look import LEDGER, Flaky, look_again, note_failed, read_ledger, unexplained
from scripts.touched import touched_test_files

ROOT: Final = Path(__file__).resolve().parent.parent


class Tier(StrEnum):
    """How much is run; each holds the ones before it."""

    FAST = "fast"
    GATE = "gate"
    FULL = "full"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class Check:
    """One command, run from `tier` on; `pytest` ones count each test, the others count as one.

    `minutes` is about how long it takes in the gate on two cores: the longest start first, so that none is
    left over. `may_be_empty`: in some tier all of its tests may be left out.
    """

    name: str
    arguments: Sequence[str]
    tier: Tier = Tier.FAST
    pytest: bool = False
    minutes: float = 0
    may_be_empty: bool = False

    def belongs_to(self, tier: Tier) -> bool:
        """Whether the tier runs it."""
        order = list(Tier)
        return order.index(self.tier) <= order.index(tier)


SLOW_KINDS: Final = {"crash": 2.4, "databases": 0.7, "interop": 2.1}
"""Directories of tests that the fast tier leaves out, with their minutes."""
UNIT_PARTS: Final = {
    "broker": (("broker", "nameserver", "proxy", "runtime", "torture", "transport"), 3.1),
    "clients": (("cli", "client"), 4.4),
    "console": (("console",), 2.6),
    "coordinator": (("coordinator",), 2.5),
    "store": (("files", "hostile", "memory", "simulation", "store"), 2.4),
}
"""Directories of unit tests that run in processes of their own, with their minutes: no check takes more than
a quarter of all. Servers that tests of one of them share run until its process ends, and would run beside all
other tests."""
KINDS: Final = (
    *("contract", "spark", "versions"), *SLOW_KINDS,
    *(name for names, _ in UNIT_PARTS.values() for name in names)
)  # fmt: skip
LINT_PATHS: Final = ("src", "tests", "benchmarks", "scripts", "examples")
LONG_SECONDS_MAX: Final = 3600
TIMES_TOUCHED: Final = 5
"""How often tests of files that the change touches run, the first time among all others."""

CHECKS: Final = (
    Check("ruff check", ("ruff", "check", *LINT_PATHS)),
    Check("ruff format", ("ruff", "format", "--check", *LINT_PATHS)),
    Check("mypy", ("mypy", *LINT_PATHS), minutes=1),  # one check: two at a time would share a cache
    Check(
        "unit", ("pytest", "tests", *(f"--ignore=tests/{kind}" for kind in KINDS)), pytest=True, minutes=2.9
    ),
    *(
        Check(part, ("pytest", *(f"tests/{name}" for name in names)), pytest=True, minutes=minutes)
        for part, (names, minutes) in UNIT_PARTS.items()
    ),
    Check("contract", ("pytest", "tests/contract"), pytest=True, minutes=0.5),
    Check("spark without a session", ("pytest", "tests/spark", "-m", "not spark"), pytest=True, minutes=1.5),
    *(
        Check(kind, ("pytest", f"tests/{kind}"), Tier.GATE, pytest=True, minutes=minutes)
        for kind, minutes in SLOW_KINDS.items()
    ),
    Check("spark", ("pytest", "tests/spark", "-m", "spark"), Tier.GATE, pytest=True, minutes=4.5),
    Check("other versions of Spark", ("pytest", "tests/versions"), Tier.LONG, pytest=True),
    Check("mutation", ("tests.mutation",), Tier.LONG),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks of this repository; the exit status."""
    given = parser().parse_args(arguments)
    tier, jobs = Tier(given.tier), given.jobs or default_jobs(Tier(given.tier), os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="sparrow-test-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        begin = partial(start, root=ROOT, directory=directory, tier=tier)
        found = run_all([partial(begin, check) for check in in_turn(CHECKS, tier)], jobs, _say)
        touched = touched_test_files(ROOT)
        failures = first_failures(found)
        final = [test for test in failures if test.partition("::")[0] in touched]
        flaky, failed = look_again(failures, final, partial(_look, directory=directory, tier=tier), _say)
        found += run_all([partial(begin, check) for check in repeated(touched)], 1, _say)
        merge_reports(sorted(directory.glob("*.xml")), flaky, ROOT / "build" / "tests.xml")
    total = totals(found, flaky)
    _tell(found, flaky, failed)
    _say(str(total))
    return 1 if total.failed or not total.passed else 0


def parser() -> argparse.ArgumentParser:
    """What `./sparrow test` takes."""
    made = argparse.ArgumentParser(
        prog="./sparrow test", description="Run the checks of this repository; the last line is the count."
    )
    made.add_argument(
        "tier",
        nargs="?",
        choices=[tier.value for tier in Tier],
        default=Tier.GATE.value,
        help="fast: what needs neither Java nor databases; gate: what CI runs, the default; "
        "full: all tests; long: more samples, mutations, no hurry",
    )
    made.add_argument(
        "--jobs",
        type=_at_least_one,
        help="checks that run side by side; by default three for two cores, 1 in the long tier",
    )
    return made


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1")
    return number


def _say(text: str) -> None:
    print(text, flush=True)


def default_jobs(tier: Tier, cores: int) -> int:
    """How many checks run side by side: half as many again as there are cores, since tests wait half of their
    time; one in the long tier, which nothing hurries.
    """
    return 1 if tier is Tier.LONG else cores + cores // 2


def in_turn(checks: Sequence[Check], tier: Tier) -> list[Check]:
    """The checks of the tier as they are started: those of seconds, the longest first, mutations last."""
    found = [check for check in checks if check.belongs_to(tier)]
    return sorted(found, key=lambda check: (check.tier is Tier.LONG, check.minutes > 0, -check.minutes))


def repeated(files: Sequence[str]) -> list[Check]:
    """Runs of the tests that the change touches, after the first."""
    if not files:
        return []
    return [
        Check(
            f"touched tests, {number} of {TIMES_TOUCHED}", ("pytest", *files), pytest=True, may_be_empty=True
        )
        for number in range(2, TIMES_TOUCHED + 1)
    ]


def arguments_of(check: Check, tier: Tier) -> list[str]:
    """What follows `python -m`: in the long tier with time for each test."""
    more = (f"--timeout={LONG_SECONDS_MAX}",) if check.pytest and tier is Tier.LONG else ()
    return [*check.arguments, *more]


def start(check: Check, *, root: Path, directory: Path, tier: Tier, cache: Path | None = None) -> Process:
    """Start one check, which keeps its output below `directory`."""
    return Process(
        check.name,
        arguments_of(check, tier),
        root,
        directory,
        environment={**os.environ, "SPARROW_TEST_TIER": tier.value},
        counts=check.pytest,
        cache=cache,
        may_be_empty=check.may_be_empty,
    )


def _look(name: str, tests: Sequence[str], *, directory: Path, tier: Tier) -> set[str]:
    """Run these tests in one process with nothing beside it; those that failed again."""
    files = sorted({test.partition("::")[0] for test in tests})
    arguments = ("pytest", *files, "--last-failed", "--last-failed-no-failures=none")
    # Not among the reports of first runs, which are merged.
    below = directory / name.replace(" ", "-")
    below.mkdir()
    note_failed(below / "cache", tests)
    check = Check(name, arguments, pytest=True)
    begin = partial(start, check, root=ROOT, directory=below, tier=tier, cache=below / "cache")
    (looked,) = run_all([begin], 1, _say)
    return looked.run.failed() if looked.count.passed + looked.count.failed == len(tests) else set(tests)


def first_failures(found: Sequence[Finished]) -> dict[str, str]:
    """The first failure of each test that failed."""
    failures = {}
    for one in found:
        messages = one.run.report().messages
        for test in one.run.failed():
            failures[test] = messages.get(junit_name(test), "see above")
    return failures


def totals(found: Sequence[Finished], flaky: Sequence[Flaky]) -> Count:
    """What counts in the end: a flaky test has passed."""
    total = Count(len(flaky), -len(flaky))
    for one in found:
        total.add(one.count)
    return total


def _tell(found: Sequence[Finished], flaky: Sequence[Flaky], failed: Sequence[str]) -> None:
    """Minutes of the checks, the slowest tests, those that failed, and flaky ones with what is known."""
    seconds = {name: taken for one in found for name, taken in one.run.report().seconds.items()}
    if seconds:
        _say("the slowest tests:")
        for line in slowest(seconds):
            _say(line)
    _say("minutes: " + ", ".join(f"{one.run.name} {one.seconds / 60:.1f}" for one in found))
    for line in unexplained(flaky, read_ledger(ROOT / LEDGER)):
        _say(line)
    for test in failed:
        _say(f"failed: {test}")
    for one in flaky:
        _say(str(one))
    if flaky:
        _say(f"{len(flaky)} flaky")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
