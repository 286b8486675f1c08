"""Routes of what brokers guard: holds, which keep messages for a group, and policies with their fences."""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter

from sparrowmq import aio
from sparrowmq.coordinator.api.cluster import explorer, told
from sparrowmq.coordinator.api.shared import Answer, Who
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.protocol.managed import GroupPolicy

router = APIRouter(prefix="/cluster", tags=["cluster"])


@router.get("/holds")
async def list_holds(who: Who) -> list[Answer]:
    """The holds of all brokers, by topic and broker: a broker keeps the messages of `topic`, whatever their
    age, until `group` has consumed them.

    `messages` wait for the group, the oldest since `oldest_ms` (null without any). `overrun` says why a hold
    no longer keeps messages; it is empty while it does. Apache's brokers have no holds.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    return [hold_view(one) for one in await told(who, "holds", "", admin.holds)]


@router.get("/groups/{group}/policies")
async def group_policies(group: str, who: Who) -> Answer:
    """What each SparrowMQ broker enforces for a group: who may consume, what is paused, and the owner of each
    of its queues with the generation that requests must carry (the fence).

    `members` is null if everybody may consume, `maximum` is 0 if all of them at once. Brokers without a
    policy for the group are left out; Apache's have none.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    found = await told(who, "policies", group, lambda: admin.group_policies(group))
    return {
        "group": group,
        "brokers": [
            policy_view(name, one) for name, table in sorted(found.items()) for one in table.policies
        ],
    }


def hold_view(one: aio.HoldStatus) -> Answer:
    """A hold, as the API shows it. Pure."""
    found = asdict(one)
    return {"topic": found.pop("topic"), "broker": found.pop("broker_name"), **found}


def policy_view(broker: str, policy: GroupPolicy) -> Answer:
    """What one broker enforces: of the queues, its own. Pure."""
    return {
        "broker": broker,
        "epoch": policy.epoch,
        "revision": policy.revision,
        "members": policy.members,
        "maximum": policy.maximum,
        "queues": [
            {
                "topic": one.topic,
                "queue": one.queue_id,
                "owner": one.owner or None,
                "generation": one.generation,
                "fenced": one.fenced,
            }
            for one in policy.queues
            if one.broker_name == broker
        ],
        "pauses": [
            {
                "topic": one.topic or None,
                "queue": None if one.queue_id < 0 else one.queue_id,
                "until_ms": one.until or None,
                "reason": one.reason,
            }
            for one in policy.pauses
        ],
    }
