"""Managed groups in the database. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

import dataclasses

import pytest
from sqlalchemy import update

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import managed_plan, managed_queue
from sparrowmq.coordinator.groups import table as groups
from sparrowmq.coordinator.groups.group_metadata import (
    GroupRow,
    KeptGroup,
    MemberRow,
    PlanRow,
    QueueMove,
    QueueRow,
    SeenMember,
)
from sparrowmq.coordinator.groups.proofs import digest_of
from sparrowmq.core.message import MessageQueue

A, B = MessageQueue("T", "a", 0), MessageQueue("Tä", "b", 1)
P = MemberRow("p", "10.0.0.1", "1.0", 5, ("T",), "active")
Q = MemberRow(
    "q", "10.0.0.2", "1.0", 7, ("T", "U"), "standby", "1 members that joined earlier have the queues"
)
FIRST = KeptGroup(
    GroupRow(3, 1, True, 10_000, 1, 2, 3, 4),
    {"p#1": P, "q#1": Q},
    {A: QueueRow("p#1", 1, "granted", "p#1", "had no owner"), B: QueueRow("", 1, "free", "", "")},
)
PLAN = PlanRow(1, 2, 2, 1, "joined: p#1", (QueueMove(A, "", "p#1", "new"),))


def save(database: Database, before: KeptGroup, after: KeptGroup, plan: PlanRow | None = None) -> None:
    with database.write() as connection:
        groups.save(connection, "g", 3, before, after, plan)


def test_saved_data_is_loaded_and_only_differences_are_written(database: Database) -> None:
    save(database, KeptGroup(), FIRST)
    with database.read() as connection:
        assert groups.load(connection, "g") == FIRST
        assert groups.load(connection, "other") == KeptGroup()
        since = {one.queue: one.since for one in groups.queue_views(connection, "g")}
    after = KeptGroup(
        dataclasses.replace(FIRST.group, late=9),
        {"q#1": dataclasses.replace(Q, standing="active", reason="")},
        {A: QueueRow("p#1", 1, "revoking", "q#1", "p#1 left")},
    )
    save(database, FIRST, after)
    with database.read() as connection:
        assert groups.load(connection, "g") == after
        (queue,) = groups.queue_views(connection, "g")
    assert queue.since == since[A], "it has the same owner since then"
    with database.write() as connection:
        connection.execute(update(managed_queue).values(since=1))
    moved = dataclasses.replace(after, queues={A: QueueRow("q#1", 2, "granted", "q#1", "p#1 left")})
    save(database, after, moved)
    with database.read() as connection:
        (queue,) = groups.queue_views(connection, "g")
    assert (queue.since > 1, queue.row.owner) == (True, "q#1")


def test_plan_is_in_force_once_all_queues_are_settled_and_replaced_ones_never_are(database: Database) -> None:
    unsettled = dataclasses.replace(FIRST, group=dataclasses.replace(FIRST.group, settled=False))
    save(database, KeptGroup(), unsettled, PLAN)
    second = dataclasses.replace(unsettled, group=dataclasses.replace(unsettled.group, generation=2))
    save(database, unsettled, second, dataclasses.replace(PLAN, generation=2, cause="left: q#1", moves=()))
    settled = dataclasses.replace(second, group=dataclasses.replace(second.group, settled=True))
    save(database, second, settled)
    with database.read() as connection:
        newest, first = groups.plan_views(connection, "g", 10)
        assert [one.row.generation for one in groups.plan_views(connection, "g", 10, newest.id)] == [1]
        (view,) = groups.views(connection)
    assert (first.row, first.epoch, first.in_force_at) == (PLAN, 3, 0)
    assert newest.in_force_at >= newest.made_at > 0
    assert (view.name, view.members, view.queues, view.numbers) == ("g", 2, 2, settled.group)
    assert view.planned_at >= first.made_at


def test_stored_plan_whose_answer_was_lost_is_in_the_history_once(database: Database) -> None:
    unsettled = dataclasses.replace(FIRST, group=dataclasses.replace(FIRST.group, settled=False))
    save(database, KeptGroup(), unsettled, PLAN)
    again = dataclasses.replace(PLAN, cause="joined: p#1, q#1")
    save(database, unsettled, unsettled, again)
    with database.read() as connection:
        assert [one.row for one in groups.plan_views(connection, "g", 10)] == [again]


def test_reports_of_members_are_one_row_per_group(database: Database) -> None:
    save(database, KeptGroup(), FIRST)
    with database.write() as connection:
        groups.see(connection, {"g": ({"p#1": SeenMember(250, 7_750, 1, 3)}, "b does not answer" * 99)})
    with database.read() as connection:
        p, q = groups.member_views(connection, "g")
        (view,) = groups.views(connection, "g")
        assert groups.views(connection, "none") == []
    assert (p.member, p.row, p.queues, p.knows, p.late) == ("p#1", P, 1, 1, 3)
    assert p.heard_at is not None
    assert p.lease_ends_at == p.heard_at + 8_000
    assert (q.member, q.queues, q.heard_at, q.knows) == ("q#1", 0, None, None)
    assert len(view.problem) == groups.PROBLEM_CHARS
    assert view.seen_at == p.heard_at + 250


def test_plans_are_deleted_by_age_and_by_number(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "PLANS_KEPT", 3)
    save(database, KeptGroup(), FIRST)
    for generation in range(1, 8):
        save(database, FIRST, FIRST, dataclasses.replace(PLAN, generation=generation))
    with database.write() as connection:
        connection.execute(update(managed_plan).where(managed_plan.c.generation <= 2).values(made_at=5))
        assert groups.delete_plans_before(connection, 6, 1) == 1
        assert groups.delete_plans_before(connection, 6, 9) == 1
        assert groups.delete_plans_beyond(connection, 0, 1) == 1
        assert groups.delete_plans_beyond(connection, 0, 9) == 1
        assert groups.delete_plans_beyond(connection, 0, 9) == 0
        assert [one.row.generation for one in groups.plan_views(connection, "g", 9)] == [7, 6, 5]


def test_digests_of_proofs_are_stored_for_the_next_leader(database: Database) -> None:
    row = dataclasses.replace(P, proof=digest_of("g", "p#1", "the proof"))
    save(database, KeptGroup(), KeptGroup(members={"p#1": row}))
    with database.read() as connection:
        (found,) = groups.load(connection, "g").members.values()
    assert found == row
