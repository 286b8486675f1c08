"""Which data of a leader's groups is written to the database."""

from __future__ import annotations

from sparrowmq.coordinator.groups.group_metadata import (
    MOVES_KEPT,
    GroupRow,
    KeptGroup,
    changed_rows,
    client_of,
    counted,
    member_rows,
    plan_of,
    plan_row,
    queue_rows,
    reasons_after,
)
from sparrowmq.coordinator.groups.handover import Counts, Phase, QueueHandOver
from sparrowmq.coordinator.groups.plan import AdmissionStatus, Candidate, GroupPlan, make_plan
from sparrowmq.core.message import MessageQueue

QUEUES = [MessageQueue("T", "a", number) for number in range(4)]
P, Q = Candidate("p#1", "10.0.0.1", 1), Candidate("q#1", "10.0.0.2", 2)


def test_only_differences_are_written() -> None:
    assert changed_rows({1: "a", 2: "b", 3: "c"}, {1: "a", 2: "x", 4: "d"}) == ({2: "x", 4: "d"}, [3])


def test_plan_records_its_reason() -> None:
    first = make_plan("g", QUEUES[:2], [P], before=GroupPlan("g"))
    row = plan_row(first, GroupPlan("g"), False)
    assert (row.cause, row.moved, row.members) == ("joined: p#1; 2 queues more", 2, 1)
    second = make_plan("g", QUEUES[1:], [Q], before=first)
    row = plan_row(second, first, True)
    assert row.cause == "joined: q#1; left: p#1; 2 queues more; 1 queue fewer; rules changed"
    assert plan_row(second, second, False).cause == "rebalanced"
    many = make_plan("g", QUEUES, [Candidate(f"m{number}") for number in range(9)], before=GroupPlan("g"))
    assert plan_row(many, GroupPlan("g"), False).cause.startswith("joined: m0, m1, m2, m3, m4 and 4 more;")


def test_history_names_no_more_moves_than_fit() -> None:
    queues = [MessageQueue("T", "a", number) for number in range(MOVES_KEPT + 5)]
    row = plan_row(make_plan("g", queues, [P]), GroupPlan("g"), False)
    assert (row.moved, len(row.moves)) == (MOVES_KEPT + 5, MOVES_KEPT)


def test_queue_keeps_its_reason_until_a_plan_moves_it() -> None:
    first = make_plan("g", QUEUES, [P])
    reasons = reasons_after(first, {})
    assert set(reasons.values()) == {"had no owner; each of 1 has 4"}
    second = make_plan("g", QUEUES, [P, Q], before=first)
    later = reasons_after(second, reasons)
    moved = [one.queue for one in second.moved]
    assert {later[queue] for queue in moved} == {"p#1 had 4 of 4; each of 2 has 2"}
    assert {later[queue] for queue in QUEUES if queue not in moved} == {"had no owner; each of 1 has 4"}


def test_members_and_queues_become_rows() -> None:
    plan = make_plan("g", QUEUES, [P])
    rows = member_rows({"p#1": P, "q#1": Q}, {"p#1": frozenset("UT")}, {"p#1": "1.0"}, {"p#1": "d"}, plan)
    assert (rows["p#1"].client_id, rows["p#1"].topics, rows["p#1"].standing) == ("p", ("T", "U"), "active")
    assert (rows["p#1"].proof, rows["q#1"].proof) == ("d", "")
    assert (rows["q#1"].standing, rows["q#1"].version) == ("", ""), "no plan knows it yet"
    handing = QueueHandOver(QUEUES[0], Phase.REVOKING, "p#1", 3, None, 4)
    row = queue_rows((handing,), {})[QUEUES[0]]
    assert (row.owner, row.generation, row.phase, row.target, row.why) == ("p#1", 3, "revoking", "", "")
    kept = KeptGroup(members=rows)
    assert [one.standing for one in plan_of("g", kept, plan.queues, 7).members] == [
        AdmissionStatus.ACTIVE
    ] * 2
    assert (client_of("a#b#1.2.3"), client_of("stranger")) == ("a#b", "stranger")


def test_counts_continue_across_leaders() -> None:
    base = GroupRow(released=1, lease_over=2, drained_too_long=3, late=4)
    found = counted(base, Counts(10, 20, 30), 40)
    assert (found.released, found.lease_over, found.drained_too_long, found.late) == (11, 22, 33, 44)
