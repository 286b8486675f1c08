"""Plans: the seed alone decides."""

from __future__ import annotations

import pytest

from sparrowmq.torture.plan import LENGTH_SECONDS, OF_NETWORKS, OF_PROCESSES, PARTS, SLOW, plan_faults


def test_a_seed_has_always_the_same_faults() -> None:
    assert plan_faults(7, 20) == plan_faults(7, 20)
    assert plan_faults(7, 20) != plan_faults(8, 20)
    told = [str(one) for one in plan_faults(7, 4)]
    assert told == ["kill slave, 1.3 s", "cut master, 3.2 s"], (
        "seeds that were written down must mean the same in the next release"
    )


@pytest.mark.parametrize("seed", range(50))
def test_faults_are_within_their_limits(seed: int) -> None:
    found = plan_faults(seed, 10)
    assert found
    assert list(found) == sorted(found, key=lambda one: one.at)
    for one in found:
        low, high = LENGTH_SECONDS[one.kind]
        assert low <= one.length <= high
        assert one.at < 10
        assert (one.delay > 0) == (one.kind == SLOW)


def test_every_kind_comes_to_every_part() -> None:
    found = {(one.kind, one.part) for seed in range(400) for one in plan_faults(seed, 10)}
    kinds = {**OF_PROCESSES, **OF_NETWORKS}
    assert found == {(kind, part) for kind in kinds for part in PARTS}


def test_without_a_network_processes_only() -> None:
    found = {one.kind for seed in range(50) for one in plan_faults(seed, 10, with_network=False)}
    assert found == set(OF_PROCESSES)


def test_there_is_a_fault_at_least() -> None:
    assert all(len(plan_faults(seed, 0.1)) == 1 for seed in range(20))
