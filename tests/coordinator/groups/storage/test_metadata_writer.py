"""The metadata of one group: nothing is written twice, and it is read again when an answer was lost."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tests.coordinator.groups.made_up import TIMES, A, B, FakeCluster
from tests.support import run

from sparrowmq.coordinator.groups.group_metadata import KeptGroup, PlanRow, SeenMember
from sparrowmq.coordinator.groups.initial_state import ReportedState, Terms
from sparrowmq.coordinator.groups.leader import GroupLeader
from sparrowmq.core.errors import DatabaseGoneError, LeaseLostError
from sparrowmq.core.grants import Report


class FakeLedger:
    """A record of what was stored. `gone`: it does not answer; `loses`: it stores the next write but does
    not answer it."""

    def __init__(self) -> None:
        self.kept = KeptGroup()
        self.plans: list[int] = []
        self.writes = 0
        self.gone = self.loses = self.lost = False

    async def groups(self) -> list[str]:
        return ["g"]

    async def load(self, group: str) -> KeptGroup:
        self._check()
        return self.kept

    async def save(
        self, group: str, before: KeptGroup, after: KeptGroup, plan: PlanRow | None = None
    ) -> None:
        self._check()
        assert before == self.kept, "what differs is what is written"
        self.kept, self.writes = after, self.writes + 1
        self.plans += [] if plan is None else [plan.generation]
        if self.loses:
            self.loses = False
            raise DatabaseGoneError("the database cannot be reached")

    async def see(self, found: Mapping[str, tuple[Mapping[str, SeenMember], str]]) -> None:
        raise AssertionError("that is the service's")

    def _check(self) -> None:
        if self.lost:
            raise LeaseLostError("another leads")
        if self.gone:
            raise DatabaseGoneError("the database cannot be reached")


def lead(cluster: FakeCluster, ledger: FakeLedger) -> GroupLeader:
    make = GroupLeader.take_over("g", cluster, Terms(TIMES), lambda: cluster.now, epoch=1, ledger=ledger)
    return run(make)


def test_plan_is_stored_before_anybody_receives_it_and_again_when_its_answer_was_lost() -> None:
    cluster, ledger = FakeCluster(), FakeLedger()
    leader = lead(cluster, ledger)
    p = leader.join("p", "", ["T"], 1)
    ledger.loses = True
    with pytest.raises(DatabaseGoneError):
        run(leader.step())
    assert (ledger.plans, cluster.policies["a"].policies) == ([1], []), "it is kept, and not known to be"
    run(leader.step())
    assert (ledger.plans, cluster.grants("a")) == ([1, 1], {A: (p, 1), B: (p, 1)})
    assert {one.phase for one in ledger.kept.queues.values()} == {"granted"}
    writes = ledger.writes
    leader.report(p, "", Report(1, 0), ["T"], ReportedState(0))
    run(leader.step())
    assert ledger.writes == writes, "nothing has changed"


def test_metadata_that_cannot_be_stored_delays_nothing_and_is_reported() -> None:
    cluster, ledger = FakeCluster(), FakeLedger()
    leader = lead(cluster, ledger)
    p = leader.join("p", "", ["T"], 1)
    run(leader.step())
    leader.join("s", "", [], 2)
    ledger.gone = True
    leader.paused = True
    run(leader.step())
    assert leader.problem == "the database cannot be reached"
    orders = leader.report(p, "", Report(1, 0), ["T"], ReportedState(0))
    assert orders is not None and orders.granted == {A: 1, B: 1}
    ledger.gone = False
    run(leader.step())
    assert (leader.problem, len(ledger.kept.members)) == ("", 2)


def test_leader_that_may_no_longer_write_is_deposed() -> None:
    cluster, ledger = FakeCluster(), FakeLedger()
    leader = lead(cluster, ledger)
    leader.join("p", "", ["T"], 1)
    ledger.lost = True
    with pytest.raises(LeaseLostError):
        run(leader.step())
    assert leader.deposed
    assert cluster.policies["a"].policies == []


@pytest.mark.proves("MUST-72")
def test_planned_handover_is_completed_while_the_next_plan_cannot_be_stored() -> None:
    cluster, ledger = FakeCluster(), FakeLedger()
    leader = lead(cluster, ledger)
    p = leader.join("p", "", ["T"], 1)
    run(leader.step())
    q = leader.join("q", "", ["T"], 2)
    run(leader.step())
    orders = leader.report(p, "", Report(1, 0), ["T"], ReportedState(0))
    assert orders is not None and orders.revoked == {B: 1}
    ledger.gone = True
    r = leader.join("r", "", ["T"], 3)
    leader.leave(p)
    with pytest.raises(DatabaseGoneError):
        run(leader.step())
    assert cluster.grants("b")[B] == (q, 2), "nobody waits for it any more"
    got = leader.report(q, "", Report(1, 0), ["T"], ReportedState(0))
    assert got is not None and got.granted == {B: 2}
    assert (leader.plan.generation, ledger.kept.group.generation) == (2, 2), "r gets nothing yet"
    ledger.gone = False
    run(leader.step())
    assert (leader.problem, cluster.grants("a")[A]) == ("", (r, 3))
