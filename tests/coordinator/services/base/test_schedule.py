from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize(("interval", "said"), [(0, "0"), (999, "0.999"), (2 * INTERVAL_MS_MAX, "1209600")])
def test_interval_out_of_range_is_refused_with_the_range(interval: int, said: str) -> None:
    with pytest.raises(RefusedError, match=f"from 1 to 604800 seconds, not {said}") as caught:
        KIND.check_interval(interval)
    assert caught.value.status == 422
    KIND.check_interval(1_000)
    KIND.check_interval(INTERVAL_MS_MAX)
    with pytest.raises(RefusedError):
        KIND.check_interval(INTERVAL_MS_MAX + 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [({"days": 0}, "days of x must be from 1 to 100, not 0"), ({"days": 101}, "not 101"),
     ({"weeks": 1}, "x has no option 'weeks'; it has: days")],
)  # fmt: skip
def test_options_out_of_range_are_refused_with_the_range(options: dict[str, int], text: str) -> None:
    with pytest.raises(RefusedError, match=text):
        KIND.check_options(options)
    KIND.check_options({"days": 1})
    assert KIND.defaults() == {"days": 30}
