"""Routes for the life of messages: stages, traces, and waiting messages (delayed and half ones)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from sparrowmq.coordinator.api.cluster import NAME_CHARS_MAX, explorer
from sparrowmq.coordinator.api.messages import SECONDS, Text, letter_view
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Who
from sparrowmq.coordinator.api.told.answering import look
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.cluster.lives import life
from sparrowmq.coordinator.cluster.waiting import halves, waiting
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.names import TRACE_TOPIC

router = APIRouter(prefix="/cluster", tags=["messages"])


@router.get("/messages/{topic}/life")
async def message_life(topic: str, who: Who, id: Text) -> Answer:
    """The stages of a message of a topic, by its unique id, the oldest first: born, stored, committed, waits
    (for `due_ms`), half, retry, dead, given-up; and the state of each group: read, waits, retrying, dead,
    null for unknown. `failed` has the topics and groups that could not be checked.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    async with look(who, is_short=True):
        found = await asked(life(admin, topic, id), SECONDS)
    return {
        "stages": [asdict(one) for one in found.stages],
        "groups": [asdict(one) for one in found.groups],
        "failed": found.failed,
    }


@router.get("/traces")
async def list_traces(
    who: Who, id: Text, topic: Annotated[str, Query(max_length=NAME_CHARS_MAX)] = TRACE_TOPIC
) -> list[Answer]:
    """The trace records of the message with this unique id, or with this key, by time.

    `record` is Pub, SubBefore, SubAfter, EndTransaction or Recall; the other members depend on the record.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    async with look(who, is_short=True):
        found = await asked(admin.messages.trace(id, topic=topic), SECONDS)
    return [{"record": type(one).__name__.removesuffix("Trace"), **asdict(one)} for one in found]


@router.get("/delayed")
async def list_delayed(who: Who) -> Answer:
    """Delayed and timed messages: counts by broker and level (0: timed), and messages without their bodies,
    the soonest first.

    If `is_whole` is false, there are more than are listed; `failed` says which brokers could not be asked.
    """
    who.need(RoleRight.READ)
    explores = explorer(who)
    admin, reader = await explores.admin(), await explores.reader()
    now = who.context.clock.now_ms()
    async with look(who, is_short=True):
        found = await asked(waiting(admin, reader, await _masters(who), now), SECONDS)
    messages = [
        {**letter_view(one.message), "for_topic": one.topic, "due_ms": one.due_ms, "level": one.level}
        for one in found.messages
    ]
    return {
        "counts": [asdict(one) for one in found.counts],
        "messages": messages,
        "is_whole": found.is_whole,
        "failed": dict(found.failed),
    }


@router.get("/halves")
async def list_halves(who: Who) -> Answer:
    """Half messages that are open or were given up after too many checks: topic, producer group and number of
    checks, without bodies, the oldest first.
    """
    who.need(RoleRight.READ)
    explores = explorer(who)
    admin, reader = await explores.admin(), await explores.reader()
    async with look(who, is_short=True):
        found = await asked(halves(admin, reader, await _masters(who)), SECONDS)
    messages = [
        {
            **letter_view(one.message),
            "for_topic": one.topic,
            "group": one.group,
            "checks": one.checks,
            "is_given_up": one.is_given_up,
        }
        for one in found.messages
    ]
    return {"messages": messages, "is_whole": found.is_whole, "failed": dict(found.failed)}


async def _masters(who: ApiCaller) -> list[str]:
    return sorted({one.broker for one in (await explorer(who).servers()).brokers if one.broker_id == 0})
