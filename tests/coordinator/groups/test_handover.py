"""Hand-overs: every transition, every deadline, and thousands of schedules with faults.

A failing schedule names its seed; `SPARROW_HANDOVER_SEED=17 pytest tests/coordinator/groups/test_handover.py`
replays it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.conftest import LONG, SHORT
from tests.coordinator.groups.made_up import at_once
from tests.coordinator.groups.schedules import outages, simulate
from tests.support import about

from sparrowmq.coordinator.groups.handover import (
    TRANSITIONS,
    HandOver,
    HandOverEvent,
    HandOverState,
    Phase,
    QueueFence,
    QueueHandOver,
    Times,
    after,
)
from sparrowmq.coordinator.groups.plan import GroupPlan, PlannedQueue, Why
from sparrowmq.core.errors import InvalidStateError, InvariantError, SettingsError
from sparrowmq.core.grants import Grants, Holding, Report
from sparrowmq.core.message import MessageQueue

GIVEN = os.environ.get("SPARROW_HANDOVER_SEED")
SEEDS = [int(GIVEN)] if GIVEN else list(range(1, 3001 if LONG else 101 if SHORT else 201))


@pytest.mark.timeout(3600 if LONG else 600)  # half a minute when nothing else runs
@pytest.mark.proves("MUST-72", "MUST-73")
def test_no_fault_lets_an_old_generation_in_or_loses_a_message() -> None:
    totals: Counter[str] = Counter()
    for seed in SEEDS:
        world = simulate(seed)
        repeated = sum(count - 1 for count in world.handled.values())
        text = (
            f"seed {seed}: {world.problems}; replay with SPARROW_HANDOVER_SEED={seed}; {dict(world.events)}"
        )
        assert not world.problems, text
        totals.update(world.events, sent=len(world.sent), repeated=repeated)
    print(dict(totals))
    if not GIVEN:  # every kind of request of a lower generation was tried
        assert all(totals[f"{what} refused"] for what in ("pull", "commit", "lock", "send-back")), totals
        assert all(totals[what] for what in ("answers lost", "leaders that begin anew")), totals


@pytest.mark.proves("MUST-72", "MUST-73")
def test_failing_database_stops_no_queue_and_paused_handlers_resume() -> None:
    totals: Counter[str] = Counter()
    for seed in SEEDS if LONG else SEEDS[:10]:
        world = outages(seed)
        assert not world.problems, f"seed {seed}: {world.problems}; {dict(world.events)}"
        totals.update(world.events)
    if not GIVEN:  # some were so long that leases ended
        assert all(totals[what] for what in ("leases ran out", "calls without database", "answers lost"))


def without_lease(grants: Grants, queue: MessageQueue, generation: int, now: float) -> bool:
    return grants._queues.get(queue) == (generation, Holding.HELD)


def while_leaving(grants: Grants, queue: MessageQueue, generation: int, now: float) -> bool:
    return now < grants.lease_end and grants.generation(queue) == generation


def with_a_longer_lease(grants: Grants, queue: MessageQueue, generation: int, now: float) -> bool:
    return now < grants.lease_end + 3.0 and grants._queues.get(queue) == (generation, Holding.HELD)


@pytest.mark.parametrize(
    ("gate", "text"),
    [
        (without_lease, "starts a handler after its leader let go of it|that others have"),
        (while_leaving, "it gives up"),
        (with_a_longer_lease, "starts a handler after its leader let go of it|that others have"),
    ],
)
def test_schedules_detect_a_broken_gate(
    monkeypatch: pytest.MonkeyPatch, gate: Callable[..., bool], text: str
) -> None:
    """They run the production gate, so they fail when it is wrong."""
    monkeypatch.setattr(Grants, "may_start", gate)
    for seed in range(1, 201):
        if problems := simulate(seed).problems:
            assert re.search(text, problems[0]), problems
            return
    pytest.fail("200 schedules with a broken gate found nothing")


# One step at a time

A, B = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
TIMES = Times(member_lease=8.0, lease=10.0, drain=30.0)


def plan_of(generation: int, **owners: str | None) -> GroupPlan:
    """A plan in which A owns queue `a` and B owns queue `b`."""
    places = {"a": A, "b": B}
    queues = [PlannedQueue(places[name], owner, generation, None, Why.NEW) for name, owner in owners.items()]
    return GroupPlan("g", generation, queues=tuple(queues))


def started(*members: str) -> HandOver:
    hand = HandOver(TIMES, 1, now=0.0)
    for member in members:
        hand.join(member, 0.0)
    return hand


def granted(hand: HandOver, plan: GroupPlan, now: float = 0.0) -> HandOver:
    at_once(hand.planning(plan, now))
    at_once(hand.fencing(hand.fences()))
    assert hand.settled
    return hand


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", HandOverEvent)
def test_every_pair_of_phase_and_event_is_in_the_table_or_refused(phase: Phase, event: HandOverEvent) -> None:
    if (phase, event) in TRANSITIONS:
        assert after(phase, event) is TRANSITIONS[phase, event]
    else:
        with pytest.raises(InvalidStateError, check=about(what=event.value, value=phase)):
            after(phase, event)


def test_queue_is_granted_only_when_its_broker_has_the_generation() -> None:
    hand = started("p")
    at_once(hand.planning(plan_of(1, a="p", b=None), 0.0))
    assert hand.fences() == [QueueFence(A, "p", 1), QueueFence(B, None, 1)]
    assert hand.orders("p").granted == {}
    at_once(
        hand.fencing(
            [QueueFence(A, "q", 1), QueueFence(A, "p", 2), QueueFence(MessageQueue("U", "b", 0), "p", 1)]
        )
    )
    assert len(hand.fences()) == 2
    at_once(hand.fencing(hand.fences()))
    assert hand.orders("p").granted == {A: 1}
    found = hand.find(B)
    assert found is not None
    assert (found.phase, found.holder) == (Phase.FREE, None)


def test_released_queue_moves_and_others_are_not_affected() -> None:
    hand = granted(started("p", "q"), plan_of(1, a="p", b="p"))
    before = hand.find(B)
    revision = hand.orders("p").revision
    at_once(
        hand.planning(
            GroupPlan("g", 2, queues=(PlannedQueue(A, "q", 2, "p", Why.SHARED), plan_of(1, b="p").queues[0])),
            1.0,
        )
    )
    assert hand.find(B) is before
    orders = hand.orders("p")
    assert (orders.granted, orders.revoked) == ({B: 1}, {A: 1})
    assert hand.report("p", Report(1, revision, {A: 1}), 2.0), "it was not asked to yet"
    assert hand.fences() == []
    assert hand.report("p", Report(2, orders.revision, {A: 9}), 2.0), "it is another generation"
    assert hand.fences() == []
    assert hand.report("p", Report(2, orders.revision, {A: 1}), 2.0), "it was overtaken"
    assert hand.fences() == []
    assert hand.report("p", Report(3, orders.revision, {A: 1}), 3.0)
    assert hand.fences() == [QueueFence(A, "q", 2)]
    at_once(hand.fencing(hand.fences()))
    assert hand.orders("q").granted == {A: 2}
    assert hand.orders("p").granted == {B: 1}
    assert hand.counts.released == 1


def keep_reporting(hand: HandOver, member: str, revision: int, seconds: range) -> None:
    """Report every second, and check that nothing moves meanwhile."""
    for second in seconds:
        hand.report(member, Report(second, revision), float(second))
        assert at_once(hand.ticking(float(second))) == []
        assert hand.fences() == []


@pytest.mark.parametrize(("knows", "moves_at"), [(True, 31), (False, 40)])
def test_member_that_never_drains_is_awaited_only_for_a_limited_time(knows: bool, moves_at: int) -> None:
    hand = granted(started("p"), plan_of(1, a="p"))
    before = hand.orders("p").revision
    at_once(hand.planning(plan_of(2, a="q"), 0.0))
    keep_reporting(hand, "p", hand.orders("p").revision if knows else before, range(1, moves_at))
    at_once(hand.ticking(float(moves_at)))
    assert hand.fences() == [QueueFence(A, "q", 2)]
    assert hand.counts.drained_too_long == 1


def test_silent_member_is_removed_and_its_queues_move() -> None:
    hand = granted(started("p", "q"), plan_of(1, a="p"))
    hand.report("q", Report(1, 0), 9.0)
    assert at_once(hand.ticking(9.9)) == []
    assert at_once(hand.ticking(10.0)) == ["p"]
    assert hand.members() == ["q"]
    assert not hand.report("p", Report(5, 0), 10.0), "it has to join again"
    with pytest.raises(InvalidStateError, check=about(what="stranger", value="p")):
        hand.orders("p")
    at_once(hand.planning(plan_of(2, a="q"), 10.0))
    at_once(hand.ticking(10.0))
    assert hand.fences() == [QueueFence(A, "q", 2)]
    assert hand.counts.lease_over == 1


def test_member_that_leaves_is_not_awaited() -> None:
    hand = granted(started("p", "q"), plan_of(1, a="p"))
    at_once(hand.planning(plan_of(2, a="q"), 1.0))
    hand.leave("p")
    hand.leave("stranger")
    assert hand.fences() == [QueueFence(A, "q", 2)]


def test_ids_are_not_reused() -> None:
    hand = granted(started("p"), plan_of(1, a="p"))
    with pytest.raises(InvalidStateError, check=about(what="member", value="p")):
        hand.join("p", 1.0)
    assert at_once(hand.ticking(10.0)) == ["p"]
    with pytest.raises(InvalidStateError, check=about(what="member", value="p")):
        hand.join("p", 11.0)


def test_plan_changed_during_a_handover_is_followed_and_removed_queues_are_closed() -> None:
    hand = granted(started("p", "q", "r"), plan_of(1, a="p", b="p"))
    at_once(hand.planning(plan_of(2, a="q", b="q"), 1.0))
    at_once(hand.planning(plan_of(3, a="r"), 2.0))
    revoked = hand.orders("p")
    assert revoked.revoked == {A: 1, B: 1}
    hand.report("p", Report(1, revoked.revision, {A: 1, B: 1}), 3.0)
    assert hand.fences() == [QueueFence(A, "r", 3), QueueFence(B, None, 3)]
    at_once(hand.planning(plan_of(4, a="q"), 4.0))
    assert hand.fences() == [QueueFence(A, "q", 4), QueueFence(B, None, 3)]
    at_once(hand.fencing([QueueFence(A, "r", 3), QueueFence(B, None, 3)]))
    assert hand.orders("r").granted == {}
    at_once(hand.fencing(hand.fences()))
    at_once(hand.planning(plan_of(4, a="q"), 5.0))
    assert hand.find(B) is None
    assert hand.orders("q").granted == {A: 4}


def test_next_leader_continues_and_gives_every_member_a_full_lease() -> None:
    hand = granted(started("p", "q"), plan_of(1, a="p", b="q"))
    at_once(hand.planning(plan_of(2, a="q", b="p"), 1.0))
    known = hand.orders("p").revision
    hand.report("p", Report(1, known, {A: 1}), 2.0)
    later = HandOver(TIMES, 2, state=hand.state(), now=1000.0)
    assert later.state().members == ("p", "q")
    assert later.fences() == [QueueFence(A, "q", 2)]
    assert later.orders("q").revision > hand.orders("q").revision
    assert later.orders("q").revoked == {B: 1}
    later.report("q", Report(9, known, {B: 1}), 1001.0)
    assert later.find(B) == hand_of(later, B, Phase.REVOKING), "it was said to the leader before"
    assert at_once(later.ticking(1009.9)) == []
    assert at_once(later.ticking(1010.0)) == ["p"]


def hand_of(hand: HandOver, queue: MessageQueue, phase: Phase) -> QueueHandOver | None:
    found = hand.find(queue)
    return found if found is not None and found.phase is phase and found.known_at is None else None


@pytest.mark.parametrize(
    ("times", "facts"),
    [
        ({"member_lease": 10.0, "lease": 10.0}, {"setting": "lease", "value": 10.0}),
        ({"member_lease": 0.0}, {"setting": "lease"}),
        ({"drain": -1.0}, {"setting": "drain", "value": -1.0}),
    ],
)
def test_unsafe_times_are_refused(times: dict[str, float], facts: dict[str, object]) -> None:
    with pytest.raises(SettingsError, check=about(**facts)):
        Times(**times)


# Invariants


@pytest.mark.parametrize("phase", list(Phase))
def test_queue_has_a_holder_exactly_when_it_is_granted_or_revoked(phase: Phase) -> None:
    has = phase in (Phase.GRANTED, Phase.REVOKING)
    good = QueueHandOver(A, phase, "p" if has else None, 3, "p", 3)
    hand = HandOver(TIMES, 1, state=HandOverState((good,), ("p",)))
    for what, wrong in (
        ("holder", replace(good, holder=None if has else "p")),
        ("generation", replace(good, generation=2)),
    ):
        with pytest.raises(InvariantError, check=about(what=what)):
            hand._put(wrong)
        found = hand.find(A)
        assert found is not None and (found.holder, found.generation) == (good.holder, 3), "as it was"
        assert hand.orders("p").granted == ({A: 3} if phase is Phase.GRANTED else {})


def test_generations_and_epochs_only_rise() -> None:
    with pytest.raises(InvariantError, check=about(what="epoch", value=0)):
        HandOver(TIMES, 0)
    hand = HandOver(TIMES, 1, state=HandOverState((QueueHandOver(A, Phase.GRANTED, "p", 5, "p", 5),), ("p",)))
    with pytest.raises(InvariantError, check=about(what="generation", value=4, limit=5)):
        at_once(hand.planning(plan_of(4, a="q"), 1.0))
    found = hand.find(A)
    assert found is not None and (found.phase, found.holder) == (Phase.GRANTED, "p")
