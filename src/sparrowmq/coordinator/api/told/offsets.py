"""Routes that copy offsets from one group to another, and previews of that and of an undone reset."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from sparrowmq import aio
from sparrowmq.coordinator.api import dynamic_settings
from sparrowmq.coordinator.api.acting import Change, carry_out
from sparrowmq.coordinator.api.cluster import NAME_CHARS_MAX, explorer, reset_steps, step_view
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.groups import resets
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.names import check_group, retry_topic

router = APIRouter(prefix="/cluster", tags=["cluster"])
Name = Annotated[str, Query(max_length=NAME_CHARS_MAX)]


class Takeover(Reason):
    """The group whose offsets are copied, for all its topics or for one."""

    source: str = Field(max_length=NAME_CHARS_MAX)
    topic: str | None = Field(default=None, max_length=NAME_CHARS_MAX)


@router.get("/groups/{group}/undo-preview")
async def preview_undo(group: str, who: Who) -> Answer:
    """The effect of undoing the last reset: which reset it is, and in each queue the current offset, the one
    from before the reset, and the number of messages that the group would receive again or skip. Nothing is
    changed. An undo is itself a reset, so it can be undone.
    """
    who.need(RoleRight.READ)
    database = who.context.database
    undone = await database.run(lambda: who.read(lambda connection: resets.last(connection, group)))
    steps = await reset_steps(who, group, undone.place, resets.undo_target(undone))
    return {"undoes": dynamic_settings.wish_view(undone), "topic": undone.place.topic, "steps": steps}


@router.get("/groups/{group}/takeover-preview")
async def preview_takeover(
    group: str, who: Who, source: Name, topic: Annotated[str | None, Query(max_length=NAME_CHARS_MAX)] = None
) -> list[Answer]:
    """The effect of copying the offsets of `source` in each queue: the current offset, the new offset, and
    the number of messages that the group would receive again or skip. Nothing is changed.
    """
    who.need(RoleRight.READ)
    return await _steps(who, group, source, topic)


@router.post("/groups/{group}/takeover")
async def take_over(group: str, body: Takeover, who: Who) -> list[Answer]:
    """Copy the stored offsets of another group to this one. Refused while members of this group
    are online.
    """
    thing = ("group", group)
    who.need(RoleRight.EDIT, thing)
    steps = await _steps(who, group, body.source, body.topic)
    admin = await explorer(who).admin()
    before, after = (
        {f"{one['topic']}/{one['broker']}/{one['queue']}": one[name] for one in steps}
        for name in ("before", "after")
    )
    told = {"source": body.source} | after
    change = Change("group.takeover", thing, before, told, reason=body.reason)
    await carry_out(who, change, lambda: asked(admin.groups.clone_offsets(body.source, group, body.topic)))
    return steps


async def _steps(who: ApiCaller, group: str, source: str, topic: str | None) -> list[Answer]:
    """Raises `RefusedError`: 422 if both groups are the same, 404 for a source without offsets."""
    for name in (group, source):
        check_group(name)
    if group == source:
        raise RefusedError(f"source and target are the same group, {group}; give another target", status=422)
    admin = await explorer(who).admin()
    given = await _places(admin, source, topic)
    if not given:
        of = "" if topic is None else f" in the topic {topic}"
        raise RefusedError(f"the group {source} has no offsets{of}; see the list of groups", status=404)
    own = await _places(admin, group, topic)
    topics = sorted({queue.topic for queue in given})
    ends = await asyncio.gather(*(asked(admin.topics.status(name)) for name in topics))
    known = {one.queue: one for found in ends for one in found}
    return [
        {"topic": queue.topic, **step_view(known[queue], own.get(queue), offset)}
        for queue, offset in sorted(given.items())
        if queue in known
    ]


async def _places(admin: aio.Admin, group: str, topic: str | None) -> dict[MessageQueue, int]:
    """The offsets of a group, without those of its retry topic; empty if no broker knows the group."""
    try:
        found: Any = await asked(admin.groups.progress(group, topic))
    except RefusedError as error:
        if error.status not in (404, 502):
            raise
        return {}
    return {
        one.queue: one.consumer_offset
        for one in found
        if one.queue.topic != retry_topic(group) and one.consumer_offset >= 0
    }
