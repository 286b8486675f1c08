"""`sparrow test`: every check of a clone of the repository, and one count at the end.

Checks run side by side on machines that may be busy. So tests that failed run once more at the end, with
nothing beside them. Those that pass then do not fail the run; the last line counts them as unsteady.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from sparrowmq.cli.check_runs import Count, Process, Run, run_all
from sparrowmq.cli.common import UsageError


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


SLOW_KINDS: Final = {"crash": 3, "databases": 1, "interop": 10, "spark": 17}
"""Directories of tests that the fast tier leaves out, with their minutes."""
KINDS: Final = ("contract", *SLOW_KINDS, "versions")
LINT_PATHS: Final = ("src", "tests", "benchmarks")
LONG_SECONDS_MAX: Final = 3600
JOBS_MAX: Final = 2
"""Checks side by side: most of the time one of them waits for timers, disks and other processes."""
REPEATED_MAX: Final = 20
"""Failures of one check that are worth a second run; more of them are not the machine's."""

CHECKS: Final = (
    Check("ruff check", ("ruff", "check", *LINT_PATHS)),
    Check("ruff format", ("ruff", "format", "--check", *LINT_PATHS)),
    Check("mypy", ("mypy", "--strict")),
    Check("unit", ("pytest", "tests", *(f"--ignore=tests/{kind}" for kind in KINDS)), pytest=True, minutes=9),
    Check("contract", ("pytest", "tests/contract"), pytest=True, minutes=1),
    *(
        Check(kind, ("pytest", f"tests/{kind}"), Tier.FULL, pytest=True, minutes=minutes)
        for kind, minutes in SLOW_KINDS.items()
    ),
    Check("other versions of Spark", ("pytest", "tests/versions"), Tier.LONG, pytest=True),
    Check("mutation", ("tests.mutation",), Tier.LONG),
)


def test(
    tier: Annotated[
        Tier,
        typer.Argument(
            help="fast: two minutes; full: what CI runs; long: more samples, mutations, no hurry."
        ),
    ] = Tier.FULL,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Checks that run side by side. Default: 2, 1 on one core and in the long tier."
        ),
    ] = None,
) -> None:
    """Run the checks of this repository; the last line is the count."""
    root = repository()
    with tempfile.TemporaryDirectory(prefix="sparrow-test-", ignore_cleanup_errors=True) as directory:
        begin = partial(start, root=root, directory=Path(directory), tier=tier)
        side_by_side = jobs or default_jobs(tier, os.cpu_count() or 1)
        found = run_all([partial(begin, check) for check in in_turn(CHECKS, tier)], side_by_side, _say)
        failed = [check for check in CHECKS if check.name in found and is_repeated(check, found[check.name])]
        again = run_all([partial(begin, check, again=True) for check in failed], 1, _say)
    total = Count()
    for name, count in found.items():
        total.add(count.repeated(again.get(repeated_name(name), Count())))
    _say(str(total))
    raise typer.Exit(1 if total.failed or not total.passed else 0)


def _say(text: str) -> None:
    print(text, flush=True)


def repository() -> Path:
    """The root of the clone this package runs from."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "tests").is_dir() or not (root / "pyproject.toml").is_file():
        raise UsageError("the tests are in the repository; clone it and type ./sparrow test there")
    return root


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
