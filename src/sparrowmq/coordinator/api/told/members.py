"""The route of one member's report about itself: queues, rates, thread stacks."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from sparrowmq.coordinator.api.cluster import explorer
from sparrowmq.coordinator.api.shared import Answer, Who
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

router = APIRouter(prefix="/cluster", tags=["cluster"])
STACKS_CHARS_MAX = 256 * 1024


@router.get("/groups/{group}/members/{client_id}")
async def show_member(group: str, client_id: str, who: Who, stacks: bool = False) -> Answer:
    """The current report of an online member; with `stacks`, the stacks of its threads.

    404 if no such member is online, 502 with its answer if it refuses.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    found = await asked(admin.groups.member(group, client_id, stacks=stacks))
    if found is None:
        text = f"{client_id[:255]} is not online in the group {group[:255]}; reload its members"
        raise RefusedError(text, status=404)
    if found.info is None:
        raise RefusedError(found.error or f"{client_id[:255]} does not answer", status=502)
    info = found.info
    queues: list[dict[str, Any]] = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "in_hand": held.cached_msg_count,
            "offset": held.commit_offset,
            "locked": held.locked,
            "pulled_ms": held.last_pull_timestamp,
            "handled_ms": held.last_consume_timestamp,
        }
        for queue, held in sorted(info.queues.items())
    ]
    rates = [
        {
            "topic": topic,
            "handled_per_second": one.consume_ok_tps,
            "failed_per_second": one.consume_failed_tps,
            "handling_ms": one.consume_rt,
            "pulled_per_second": one.pull_tps,
        }
        for topic, one in sorted(info.statuses.items())
    ]
    return {
        "client_id": client_id,
        "settings": dict(info.properties),
        "subscriptions": {one.topic: one.expression for one in info.subscriptions},
        "queues": queues,
        "rates": rates,
        "stacks": info.jstack[:STACKS_CHARS_MAX] if info.jstack else None,
    }
