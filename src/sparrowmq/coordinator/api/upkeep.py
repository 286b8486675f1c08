"""Routes of the services' findings, and of repairs."""

from __future__ import annotations

from fastapi import APIRouter

from sparrowmq.coordinator.api.shared import Answer, Reason, Who
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.records.findings import FindingRow
from sparrowmq.coordinator.services.housekeeping import repairs
from sparrowmq.coordinator.users.roles import RoleRight

router = APIRouter(tags=["upkeep"])


@router.get("/findings")
def list_findings(who: Who, service: str = "", kind: str = "", repairs: bool = False) -> list[Answer]:
    """The findings of the services' last runs; with `repairs`, only those that can be repaired."""
    who.need(RoleRight.READ)
    found = who.read(lambda c: findings.search(c, service=service, kind=kind, repairs=repairs))
    return [finding_view(row) for row in found]


@router.get("/findings/{number}")
def one_finding(number: int, who: Who) -> Answer:
    """One finding, with the state that its repair is for."""
    who.need(RoleRight.READ)
    return finding_view(who.read(lambda connection: findings.one(connection, number)))


@router.post("/findings/{number}/repair")
async def repair_finding(number: int, body: Reason, who: Who) -> Answer:
    """Repair a finding as proposed; returns the states before and after."""
    context = who.context
    row = await context.database.run(lambda: who.read(lambda connection: findings.one(connection, number)))
    right, things = repairs.needs(row)
    who.need(right, *things)
    actor = Actor(who.person.name, body.reason)
    return await repairs.run(context.database, context.survey, number, actor, who.check)


def finding_view(row: FindingRow) -> Answer:
    """A finding as the API shows it."""
    one, repair = row.finding, row.finding.repair
    known = repair is not None and repair.action in repairs.ACTIONS
    return {
        "id": row.id,
        "service": row.service,
        "kind": one.kind,
        "object": one.key,
        "group": one.group,
        "topic": one.topic,
        "text": one.text,
        "numbers": dict(one.numbers),
        "first_ms": row.first_at,
        "seen_ms": row.seen_at,
        "repair": {
            "action": repair.action,
            "text": repairs.words(repair),
            "right": str(repairs.ACTIONS[repair.action].right),
            "before": dict(repair.before),
        }
        if repair is not None and known
        else None,
    }
