"""Routes of what services found, and of repairs."""

from __future__ import annotations

from fastapi import APIRouter

from sparrowmq.coordinator import findings, repairs
from sparrowmq.coordinator.api.shared import Answer, Reason, Who
from sparrowmq.coordinator.audit import Actor
from sparrowmq.coordinator.findings import Row
from sparrowmq.coordinator.users.roles import Right

router = APIRouter(tags=["upkeep"])


@router.get("/findings")
def list_findings(who: Who, service: str = "", kind: str = "", repairs: bool = False) -> list[Answer]:
    """What services found at their last look; with `repairs` only what can be repaired."""
    who.need(Right.READ)
    found = who.read(lambda c: findings.search(c, service=service, kind=kind, repairs=repairs))
    return [finding_view(row) for row in found]


@router.get("/findings/{number}")
def one_finding(number: int, who: Who) -> Answer:
    """One finding, with the state that its repair is for."""
    who.need(Right.READ)
    return finding_view(who.read(lambda connection: findings.one(connection, number)))


@router.post("/findings/{number}/repair")
async def repair_finding(number: int, body: Reason, who: Who) -> Answer:
    """Do what is proposed for a finding; gives what was before and after."""
    context = who.context
    row = await context.database.run(lambda: who.read(lambda connection: findings.one(connection, number)))
    right, things = repairs.needs(row)
    who.need(right, *things)
    actor = Actor(who.person.name, body.reason)
    return await repairs.run(context.database, context.survey, number, actor, who.check)


def finding_view(row: Row) -> Answer:
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
