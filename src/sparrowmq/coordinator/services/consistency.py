"""The consistency check: what disagrees between brokers, name servers and the database, with repairs to
choose from. It repairs nothing by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, select

from sparrowmq.coordinator import findings
from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.table import Check, Condition
from sparrowmq.coordinator.cluster.survey import SurveyView
from sparrowmq.coordinator.database.tables import lag_limit, object_role
from sparrowmq.coordinator.findings import Finding
from sparrowmq.coordinator.services.frame import Work
from sparrowmq.coordinator.services.schedule import Kind, Option, Report
from sparrowmq.coordinator.services.watch import Watch, need, policy_of, report
from sparrowmq.coordinator.upkeep import consistency

RULE: Final = "inconsistent"
KIND: Final = Kind(
    "consistency",
    "What disagrees between brokers, name servers and the database",
    600_000,
    60_000,
    300.0,
    (
        Option("alarms", 1, 0, 1, "0: findings are listed and fire no alarms"),
        Option("checks", 2, 1, 100, "checks running that must see it before it fires"),
        Option("reminder_seconds", 0, 0, 604_800, "how often a firing alarm is told again; 0: once"),
    ),
)
Rows = set[tuple[str, str, str]]


def conditions(found: Sequence[Finding]) -> list[Condition]:
    """One condition for each kind of finding of a group on a topic, however many queues it is about. Pure."""
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


class Consistency(Watch[SurveyView]):
    """Looks at all tables and brings findings and alarms up to date."""

    kind = KIND

    async def step(self, work: Work) -> Report:
        """One look. Raises `CoordinatorError` when no broker could be looked at."""
        land = await self._view.landscape()
        need("broker", land.brokers, land.failed)
        roles, limits = await work.read(_database)
        found = consistency.look(land, roles, limits)
        told = conditions(found) if work.options["alarms"] else ()
        blind = bool(land.failed)
        check = Check(RULE, policy_of(work.options), tuple(told), partial=blind)

        def keep(connection: Connection) -> dict[str, int]:
            counts = findings.replace(connection, KIND.name, found, partial=blind)
            seen = table.observe(connection, check, work.actor, self._channels)
            return counts | {"fired": seen["fired"], "resolved": seen["resolved"]}

        return report("brokers", land.brokers, land.failed, await work.write(keep))


def _database(connection: Connection) -> tuple[Rows, set[tuple[str, str]]]:
    roles = connection.execute(select(object_role.c.kind, object_role.c.object, object_role.c.person))
    limits = connection.execute(select(lag_limit.c.group_name, lag_limit.c.topic))
    return {(one[0], one[1], one[2]) for one in roles}, {(one[0], one[1]) for one in limits}
