from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.coordinator.leases import rules
from sparrowmq.coordinator.leases.rules import LeaseAction, LeaseCandidate, LeaseHolding, LeaseTimes, decide
from sparrowmq.core.errors import SettingsError

TIMES = LeaseTimes(ttl_ms=15_000, renew_ms=5_000, margin_ms=2_000)
HELD = rules.won(100.0, 7, TIMES)


@pytest.mark.proves("pmq:1.6")
def test_lease_counts_from_before_the_request_and_ends_earlier_by_the_margin() -> None:
    assert HELD.holding == LeaseHolding(7, 113.0, 105.0)


@pytest.mark.parametrize(
    ("candidate", "now", "enabled", "overdue", "action"),
    [
        (LeaseCandidate(), 0.0, True, False, LeaseAction.CLAIM),
        (LeaseCandidate(None, 5.0), 4.9, True, False, LeaseAction.WAIT),
        (LeaseCandidate(None, 5.0), 5.0, True, False, LeaseAction.CLAIM),
        (LeaseCandidate(), 0.0, False, False, LeaseAction.WAIT),
        (LeaseCandidate(), 0.0, True, True, LeaseAction.WAIT),
        (HELD, 104.9, True, False, LeaseAction.WAIT),
        (HELD, 105.0, True, False, LeaseAction.RENEW),
        (HELD, 112.9, True, True, LeaseAction.WAIT),
        (HELD, 104.0, False, False, LeaseAction.RELEASE),
        (HELD, 113.0, True, False, LeaseAction.STOP),
        (HELD, 113.0, False, True, LeaseAction.STOP),
    ],
)
@pytest.mark.proves("pmq:L2", "pmq:L3", "pmq:L4", "pmq:L9")
def test_next_action_is_decided(
    candidate: LeaseCandidate, now: float, enabled: bool, overdue: bool, action: LeaseAction
) -> None:
    assert decide(candidate, now, enabled=enabled, overdue=overdue) is action


def test_missed_lease_is_requested_one_interval_later() -> None:
    assert rules.missed(10.0, TIMES) == LeaseCandidate(None, 15.0)


def test_missing_answer_keeps_a_lease_until_it_expires() -> None:
    after = rules.unanswered(HELD, 106.0, TIMES)
    assert after.holding == LeaseHolding(7, 113.0, 107.25)
    assert rules.unanswered(LeaseCandidate(), 106.0, TIMES) == LeaseCandidate(None, 107.25)


def test_leadership_is_decided() -> None:
    assert rules.leads(HELD, 112.9)
    assert not rules.leads(HELD, 113.0)
    assert not rules.leads(LeaseCandidate(), 0.0)


@given(st.integers(1, 10**6), st.integers(1, 10**6), st.integers(1, 10**6))
@pytest.mark.proves("pmq:1.2")
def test_times_must_outlast_a_lost_renewal(ttl: int, renew: int, margin: int) -> None:
    if ttl >= 2 * renew + margin:
        assert rules.won(0.0, 1, LeaseTimes(ttl, renew, margin)).holding is not None
    else:
        with pytest.raises(SettingsError, check=about(setting="leaseTime", value=ttl)):
            LeaseTimes(ttl, renew, margin)


@given(st.floats(0, 100), st.floats(0, 100))
def test_waiting_ends_where_the_decision_may_change(sent: float, later: float) -> None:
    candidate = rules.won(sent, 1, TIMES)
    now = sent + later
    wait = rules.wait_seconds(candidate, now)
    if decide(candidate, now, enabled=True, overdue=False) is LeaseAction.WAIT:
        assert wait > 0
        assert decide(candidate, now + wait + 1e-6, enabled=True, overdue=False) is not LeaseAction.WAIT
    else:
        assert wait == 0
