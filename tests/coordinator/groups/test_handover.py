"""Hand-overs: every transition, every deadline, and thousands of schedules with faults.

A failing schedule names its seed; `SPARROW_HANDOVER_SEED=17 pytest tests/coordinator/groups/test_handover.py`
replays it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from tests.conftest import LONG
from tests.coordinator.groups.schedules import outages, simulate

from sparrowmq.coordinator.groups.handover import (
    TRANSITIONS,
    Event,
    Fenced,
    Handing,
    HandOver,
    Phase,
    Times,
    after,
)
from sparrowmq.coordinator.groups.plan import Plan, PlannedQueue, Why
from sparrowmq.core.errors import InvalidStateError, SettingsError
from sparrowmq.core.grants import Report
from sparrowmq.core.message import MessageQueue

GIVEN = os.environ.get("SPARROW_HANDOVER_SEED")
SEEDS = [int(GIVEN)] if GIVEN else list(range(1, 3001 if LONG else 201))


@pytest.mark.timeout(3600 if LONG else 600)  # half a minute when nothing else runs
@pytest.mark.proves("MUST-72", "MUST-73")
def test_whatever_happens_no_old_generation_is_accepted_and_no_message_is_lost() -> None:
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
def test_a_database_that_fails_stops_no_queue_and_what_rested_goes_on() -> None:
    totals: Counter[str] = Counter()
    for seed in SEEDS if LONG else SEEDS[:10]:
        world = outages(seed)
        assert not world.problems, f"seed {seed}: {world.problems}; {dict(world.events)}"
        totals.update(world.events)
    if not GIVEN:  # some were so long that leases ended
        assert all(totals[what] for what in ("leases ran out", "calls without database", "answers lost"))


# One step at a time

A, B = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
TIMES = Times(member_lease=8.0, lease=10.0, drain=30.0)


def plan_of(generation: int, **owners: str | None) -> Plan:
    """A plan in which queue `a` is A and `b` is B."""
    places = {"a": A, "b": B}
    queues = [PlannedQueue(places[name], owner, generation, None, Why.NEW) for name, owner in owners.items()]
    return Plan("g", generation, queues=tuple(queues))


def started(*members: str) -> HandOver:
    hand = HandOver(TIMES, 1, now=0.0)
    for member in members:
        hand.join(member, 0.0)
    return hand


def granted(hand: HandOver, plan: Plan, now: float = 0.0) -> HandOver:
    hand.plan(plan, now)
    hand.fenced(hand.fences())
    assert hand.settled
    return hand


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("event", Event)
def test_every_pair_of_phase_and_event_is_in_the_table_or_refused(phase: Phase, event: Event) -> None:
    if (phase, event) in TRANSITIONS:
        assert after(phase, event) is TRANSITIONS[phase, event]
    else:
        with pytest.raises(InvalidStateError, match=f"a queue that is {phase.value} cannot be {event.value}"):
            after(phase, event)


def test_a_queue_is_granted_only_when_its_broker_has_the_generation() -> None:
    hand = started("p")
    hand.plan(plan_of(1, a="p", b=None), 0.0)
    assert hand.fences() == [Fenced(A, "p", 1), Fenced(B, None, 1)]
    assert hand.orders("p").granted == {}
    hand.fenced([Fenced(A, "q", 1), Fenced(A, "p", 2), Fenced(MessageQueue("U", "b", 0), "p", 1)])
    assert len(hand.fences()) == 2
    hand.fenced(hand.fences())
    assert hand.orders("p").granted == {A: 1}
    found = hand.find(B)
    assert found is not None
    assert (found.phase, found.holder) == (Phase.FREE, None)


def test_a_released_queue_moves_and_others_are_not_touched() -> None:
    hand = granted(started("p", "q"), plan_of(1, a="p", b="p"))
    before = hand.find(B)
    revision = hand.orders("p").revision
    hand.plan(
        Plan("g", 2, queues=(PlannedQueue(A, "q", 2, "p", Why.SHARED), plan_of(1, b="p").queues[0])), 1.0
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
    assert hand.fences() == [Fenced(A, "q", 2)]
    hand.fenced(hand.fences())
    assert hand.orders("q").granted == {A: 2}
    assert hand.orders("p").granted == {B: 1}
    assert hand.counts.released == 1


def keep_reporting(hand: HandOver, member: str, revision: int, seconds: range) -> None:
    """Report every second, and see to it that nothing moves meanwhile."""
    for second in seconds:
        hand.report(member, Report(second, revision), float(second))
        assert hand.tick(float(second)) == []
        assert hand.fences() == []


@pytest.mark.parametrize(("knows", "moves_at"), [(True, 31), (False, 40)])
def test_a_member_that_never_drains_is_not_waited_for_without_end(knows: bool, moves_at: int) -> None:
    hand = granted(started("p"), plan_of(1, a="p"))
    before = hand.orders("p").revision
    hand.plan(plan_of(2, a="q"), 0.0)
    keep_reporting(hand, "p", hand.orders("p").revision if knows else before, range(1, moves_at))
    hand.tick(float(moves_at))
    assert hand.fences() == [Fenced(A, "q", 2)]
    assert hand.counts.drained_too_long == 1


def test_a_silent_member_is_out_and_what_it_had_moves() -> None:
    hand = granted(started("p", "q"), plan_of(1, a="p"))
    hand.report("q", Report(1, 0), 9.0)
    assert hand.tick(9.9) == []
    assert hand.tick(10.0) == ["p"]
    assert hand.members() == ["q"]
    assert not hand.report("p", Report(5, 0), 10.0), "it has to join again"
    with pytest.raises(InvalidStateError, match="p is not counted in"):
        hand.orders("p")
    hand.plan(plan_of(2, a="q"), 10.0)
    hand.tick(10.0)
    assert hand.fences() == [Fenced(A, "q", 2)]
    assert hand.counts.lease_over == 1


def test_a_member_that_leaves_is_not_waited_for() -> None:
    hand = granted(started("p", "q"), plan_of(1, a="p"))
    hand.plan(plan_of(2, a="q"), 1.0)
    hand.leave("p")
    hand.leave("stranger")
    assert hand.fences() == [Fenced(A, "q", 2)]


def test_ids_are_not_used_twice() -> None:
    hand = granted(started("p"), plan_of(1, a="p"))
    with pytest.raises(InvalidStateError, match="p is counted in already"):
        hand.join("p", 1.0)
    assert hand.tick(10.0) == ["p"]
    with pytest.raises(InvalidStateError, match="p is counted in already"):
        hand.join("p", 11.0)


def test_a_plan_that_changes_on_the_way_is_followed_and_queues_that_go_are_closed() -> None:
    hand = granted(started("p", "q", "r"), plan_of(1, a="p", b="p"))
    hand.plan(plan_of(2, a="q", b="q"), 1.0)
    hand.plan(plan_of(3, a="r"), 2.0)
    revoked = hand.orders("p")
    assert revoked.revoked == {A: 1, B: 1}
    hand.report("p", Report(1, revoked.revision, {A: 1, B: 1}), 3.0)
    assert hand.fences() == [Fenced(A, "r", 3), Fenced(B, None, 3)]
    hand.plan(plan_of(4, a="q"), 4.0)
    assert hand.fences() == [Fenced(A, "q", 4), Fenced(B, None, 3)]
    hand.fenced([Fenced(A, "r", 3), Fenced(B, None, 3)])
    assert hand.orders("r").granted == {}
    hand.fenced(hand.fences())
    hand.plan(plan_of(4, a="q"), 5.0)
    assert hand.find(B) is None
    assert hand.orders("q").granted == {A: 4}


def test_the_next_leader_goes_on_and_gives_everybody_a_whole_lease() -> None:
    hand = granted(started("p", "q"), plan_of(1, a="p", b="q"))
    hand.plan(plan_of(2, a="q", b="p"), 1.0)
    known = hand.orders("p").revision
    hand.report("p", Report(1, known, {A: 1}), 2.0)
    later = HandOver(TIMES, 2, state=hand.state(), now=1000.0)
    assert later.state().members == ("p", "q")
    assert later.fences() == [Fenced(A, "q", 2)]
    assert later.orders("q").revision > hand.orders("q").revision
    assert later.orders("q").revoked == {B: 1}
    later.report("q", Report(9, known, {B: 1}), 1001.0)
    assert later.find(B) == hand_of(later, B, Phase.REVOKING), "it was said to the leader before"
    assert later.tick(1009.9) == []
    assert later.tick(1010.0) == ["p"]


def hand_of(hand: HandOver, queue: MessageQueue, phase: Phase) -> Handing | None:
    found = hand.find(queue)
    return found if found is not None and found.phase is phase and found.known_at is None else None


@pytest.mark.parametrize(
    ("times", "text"),
    [
        ({"member_lease": 10.0, "lease": 10.0}, "lease=10 s must be at least a tenth longer"),
        ({"member_lease": 0.0}, "must be at least a tenth longer than member_lease=0 s"),
        ({"drain": -1.0}, "drain=-1 s must not be negative"),
    ],
)
def test_times_that_cannot_be_safe_are_refused(times: dict[str, float], text: str) -> None:
    with pytest.raises(SettingsError, match=text):
        Times(**times)
