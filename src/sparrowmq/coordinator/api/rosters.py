"""The route of who was seen online."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from sparrowmq.coordinator.api.shared import Answer, Who
from sparrowmq.coordinator.services import roster
from sparrowmq.coordinator.users.roles import Right

router = APIRouter(tags=["roster"])


@router.get("/roster")
def list_roster(who: Who, group: str = "") -> list[Answer]:
    """Members of one group or all that were seen online and are not swept, with the times of it.

    `fenced`: a coordinator counts it in, and brokers refuse what it sends of queues it has lost.
    """
    who.need(Right.READ)
    seen, fenced = who.read(lambda found: (roster.read(found, group), roster.fenced(found, group)))
    return [asdict(one) | {"fenced": (one.group, one.client_id) in fenced} for one in seen]
