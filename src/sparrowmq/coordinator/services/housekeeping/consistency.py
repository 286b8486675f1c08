"""The consistency check: differences between brokers, name servers and the database, with proposed repairs.
It repairs nothing automatically.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.database.tables import lag_limit, object_role
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.findings import Finding
from sparrowmq.coordinator.services.base.runner import Work
from sparrowmq.coordinator.services.base.schedule import RunReport, ServiceKind, ServiceOption
from sparrowmq.coordinator.services.base.watch import WatchService, need, policy_of, report
from sparrowmq.coordinator.upkeep import consistency_rules

RULE: Final = "inconsistent"
KIND: Final = ServiceKind(
    "consistency",
    "Differences between brokers, name servers and the database",
    600_000,
    60_000,
    300.0,
    (
        ServiceOption("alarms", 1, 0, 1, "0: findings are listed but fire no alarms"),
        ServiceOption("checks", 2, 1, 100, "consecutive checks that must see it before it fires"),
        ServiceOption("reminder_seconds", 0, 0, 604_800, "how often a firing alarm is repeated; 0: never"),
    ),
)
Rows = set[tuple[str, str, str]]


def conditions(found: Sequence[Finding]) -> list[Condition]:
    """One condition for each kind of finding of a group on a topic, whatever the number of queues. Pure."""
    by_thing: defaultdict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for one in found[: findings.FINDINGS_MAX]:
        by_thing[one.kind, one.group, one.topic].append(one)
    return [
        Condition(
            " ".join(filter(None, thing)),
            these[0].text + (f"; and {len(these) - 1} more" if len(these) > 1 else ""),
            these[0].group,
            these[0].topic,
        )
        for thing, these in by_thing.items()
    ]


class Consistency(WatchService[SurveyView]):
    """Queries all tables and updates findings and alarms."""

    kind = KIND

    async def step(self, work: Work) -> RunReport:
        """One check. Raises `CoordinatorError` when no broker could be queried."""
        land = await self._view.landscape()
        need("broker", land.brokers, land.failed)
        roles, limits = await work.read(_database)
        found = await asyncio.to_thread(consistency_rules.look, land, roles, limits)
        told = conditions(found) if work.options["alarms"] else ()
        blind = bool(land.failed)
        check = AlarmCheck(RULE, policy_of(work.options), tuple(told), partial=blind)

        def keep(connection: Connection) -> dict[str, int]:
            counts = findings.replace(connection, KIND.name, found, partial=blind)
            seen = table.observe(connection, check, work.actor, self._channels)
            return counts | {"fired": seen["fired"], "resolved": seen["resolved"]}

        return report("brokers", land.brokers, land.failed, await work.write(keep))


def _database(connection: Connection) -> tuple[Rows, set[tuple[str, str]]]:
    roles = connection.execute(select(object_role.c.kind, object_role.c.object, object_role.c.person))
    limits = connection.execute(select(lag_limit.c.group_name, lag_limit.c.topic))
    return {(one[0], one[1], one[2]) for one in roles}, {(one[0], one[1]) for one in limits}
