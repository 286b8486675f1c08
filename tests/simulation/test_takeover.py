"""A sample of simulated take-overs, and faults of the code that the simulation has to find."""

from __future__ import annotations

import os

import pytest
from tests.simulation.takeover import Planted, search

from sparrowmq.coordinator.replicas import decisions

SCHEDULES = 5000 if os.environ.get("SPARROW_TEST_TIER") == "long" else 400
FIRST = int(os.environ.get("SPARROW_SEED", "0"))


def test_nothing_acknowledged_is_lost_whatever_fails() -> None:
    counts, error, seed = search(range(FIRST, FIRST + SCHEDULES))
    assert error is None, f"SPARROW_SEED={seed}: {error}"
    assert counts["schedules"] == SCHEDULES
    for what in ("elected", "in-sync", "cuts of logs", "kill", "freeze", "cut", "power", "wiped", "leader"):
        assert counts[what] > 0, f"no {what}: the simulation shows nothing"
    assert counts["acknowledged"] > 20 * SCHEDULES
    assert counts["masters"] > 1.5 * SCHEDULES


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("no lease", 0),
        ("lease from arrival", 60),
        ("wall clock", 60),
        ("forgotten leases", 0),
        ("no union", 0),
        ("no cut", 0),
        ("told while unsure", 20_000),
        ("no pause", 1300),
        ("early reads", 0),
    ],
)
def test_a_planted_fault_of_a_broker_or_leader_is_found(name: str, first: int) -> None:
    _, error, _ = search(range(first, first + 200), Planted(name))
    assert error is not None


@pytest.mark.parametrize("rule", ["_is_candidate", "_lease_is_over"])
def test_a_decision_without_one_of_its_rules_is_found(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A master from outside of the set, and a new one while the old one may have a lease."""
    planted = decisions._is_same if rule == "_is_candidate" else lambda *_: True
    monkeypatch.setattr(decisions, rule, planted)
    _, error, _ = search(range(300))
    assert error is not None
