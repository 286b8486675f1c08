"""`sparrow test`: every check of a clone of the repository, and one count at the end."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import typer

from sparrowmq.cli.common import UsageError


class Tier(StrEnum):
    """How much is run; each holds the ones before it."""

    FAST = "fast"
    FULL = "full"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class Check:
    """One command, run from `tier` on; `pytest` ones count each test, the others count as one."""

    name: str
    arguments: Sequence[str]
    tier: Tier = Tier.FAST
    pytest: bool = False

    def belongs_to(self, tier: Tier) -> bool:
        """Whether the tier runs it."""
        order = list(Tier)
        return order.index(self.tier) <= order.index(tier)


@dataclass(slots=True)
class Count:
    """Results so far."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, other: Count) -> None:
        """Add the results of one check."""
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text


SLOW_KINDS: Final = ("crash", "interop", "spark")
KINDS: Final = ("contract", *SLOW_KINDS)
LINT_PATHS: Final = ("src", "tests", "benchmarks")
LONG_SECONDS_MAX: Final = 3600

CHECKS: Final = (
    Check("ruff check", ("ruff", "check", *LINT_PATHS)),
    Check("ruff format", ("ruff", "format", "--check", *LINT_PATHS)),
    Check("mypy", ("mypy", "--strict")),
    Check("unit", ("pytest", "tests", *(f"--ignore=tests/{kind}" for kind in KINDS)), pytest=True),
    Check("contract", ("pytest", "tests/contract"), pytest=True),
    *(Check(kind, ("pytest", f"tests/{kind}"), Tier.FULL, pytest=True) for kind in SLOW_KINDS),
    Check("mutation", ("tests.mutation",), Tier.LONG),
)


def test(
    tier: Annotated[
        Tier,
        typer.Argument(
            help="fast: two minutes; full: what CI runs; long: more samples, mutations, no hurry."
        ),
    ] = Tier.FULL,
) -> None:
    """Run the checks of this repository; the last line is the count."""
    root = repository()
    total = Count()
    for check in CHECKS:
        if check.belongs_to(tier):
            print(f"=== {check.name}", flush=True)
            started = time.monotonic()
            count = run_check(check, root, tier)
            total.add(count)
            print(f"=== {check.name}: {count} in {time.monotonic() - started:.0f} s\n", flush=True)
    print(total, flush=True)
    raise typer.Exit(1 if total.failed or not total.passed else 0)


def repository() -> Path:
    """The root of the clone this package runs from."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "tests").is_dir() or not (root / "pyproject.toml").is_file():
        raise UsageError("the tests are in the repository; clone it and type ./sparrow test there")
    return root


def run_check(check: Check, root: Path, tier: Tier) -> Count:
    """Run one check with its output streaming by, and count."""
    environment = {**os.environ, "SPARROW_TEST_TIER": tier.value}
    command = [sys.executable, "-m", *check.arguments]
    if not check.pytest:
        status = subprocess.run(command, cwd=root, env=environment, check=False).returncode
        return Count(passed=1) if status == 0 else Count(failed=1)
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        command += ["-q", f"--junit-xml={report}"]
        if tier is Tier.FAST:
            command += ["-m", " and ".join(f"not {kind}" for kind in SLOW_KINDS)]
        elif tier is Tier.LONG:
            command += [f"--timeout={LONG_SECONDS_MAX}"]
        status = subprocess.run(command, cwd=root, env=environment, check=False).returncode
        count = read_report(report)
    if status != 0 and count.failed == 0:
        count.failed = 1  # nothing was collected, or pytest itself failed
    return count


def read_report(path: Path) -> Count:
    """The counts of a JUnit report; all zero when there is none."""
    import xml.etree.ElementTree as ElementTree

    if not path.is_file():
        return Count()
    count = Count()
    for suite in ElementTree.parse(path).getroot().iter("testsuite"):
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        count.add(Count(int(suite.get("tests", 0)) - failed - skipped, failed, skipped))
    return count
