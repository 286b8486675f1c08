from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.coordinator.services.base.schedule import (
    INTERVAL_MS_MAX,
    RunPlan,
    ServiceKind,
    ServiceOption,
    due_after,
    due_in_ms,
    due_with,
)
from sparrowmq.core.errors import RefusedError

KIND = ServiceKind("x", "X", 60_000, 1_000, 10.0, (ServiceOption("days", 30, 1, 100, "days"),))


@pytest.mark.parametrize(
    ("plan", "now", "wait"),
    [
        (RunPlan(100, False, 500, 0), 450, 50),
        (RunPlan(100, False, 500, 0), 500, 0),
        (RunPlan(100, False, 500, 0), 900, 0),
        (RunPlan(100, False, 0, 0), 900, 0),
        (RunPlan(100, True, 0, 0), 900, None),
        (RunPlan(100, True, 10_000, 1), 900, 0),
        (RunPlan(100, False, 10_000, 0), 900, 100),
    ],
)
def test_due_time_is_computed(plan: RunPlan, now: int, wait: int | None) -> None:
    assert due_in_ms(plan, now) == wait


@pytest.mark.proves("pmq:T1")
def test_shorter_interval_applies_at_once_and_a_longer_one_from_the_next_run() -> None:
    plan = RunPlan(86_400_000, False, 80_000_000, 0)
    assert due_with(plan, 1_000, 5_000) == 6_000
    assert due_with(plan, 10 * 86_400_000, 5_000) == 80_000_000


@given(st.integers(1, 10**9), st.integers(0, 10**12))
def test_runs_never_queue_up(interval: int, ended: int) -> None:
    plan = RunPlan(interval, False, due_after(RunPlan(interval, False, 0, 0), ended), 0)
    assert due_in_ms(plan, ended) == interval


@pytest.mark.parametrize(
    ("interval", "limit"), [(0, 1_000), (999, 1_000), (2 * INTERVAL_MS_MAX, INTERVAL_MS_MAX)]
)
def test_interval_out_of_range_is_refused_with_the_range(interval: int, limit: int) -> None:
    with pytest.raises(RefusedError, check=about(status=422, value=interval, limit=limit)):
        KIND.check_interval(interval)
    KIND.check_interval(1_000)
    KIND.check_interval(INTERVAL_MS_MAX)
    with pytest.raises(RefusedError):
        KIND.check_interval(INTERVAL_MS_MAX + 1)


@pytest.mark.parametrize(
    ("options", "facts"),
    [({"days": 0}, {"what": "days", "value": 0, "limit": 1}), ({"days": 101}, {"value": 101, "limit": 100}),
     ({"weeks": 1}, {"what": "weeks", "value": None})],
)  # fmt: skip
def test_options_out_of_range_are_refused_with_the_range(
    options: dict[str, int], facts: dict[str, object]
) -> None:
    with pytest.raises(RefusedError, check=about(status=422, **facts)):
        KIND.check_options(options)
    KIND.check_options({"days": 1})
    assert KIND.defaults() == {"days": 30}
