"""Routes of what brokers guard: holds, which keep messages for a group, and policies with their fences.

Holds can be set and released here. Policies are those of the coordinator's plans.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import Field

from sparrowmq import aio
from sparrowmq.coordinator.api.acting import Change, carry_out
from sparrowmq.coordinator.api.cluster import NAME_CHARS_MAX, explorer, told
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError
from sparrowmq.protocol.call_headers import HOLD_HOURS_MAX, HOLD_SIZE_MAX
from sparrowmq.protocol.managed import GroupPolicy

router = APIRouter(prefix="/cluster", tags=["cluster"])
HOURS_MAX: Final = HOLD_HOURS_MAX
SIZE_MAX: Final = HOLD_SIZE_MAX
"""Limits of a hold."""


class HoldWish(Reason):
    """The group that messages are kept for, the most hours that the oldest of them is kept, and the most
    bytes of log that are kept for it (0: no limit).
    """

    group: str = Field(min_length=1, max_length=NAME_CHARS_MAX)
    hours: int = Field(default=168, ge=1, le=HOURS_MAX)
    size_max: int = Field(default=0, ge=0, le=SIZE_MAX)


@router.get("/holds")
async def list_holds(who: Who) -> list[Answer]:
    """The holds of all brokers, by topic and broker: a broker keeps the messages of `topic`, whatever their
    age, until `group` has consumed them.

    `messages` wait for the group, the oldest since `oldest_ms` (null without any). `overrun` says why a hold
    no longer keeps messages; it is empty while it does. Apache's brokers have no holds.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    return [hold_view(one) for one in await told(who, "holds", "", admin.holds.list)]


@router.put("/holds/{topic}")
async def put_hold(topic: str, body: HoldWish, who: Who) -> Answer:
    """Hold the messages of a topic at all its masters, or change its hold. A topic has one hold.

    A hold takes precedence over retention and over a full disk, so it needs the right to operate.
    """
    thing = ("topic", topic)
    who.need(RoleRight.OPERATE, thing)
    before = await _held(who, topic)
    admin = await explorer(who).admin()
    after: dict[str, Any] = {"group": body.group, "hours": body.hours, "size_max": body.size_max}
    change = Change("hold.set", thing, before, after, reason=body.reason)
    await carry_out(who, change, lambda: asked(admin.holds.set(topic, **after)))
    return {"topic": topic, **after}


@router.delete("/holds/{topic}")
async def release_hold(topic: str, who: Who, reason: Annotated[str, Query(max_length=500)] = "") -> Answer:
    """Release the hold of a topic at all its masters: its messages are then deleted when they expire."""
    thing = ("topic", topic)
    who.need(RoleRight.OPERATE, thing)
    before = await _held(who, topic)
    if before is None:
        raise RefusedError(
            f"no broker holds messages of the topic {topic[:255]!r}; list all holds", status=404
        )
    admin = await explorer(who).admin()
    change = Change("hold.release", thing, before, reason=reason)
    await carry_out(who, change, lambda: asked(admin.holds.delete(topic)))
    return {}


@router.get("/groups/{group}/policies")
async def group_policies(group: str, who: Who) -> Answer:
    """What each SparrowMQ broker enforces for a group: who may consume, what is paused, and the owner of each
    of its queues with the generation that requests must carry (the fence).

    `members` is null if everybody may consume, `maximum` is 0 if all of them at once. Brokers without a
    policy for the group are left out; Apache's have none.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    found = await told(who, "policies", group, lambda: admin.policies.list(group))
    return {
        "group": group,
        "brokers": [
            policy_view(name, one) for name, table in sorted(found.items()) for one in table.policies
        ],
    }


async def _held(who: ApiCaller, topic: str) -> dict[str, Any] | None:
    """The hold of a topic by broker, as the audit log keeps it; None without any."""
    admin = await explorer(who).admin()
    found = [one for one in await asked(admin.holds.list()) if one.topic == topic]
    return {one.broker_name: f"{one.group}, {one.hours} h, {one.size_max} B" for one in found} or None


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
