"""`./sparrow test`: every check of a clone of the repository, and one count at the end.

    python -m scripts.checks [fast|full|long] [--jobs N]

The last line is the count. One failure, or no test at all, makes the exit status 1.

Checks run side by side on machines that may be busy. So tests that failed run once more at the end, with
nothing beside them. Those that pass then do not fail the run; the last line counts them as unsteady.
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

from scripts.check_runs import Count, Process, Run, run_all

ROOT: Final = Path(__file__).resolve().parent.parent


class Tier(StrEnum):
    """How much is run; each holds the ones before it."""

    FAST = "fast"
    FULL = "full"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class Check:
    """One command, run from `tier` on; `pytest` ones count each test, the others count as one.

    `minutes` is about how long it takes on two cores: the longest start first, so that none is left over.
    """

    name: str
    arguments: Sequence[str]
    tier: Tier = Tier.FAST
    pytest: bool = False
    minutes: int = 0

    def belongs_to(self, tier: Tier) -> bool:
        """Whether the tier runs it."""
        order = list(Tier)
        return order.index(self.tier) <= order.index(tier)


SLOW_KINDS: Final = {"crash": 6, "databases": 4, "interop": 13, "spark": 26}
"""Directories of tests that the fast tier leaves out, with their minutes."""
UNIT_PARTS: Final = {"clients": (("cli", "client"), 7), "coordinator": (("console", "coordinator"), 12)}
"""Directories of unit tests that run in processes of their own, with their minutes. Servers that tests of one
of them share run until its process ends, and would run beside all other tests."""
KINDS: Final = (
    "contract", *SLOW_KINDS, "versions", *(name for names, _ in UNIT_PARTS.values() for name in names)
)  # fmt: skip
LINT_PATHS: Final = ("src", "tests", "benchmarks", "scripts", "examples")
LONG_SECONDS_MAX: Final = 3600
JOBS_MAX: Final = 2
"""Checks side by side: most of the time one of them waits for timers, disks and other processes."""
REPEATED_MAX: Final = 20
"""Failures of one check that are worth a second run; more of them are not the machine's."""

CHECKS: Final = (
    Check("ruff check", ("ruff", "check", *LINT_PATHS)),
    Check("ruff format", ("ruff", "format", "--check", *LINT_PATHS)),
    Check("mypy", ("mypy", *LINT_PATHS)),  # one check: two at a time would share a cache and break it
    Check(
        "unit", ("pytest", "tests", *(f"--ignore=tests/{kind}" for kind in KINDS)), pytest=True, minutes=15
    ),
    *(
        Check(part, ("pytest", *(f"tests/{name}" for name in names)), pytest=True, minutes=minutes)
        for part, (names, minutes) in UNIT_PARTS.items()
    ),
    Check("contract", ("pytest", "tests/contract"), pytest=True, minutes=1),
    *(
        Check(kind, ("pytest", f"tests/{kind}"), Tier.FULL, pytest=True, minutes=minutes)
        for kind, minutes in SLOW_KINDS.items()
    ),
    Check("other versions of Spark", ("pytest", "tests/versions"), Tier.LONG, pytest=True),
    Check("mutation", ("tests.mutation",), Tier.LONG),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks of this repository; the exit status."""
    given = parser().parse_args(arguments)
    tier, jobs = Tier(given.tier), given.jobs or default_jobs(Tier(given.tier), os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="sparrow-test-", ignore_cleanup_errors=True) as directory:
        begin = partial(start, root=ROOT, directory=Path(directory), tier=tier)
        found = run_all([partial(begin, check) for check in in_turn(CHECKS, tier)], jobs, _say)
        failed = [check for check in CHECKS if check.name in found and is_repeated(check, found[check.name])]
        again = run_all([partial(begin, check, again=True) for check in failed], 1, _say)
    total = Count()
    for name, count in found.items():
        total.add(count.repeated(again.get(repeated_name(name), Count())))
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
        default=Tier.FULL.value,
        help="fast: two minutes; full: what CI runs, the default; long: more samples, mutations, no hurry",
    )
    made.add_argument(
        "--jobs",
        type=_at_least_one,
        help="checks that run side by side; by default 2, but 1 on one core and in the long tier",
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
    """How many checks run side by side: one in the long tier, which nothing hurries."""
    return 1 if tier is Tier.LONG else min(JOBS_MAX, cores)


def in_turn(checks: Sequence[Check], tier: Tier) -> list[Check]:
    """The checks of the tier as they are started: those of seconds, the longest first, mutations last."""
    found = [check for check in checks if check.belongs_to(tier)]
    return sorted(found, key=lambda check: (check.tier is Tier.LONG, check.minutes > 0, -check.minutes))


def arguments_of(check: Check, tier: Tier) -> list[str]:
    """What follows `python -m`: in the fast tier without slow tests, in the long one with time for each."""
    more: Sequence[str] = ()
    if check.pytest and tier is Tier.FAST:
        more = ("-m", " and ".join(f"not {kind}" for kind in SLOW_KINDS))
    elif check.pytest and tier is Tier.LONG:
        more = (f"--timeout={LONG_SECONDS_MAX}",)
    return [*check.arguments, *more]


def is_repeated(check: Check, count: Count) -> bool:
    """Whether the tests of the check that failed run again."""
    return check.pytest and 0 < count.failed <= REPEATED_MAX


def repeated_name(name: str) -> str:
    """What the second run of a check is called."""
    return f"{name} again"


def start(check: Check, *, root: Path, directory: Path, tier: Tier, again: bool = False) -> Run:
    """Start one check, which keeps its output below `directory`; `again` runs only the tests that failed."""
    environment = {**os.environ, "SPARROW_TEST_TIER": tier.value}
    arguments = arguments_of(check, tier)
    if check.pytest:
        # Where pytest notes what failed. In the directory of the sources, checks side by side would share it.
        arguments += ["-o", f"cache_dir={directory / 'failed' / check.name.replace(' ', '-')}"]
    if again:
        arguments += ["--last-failed", "--last-failed-no-failures=none"]
    name = repeated_name(check.name) if again else check.name
    return Process(name, arguments, root, directory, environment=environment, counts=check.pytest)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
