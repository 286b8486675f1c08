"""Governance: findings about topics and groups, from the brokers' state and the history in the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.many import delete_all, insert_all, update_all
from sparrowmq.coordinator.database.tables import object_role, object_use, person
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import WatchService, need, policy_of, report
from sparrowmq.coordinator.upkeep.governance_rules import (
    KINDS,
    Measures,
    Memory,
    Thing,
    next_day,
    remember,
    verdicts,
)
from sparrowmq.coordinator.upkeep.landscape import Use
from sparrowmq.coordinator.upkeep.logs import DAY_MS
from sparrowmq.coordinator.users.roles import Role

KIND: Final = ServiceKind(
    "governance",
    "Unused topics, missing owners and wrong sizes of topics and groups",
    DAY_MS,
    60_000,
    300.0,
    (
        ServiceOption(
            "idle_days", 3, 1, 3650, "days without senders and readers before a topic counts as unused"
        ),
        ServiceOption("queue_messages", 1_000_000, 1, 10**12, "messages per day that one queue is meant for"),
        ServiceOption("queues_min", 8, 1, 10_000, "number of queues that never counts as too many"),
        ServiceOption(
            "over_factor", 4, 2, 1000, "a topic has too many queues at this multiple of what it needs"
        ),
        ServiceOption("need_owner", 0, 0, 1, "1: also report topics and groups that never had an owner"),
        ServiceOption("alarms", 1, 0, 1, "0: findings are listed but fire no alarms"),
        ServiceOption("reminder_seconds", 0, 0, 604_800, "how often a firing alarm is repeated; 0: never"),
    ),
)


class Governance(WatchService[SurveyView]):
    """Queries all topics and groups and updates the findings; each kind has its own alarm rule."""

    kind = KIND

    async def step(self, work: Work) -> RunReport:
        """One check. Raises `CoordinatorError` when nothing could be queried."""
        use = await self._view.use()
        need("topic", {**use.ends, **use.groups}, use.failed)
        options = work.options
        measures = Measures(
            options["idle_days"] * DAY_MS,
            options["queue_messages"],
            options["queues_min"],
            options["over_factor"],
            bool(options["need_owner"]),
        )

        def judge(connection: Connection) -> dict[str, int]:
            found = _judged(connection, use, measures)
            findings.replace(connection, KIND.name, found, partial=bool(use.failed))
            counts = {}
            for rule in KINDS:
                mine = [one for one in found if one.kind == rule]
                told = mine if options["alarms"] else ()
                conditions = tuple(Condition(one.key, one.text, one.group, one.topic) for one in told)
                check = AlarmCheck(rule, policy_of(options), conditions, partial=bool(use.failed))
                table.observe(connection, check, work.actor, self._channels)
                counts[rule] = len(mine)
            return counts

        counts = {"groups": len(use.groups)} | await work.write(judge)
        return report("topics", use.ends, use.failed, counts)


def _judged(connection: Connection, use: Use, measures: Measures) -> list[findings.Finding]:
    now = int(connection.execute(select(now_ms())).scalar_one())
    had, have = _owners(connection)
    before = _read(connection)
    after = remember(before, use, had, now)
    found = verdicts(after, use, have, measures, now)
    _keep(connection, before, next_day(after, now), now)
    return found


def _owners(connection: Connection) -> tuple[set[Thing], set[Thing]]:
    """Objects that ever had an owner, and objects with a current owner."""
    query = select(object_role.c.kind, object_role.c.object, person.c.enabled).join(
        person, person.c.name == object_role.c.person
    )
    rows = list(connection.execute(query.where(object_role.c.role == str(Role.OWNER))))
    return {(row[0], row[1]) for row in rows}, {(row[0], row[1]) for row in rows if row[2]}


def _read(connection: Connection) -> dict[Thing, Memory]:
    found = {}
    for row in connection.execute(select(object_use)).mappings():
        values = {name: row[name] for name in Memory.__slots__}
        found[row["kind"], row["object"]] = Memory(**{**values, "owned": bool(row["owned"])})
    return found


def _keep(
    connection: Connection, before: Mapping[Thing, Memory], after: Mapping[Thing, Memory], now: int
) -> None:
    key = ("kind", "object")
    rows = {
        thing: {"kind": thing[0], "object": thing[1], "seen_at": now} | asdict(memory)
        for thing, memory in after.items()
        if memory != before.get(thing)
    }
    insert_all(connection, object_use, [row for thing, row in rows.items() if thing not in before])
    update_all(connection, object_use, key, [row for thing, row in rows.items() if thing in before])
    gone = [{"kind": kind, "object": name} for kind, name in before.keys() - after.keys()]
    delete_all(connection, object_use, key, gone)
