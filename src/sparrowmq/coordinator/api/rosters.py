"""The route of members that have been online."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from sparrowmq.coordinator.api.shared import Answer, Who
from sparrowmq.coordinator.services.groups import roster
from sparrowmq.coordinator.users.roles import RoleRight

router = APIRouter(tags=["roster"])


@router.get("/roster")
def list_roster(who: Who, group: str = "") -> list[Answer]:
    """Members of one group or of all groups that have been online and were not removed since, with the times.

    A `fenced` member is managed by a coordinator: brokers refuse its requests for queues that it has lost.
    """
    who.need(RoleRight.READ)
    seen, fenced = who.read(lambda found: (roster.read(found, group), roster.fenced(found, group)))
    return [asdict(one) | {"fenced": (one.group, one.client_id) in fenced} for one in seen]
