"""Managed groups in the database: the leader's data (`DatabaseGroupMetadata`), and queries of it.

A leader's writes are one transaction each, which checks the lease first. A save writes only changed rows, so
a plan that moves two of ten thousand queues writes two rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, func, insert, select, update

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.many import delete_all, insert_all, update_all
from sparrowmq.coordinator.database.tables import (
    managed_group,
    managed_member,
    managed_plan,
    managed_queue,
)
from sparrowmq.coordinator.groups.group_metadata import (
    GroupRow,
    KeptGroup,
    MemberRow,
    PlanRow,
    QueueMove,
    QueueRow,
    SeenMember,
    changed_rows,
)
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.core.message import MessageQueue

PAGE_MAX: Final = 500
PLANS_KEPT: Final = 1000
"""Plans of one group that are always kept; the audit clean-up deletes others."""
_MEMBER: Final = ("group_name", "member")
_QUEUE: Final = ("group_name", "topic", "broker", "queue_id")
"""Keys of the tables."""
PROBLEM_CHARS: Final = 500
WHY_CHARS: Final = 1000


class DatabaseGroupMetadata:
    """The ledger of one leader; all writes go through its `Work`."""

    def __init__(self, work: Work) -> None:
        self._work = work

    async def groups(self) -> list[str]:
        """Groups that have members."""
        query = select(managed_member.c.group_name).distinct().order_by(managed_member.c.group_name)
        return await self._work.read(lambda connection: list(connection.execute(query).scalars()))

    async def load(self, group: str) -> KeptGroup:
        """The data of a group."""
        return await self._work.read(lambda connection: load(connection, group))

    async def save(
        self, group: str, before: KeptGroup, after: KeptGroup, plan: PlanRow | None = None
    ) -> None:
        """Write the differences. Raises `LeaseLostError`, the `DatabaseError` family."""
        epoch = self._work.epoch
        await self._work.write(lambda connection: save(connection, group, epoch, before, after, plan))

    async def see(self, found: Mapping[str, tuple[Mapping[str, SeenMember], str]]) -> None:
        """Write the members' reports and the current problem. Raises like `save`."""
        if found:
            await self._work.write(lambda connection: see(connection, found))


def load(connection: Connection, group: str) -> KeptGroup:
    """The data of a group; empty for a new one."""
    row = connection.execute(select(managed_group).where(managed_group.c.name == group)).mappings().first()
    if row is None:
        return KeptGroup()
    numbers = {name: row[name] for name in GroupRow.__dataclass_fields__}
    mine = managed_member.c.group_name == group
    members = {
        one["member"]: MemberRow(
            one["client_id"],
            one["address"],
            one["version"],
            one["seniority"],
            tuple(json.loads(one["topics"])),
            one["standing"],
            one["reason"],
            one["proof"],
        )
        for one in connection.execute(select(managed_member).where(mine)).mappings()
    }
    queues = {
        MessageQueue(one["topic"], one["broker"], one["queue_id"]): QueueRow(
            one["owner"], one["generation"], one["phase"], one["target"], one["why"]
        )
        for one in connection.execute(
            select(managed_queue).where(managed_queue.c.group_name == group)
        ).mappings()
    }
    return KeptGroup(GroupRow(**numbers | {"settled": bool(row["settled"])}), members, queues)


def save(
    connection: Connection, group: str, epoch: int, before: KeptGroup, after: KeptGroup, plan: PlanRow | None
) -> None:
    """Write the differences between two states of a group, and a new plan."""
    _save_group(connection, group, before.group, after.group, is_planned=plan is not None)
    written, gone = changed_rows(before.members, after.members)
    new = [name for name in written if name not in before.members]
    delete_all(connection, managed_member, _MEMBER, [{"group_name": group, "member": name} for name in gone])
    rows = [_member_values(group, name, written[name]) for name in new]
    insert_all(connection, managed_member, rows, joined_at=now_ms())
    known = [_member_values(group, name, row) for name, row in written.items() if name in before.members]
    update_all(connection, managed_member, _MEMBER, known)
    _save_queues(connection, group, before, after)
    if plan is not None:
        # committed, but the answer was lost: the plan was never sent
        if before.group.generation >= plan.generation:
            same = managed_plan.c.group_name == group, managed_plan.c.generation == plan.generation
            connection.execute(delete(managed_plan).where(*same))
        _add_plan(connection, group, epoch, plan)


def _save_group(
    connection: Connection, group: str, before: GroupRow, after: GroupRow, *, is_planned: bool
) -> None:
    values: dict[str, Any] = asdict(after) | ({"planned_at": now_ms()} if is_planned else {})
    mine = managed_group.c.name == group
    if connection.execute(select(managed_group.c.name).where(mine)).first() is None:
        connection.execute(insert(managed_group).values(name=group, seen="{}", **values))
    elif before != after or is_planned:
        connection.execute(update(managed_group).where(mine).values(**values))
    if after.settled and not before.settled:
        made = managed_plan.c.group_name == group, managed_plan.c.generation == after.generation
        connection.execute(
            update(managed_plan).where(*made, managed_plan.c.in_force_at == 0).values(in_force_at=now_ms())
        )


def _save_queues(connection: Connection, group: str, before: KeptGroup, after: KeptGroup) -> None:
    written, gone = changed_rows(before.queues, after.queues)
    delete_all(connection, managed_queue, _QUEUE, [_queue_key(group, queue) for queue in gone])
    fresh, moved, others = [], [], []
    for queue, row in written.items():
        values = _queue_key(group, queue) | asdict(row) | {"why": row.why[:WHY_CHARS]}
        was = before.queues.get(queue)
        if was is None:
            fresh.append(values)
        elif (was.owner, was.generation) != (row.owner, row.generation):
            moved.append(values)
        else:
            others.append(values)
    insert_all(connection, managed_queue, fresh, since=now_ms())
    update_all(connection, managed_queue, _QUEUE, moved, since=now_ms())
    update_all(connection, managed_queue, _QUEUE, others)


def _add_plan(connection: Connection, group: str, epoch: int, plan: PlanRow) -> None:
    moves = [
        [one.queue.topic, one.queue.broker_name, one.queue.queue_id, one.before, one.after, one.why]
        for one in plan.moves
    ]
    connection.execute(
        insert(managed_plan).values(
            group_name=group,
            generation=plan.generation,
            epoch=epoch,
            made_at=now_ms(),
            members=plan.members,
            queues=plan.queues,
            moved=plan.moved,
            cause=plan.cause,
            moves=json.dumps(moves, ensure_ascii=False),
        )
    )


def see(connection: Connection, found: Mapping[str, tuple[Mapping[str, SeenMember], str]]) -> None:
    """Write the members' reports, one row per group."""
    rows = [
        {
            "name": group,
            "seen": json.dumps({name: list(asdict(one).values()) for name, one in members.items()}),
            "problem": problem[:PROBLEM_CHARS],
        }
        for group, (members, problem) in found.items()
    ]
    update_all(connection, managed_group, ("name",), rows, seen_at=now_ms())


def _member_values(group: str, name: str, row: MemberRow) -> dict[str, Any]:
    return {
        **asdict(row),
        "group_name": group,
        "member": name,
        "topics": json.dumps(row.topics),
        "address": row.address[:64],
        "version": row.version[:64],
        "reason": row.reason[:500],
    }


def _queue_key(group: str, queue: MessageQueue) -> dict[str, Any]:
    return dict(zip(_QUEUE, (group, queue.topic, queue.broker_name, queue.queue_id), strict=True))


# What people read


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group, for display. Times are the database's; `planned_at` 0: no plan yet."""

    name: str
    numbers: GroupRow
    members: int
    queues: int
    planned_at: int
    seen_at: int
    problem: str


@dataclass(frozen=True, slots=True)
class MemberView:
    """A member, for display; None where its leader has not saved a report yet."""

    member: str
    row: MemberRow
    joined_at: int
    queues: int
    heard_at: int | None = None
    lease_ends_at: int | None = None
    knows: int | None = None
    late: int = 0
    applied_revision: int | None = None
    unable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue, for display; `since` is when its owner got it."""

    queue: MessageQueue
    row: QueueRow
    since: int


@dataclass(frozen=True, slots=True)
class PlanView:
    """A plan of the history; `in_force_at` 0: being applied, or replaced by the next one."""

    id: int
    epoch: int
    made_at: int
    in_force_at: int
    row: PlanRow


def views(connection: Connection, group: str | None = None) -> list[GroupView]:
    """All managed groups, or one, by name."""
    query = select(managed_group).order_by(managed_group.c.name)
    if group is not None:
        query = query.where(managed_group.c.name == group)
    members, queues = (_count(connection, table, group) for table in (managed_member, managed_queue))
    return [
        GroupView(
            row["name"],
            GroupRow(**{name: row[name] for name in GroupRow.__dataclass_fields__}),
            members.get(row["name"], 0),
            queues.get(row["name"], 0),
            row["planned_at"],
            row["seen_at"],
            row["problem"],
        )
        for row in connection.execute(query).mappings()
    ]


def _count(connection: Connection, table: Table, group: str | None) -> dict[str, int]:
    query = select(table.c.group_name, func.count()).group_by(table.c.group_name)
    if group is not None:
        query = query.where(table.c.group_name == group)
    return {name: int(count) for name, count in connection.execute(query)}


def member_views(connection: Connection, group: str) -> list[MemberView]:
    """Members of a group, the longest first."""
    said = connection.execute(
        select(managed_group.c.seen, managed_group.c.seen_at).where(managed_group.c.name == group)
    ).first()
    seen, seen_at = ({}, 0) if said is None else (json.loads(said[0]), int(said[1]))
    owned = dict(_owned(connection, group))
    query = (
        select(managed_member)
        .where(managed_member.c.group_name == group)
        .order_by(managed_member.c.seniority, managed_member.c.member)
    )
    kept = load(connection, group).members
    found = []
    for row in connection.execute(query).mappings():
        name = row["member"]
        view = MemberView(name, kept[name], row["joined_at"], owned.get(name, 0))
        if name in seen:
            one = SeenMember(*seen[name])
            times = seen_at - one.heard_ms_ago, seen_at + one.lease_ms_left
            last = *times, one.knows, one.late, None if one.applied_revision < 0 else one.applied_revision
            view = MemberView(name, kept[name], row["joined_at"], view.queues, *last, unable=one.unable)
        found.append(view)
    return found


def _owned(connection: Connection, group: str) -> Iterable[tuple[str, int]]:
    table = managed_queue
    query = select(table.c.owner, func.count()).where(table.c.group_name == group).group_by(table.c.owner)
    return [(owner, int(count)) for owner, count in connection.execute(query)]


def queue_views(connection: Connection, group: str) -> list[QueueView]:
    """Queues of a group, sorted."""
    query = select(managed_queue).where(managed_queue.c.group_name == group)
    found = [
        QueueView(
            MessageQueue(one["topic"], one["broker"], one["queue_id"]),
            QueueRow(one["owner"], one["generation"], one["phase"], one["target"], one["why"]),
            one["since"],
        )
        for one in connection.execute(query).mappings()
    ]
    return sorted(found, key=lambda one: one.queue)


def plan_views(
    connection: Connection, group: str, count: int, before_id: int | None = None
) -> list[PlanView]:
    """Plans of a group, the newest first."""
    query = (
        select(managed_plan)
        .where(managed_plan.c.group_name == group)
        .order_by(managed_plan.c.id.desc())
        .limit(max(1, min(count, PAGE_MAX)))
    )
    if before_id is not None:
        query = query.where(managed_plan.c.id < before_id)
    return [_plan_view(row) for row in connection.execute(query).mappings()]


def _plan_view(row: Any) -> PlanView:
    moves = tuple(
        QueueMove(MessageQueue(topic, broker, queue_id), before, after, why)
        for topic, broker, queue_id, before, after, why in json.loads(row["moves"])
    )
    plan = PlanRow(row["generation"], row["members"], row["queues"], row["moved"], row["cause"], moves)
    return PlanView(row["id"], row["epoch"], row["made_at"], row["in_force_at"], plan)


def delete_plans_before(connection: Connection, at: int, limit: int) -> int:
    """Delete up to `limit` plans older than `at`, the oldest first; returns how many (pmq:T7)."""
    ids = select(managed_plan.c.id).where(managed_plan.c.made_at < at)
    return _delete_plans(connection, ids.order_by(managed_plan.c.made_at, managed_plan.c.id).limit(limit))


def delete_plans_beyond(connection: Connection, at: int, limit: int) -> int:
    """Delete up to `limit` plans that are not among the newest `PLANS_KEPT` of their group."""
    table = managed_plan
    crowded = select(table.c.group_name).group_by(table.c.group_name).having(func.count() > PLANS_KEPT)
    for group in list(connection.execute(crowded).scalars()):
        mine = select(table.c.id).where(table.c.group_name == group)
        last = connection.execute(mine.order_by(table.c.id.desc()).offset(PLANS_KEPT).limit(1)).scalar()
        if last is not None:
            return _delete_plans(connection, mine.where(table.c.id <= last).order_by(table.c.id).limit(limit))
    return 0


def _delete_plans(connection: Connection, ids: Any) -> int:
    found = list(connection.execute(ids).scalars())
    if found:
        connection.execute(delete(managed_plan).where(managed_plan.c.id.in_(found)))
    return len(found)
