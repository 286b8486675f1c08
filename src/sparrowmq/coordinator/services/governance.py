"""Governance: verdicts on topics and groups, by what brokers show and the database remembers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator import findings
from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.table import Check, Condition
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.many import delete_all, insert_all, update_all
from sparrowmq.coordinator.database.tables import object_role, object_use, person
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.coordinator.services.watch import Watch, need, policy_of, report
from sparrowmq.coordinator.upkeep.governance import (
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

KIND: Final = Kind(
    "governance",
    "Verdicts on topics and groups: not used, owners gone, sizes",
    DAY_MS,
    60_000,
    300.0,
    (
        Option("idle_days", 3, 1, 3650, "days without sender and reader before a topic is a zombie"),
        Option("queue_messages", 1_000_000, 1, 10**12, "messages a day that one queue is meant for"),
        Option("queues_min", 8, 1, 10_000, "queues that are never too many"),
        Option("over_factor", 4, 2, 1000, "how many times the queues it needs are too many for a topic"),
        Option("need_owner", 0, 0, 1, "1: topics and groups that never had an owner are told, too"),
        Option("alarms", 1, 0, 1, "0: verdicts are listed and fire no alarms"),
        Option("reminder_seconds", 0, 0, 604_800, "how often a firing alarm is told again; 0: once"),
    ),
)


class Governance(Watch[SurveyView]):
    """Looks at all topics and groups and brings the verdicts up to date, each an alarm of its own rule."""

    kind = KIND

    async def step(self, work: Work) -> Report:
        """One look. Raises `CoordinatorError` when nothing could be looked at."""
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
                check = Check(rule, policy_of(options), conditions, partial=bool(use.failed))
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
    """What anybody was ever made the owner of, and what somebody who is there owns."""
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
