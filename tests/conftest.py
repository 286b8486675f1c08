"""Settings of the test run: hypothesis draws the same samples each time, fewer of them in the gate, and new
ones in the long tier.

A test that proves facts and is skipped, by whatever it uses, is a failure. So is one with a server that
stalled, see `tests/stall_guard.py`.
`SPARROW_EXAMPLES` sets how many: mutation runs take fewer.
"""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.pages import ROOT, proven_rows
from tests.stall_guard import StallsFile, bound_of, judge
from tests.support import refuse_skip
from tests.tiers import SHORT_TIERS, read_tiers

from sparrowmq.transport.stall_watch import STALLS_FILE

TIER = os.environ.get("SPARROW_TEST_TIER", "")
LONG = TIER == "long"
SHORT = TIER in SHORT_TIERS
EXAMPLES = int(os.environ.get("SPARROW_EXAMPLES", 2000 if LONG else 50 if SHORT else 100))

settings.register_profile(
    "sparrow",
    deadline=None,
    derandomize=not LONG,
    max_examples=EXAMPLES,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sparrow")


PROVEN = {
    test: row.name
    for row in proven_rows((ROOT / "tests" / "coordination.md").read_text())
    for test in row.tests
}
"""Tests that the index of coordination names, each with one thing it proves."""

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # In the background of a script. Tests of Ctrl-C, and programs that they start, need it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

_DIRECTORY = tempfile.TemporaryDirectory(prefix="sparrow-stalls-")
STALLS = StallsFile(Path(_DIRECTORY.name) / "stalls")
os.environ[STALLS_FILE] = str(STALLS.path)


@pytest.hookimpl(trylast=True)  # when all marks are there
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the tier does not run."""
    tiers = read_tiers()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        marks = (mark.name for mark in item.iter_markers())
        (left_out if tiers.leaves_out(TIER, item.nodeid, marks) else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def pytest_collection_finish() -> None:
    """Servers share this process: the collector must not stop them to look through thousands of tests."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Tests that prove a fact or a row of the index of coordination were run; no server stalled."""
    report = yield
    judge(report, STALLS.added(), bound_of(item))
    facts = [fact for mark in item.iter_markers("proves") for fact in mark.args]
    named = PROVEN.get(item.nodeid.partition("[")[0])
    refuse_skip(report, [*facts, named] if named else facts)
    return report
