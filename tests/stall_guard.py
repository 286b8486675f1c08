"""No test may have servers whose loop stalled: every server under test adds its stalls to one file.

Servers in this process and in its children find the file by the environment. A stall counts when the loop's
own work, or its own waiting, took longer than the test's bound: not what the machine, other threads of the
process or the test's own coroutines explain. `@pytest.mark.stalls(seconds=…, why=…)` raises the bound of a
test that provokes stalls.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from sparrowmq.core.stalls import Stall

BOUND_SECONDS = 0.5
"""Ten times what a stall is noted from: a slow machine does not make a test fail."""


class StallsFile:
    """The file, and how far it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0

    def added(self) -> list[Stall]:
        """The stalls that were added since the last call."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]  # another process may be at a line
        self._read += len(whole)
        return [Stall.from_dict(json.loads(line)) for line in whole.splitlines()]


def sure_ms(stall: Stall) -> float:
    """The part caused by the loop itself: its computation and its own waits."""
    elsewhere = max(stall.others_ms, stall.paused_ms)
    return stall.cpu_ms + max(0.0, stall.wall_ms - stall.cpu_ms - stall.waited_ms - elsewhere)


def is_servers(stall: Stall) -> bool:
    """Whether a server's work stalled the loop, not a coroutine of the test that shares it."""
    if stall.client:
        return True
    return bool(stall.where) and not stall.where[-1].startswith("tests/")


def bound_of(item: pytest.Item) -> float:
    """Seconds a loop may stall in this test. The mark needs both of its arguments."""
    mark = item.get_closest_marker("stalls")
    if mark is None:
        return BOUND_SECONDS
    seconds, why = mark.kwargs["seconds"], mark.kwargs["why"]
    assert why and not mark.args, f"{item.nodeid}: the mark takes seconds=… and why=…"
    return float(seconds)


def judge(report: pytest.TestReport, stalls: Iterable[Stall], seconds: float) -> None:
    """Make a failure of a test that passed although a server stalled for longer than `seconds`."""
    long = [one for one in stalls if sure_ms(one) > 1000 * seconds and is_servers(one)]
    if long and report.passed:
        report.outcome = "failed"
        told = (f"\n  {sure_ms(one):.0f} ms: {one.sentence()}\n    {' < '.join(one.where)}" for one in long)
        report.longrepr = (
            f"{report.nodeid} ({report.when}): a server stalled for more than {seconds:g} s; make its work "
            f"shorter, or mark the test with stalls(seconds=…, why=…) if it is on purpose{''.join(told)}"
        )
