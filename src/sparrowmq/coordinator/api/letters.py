"""Routes of dead letters: groups that have some, the letters, resends, and deletion."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field

from sparrowmq.coordinator.api.acting import Change, carry_out, note_end
from sparrowmq.coordinator.api.cluster import SLOW, explorer
from sparrowmq.coordinator.api.messages import ID_CHARS_MAX, SECONDS, letter_view
from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.api.told.answering import look
from sparrowmq.coordinator.cluster.explorer import asked
from sparrowmq.coordinator.cluster.resends import IDS_MAX, RATE_MAX, RATE_MIN, Resending
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError
from sparrowmq.core.message import PROPERTY_ERROR
from sparrowmq.core.names import dlq_topic

router = APIRouter(prefix="/cluster", tags=["messages"])
LETTERS_MAX = 500
RESENT_MAX = 100
PAGE_LETTERS = 16
"""Letters read at a time: their bodies are large, and are not kept."""
Ids = list[Annotated[str, Field(max_length=ID_CHARS_MAX)]]


class Resend(Reason):
    """The ids of the dead letters to resend to their group."""

    message_ids: Ids = Field(min_length=1, max_length=RESENT_MAX)


class ResendSlowly(Reason):
    """The same at a rate, in messages a second."""

    message_ids: Ids = Field(min_length=1, max_length=IDS_MAX)
    per_second: float = Field(default=10.0, ge=RATE_MIN, le=RATE_MAX)


@router.get("/dead-letters")
async def list_dead(who: Who) -> list[Answer]:
    """Groups with dead letters, and their number; 0 if all of them have been deleted."""
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()
    patience = SLOW * who.patience_seconds
    found = await asked(
        explorer(who).one_of("dead letters", "", admin.dead_letters.groups, patience), SECONDS
    )
    return [{"group": one.group, "messages": one.messages} for one in found]


@router.get("/dead-letters/{group}")
async def dead_letters(
    group: str, who: Who, count: Annotated[int, Query(ge=1, le=LETTERS_MAX)] = 100
) -> list[Answer]:
    """A group's dead letters, by broker, the oldest first; without bodies. `error` is the error of the last
    handler if its client recorded it, else null.
    """
    who.need(RoleRight.READ)
    admin = await explorer(who).admin()

    async def work() -> list[Answer]:
        found: list[Answer] = []
        last = None
        while len(found) < count:
            page = await admin.dead_letters.list(
                group, count=min(PAGE_LETTERS, count - len(found)), after=last, decompress=False
            )
            if not page:
                break
            found += [{**letter_view(one), "error": one.properties.get(PROPERTY_ERROR)} for one in page]
            last = page[-1]
        return found

    async with look(who, is_short=True):
        return await asked(work(), SECONDS)


@router.post("/dead-letters/{group}/resend")
async def resend_letters(group: str, body: Resend, who: Who) -> Answer:
    """Resend dead letters to their group; their retries are counted from 0. The dead letters are not deleted.

    `gone` are ids of which the group no longer has a dead letter; `refused` says why others were not sent.
    """
    thing = ("group", group)
    who.need(RoleRight.EDIT, thing)
    admin = await explorer(who).admin()
    wanted = sorted(set(body.message_ids))
    change = Change("dead-letters.resend", thing, None, {"message_ids": wanted}, reason=body.reason)

    async def work() -> Answer:
        letters = await asked(admin.dead_letters.resend(group, wanted), 4 * SECONDS - 5)
        sent = [one.message_id for one in letters if one.outcome == "sent"]
        gone = [one.message_id for one in letters if one.outcome == "missing"]
        return {
            "sent": sent,
            "gone": gone,
            "refused": {one.message_id: one.reason for one in letters if one.reason},
        }

    told: Answer = await carry_out(who, change, work)
    return told


@router.get("/dead-letters/{group}/resends")
async def list_resends(group: str, who: Who) -> list[Answer]:
    """The resends at a rate since this coordinator started, with the result for each letter."""
    who.need(RoleRight.READ)
    return [resending_view(one) for one in explorer(who).resends.of(group)]


@router.post("/dead-letters/{group}/resends")
async def begin_resend(group: str, body: ResendSlowly, who: Who) -> Answer:
    """Resend dead letters to their group at a rate. The first is sent before the answer; the others follow,
    and a second audit entry has the results.
    """
    thing = ("group", group)
    who.need(RoleRight.EDIT, thing)
    wanted = list(dict.fromkeys(body.message_ids))
    after = {"message_ids": wanted, "per_second": body.per_second}
    change = Change("dead-letters.resend", thing, None, after, reason=body.reason)
    resends = explorer(who).resends
    resends.check_room()
    by = (who.person.name, body.reason)
    one = await carry_out(
        who, change, lambda: resends.begin(group, wanted, body.per_second, by, _noted(who, change))
    )
    return resending_view(one)


@router.post("/dead-letters/{group}/resends/{number}/stop")
async def stop_resend(group: str, number: int, body: Reason, who: Who) -> Answer:
    """Stop a resend at a rate. Messages that were already sent are not affected."""
    thing = ("group", group)
    who.need(RoleRight.EDIT, thing)
    resends = explorer(who).resends
    if number not in {one.number for one in resends.of(group)}:
        raise RefusedError(f"there is no resend {number} of {group[:255]}; list them to see", status=404)
    change = Change("dead-letters.stop", thing, None, {"number": number}, reason=body.reason)
    return resending_view(await carry_out(who, change, lambda: resends.stop(group, number)))


@router.delete("/dead-letters/{group}")
async def purge_letters(group: str, who: Who, reason: Annotated[str, Query(max_length=500)] = "") -> Answer:
    """Delete all dead letters of a group, with their topic at all brokers; the next dead letter creates it
    again.
    """
    thing = ("group", group)
    who.need(RoleRight.OPERATE, thing)
    admin = await explorer(who).admin()
    known = {one.group: one.messages for one in await asked(admin.dead_letters.groups(), SECONDS)}
    if group not in known:
        raise RefusedError(f"the group {group[:255]} has no dead letters", status=404)
    change = Change("dead-letters.purge", thing, {"messages": known[group]}, None, reason=reason)
    await carry_out(who, change, lambda: asked(admin.topics.delete(dlq_topic(group))))
    explorer(who).forget()
    return {"purged": known[group]}


def resending_view(one: Resending) -> Answer:
    """A resend as the API shows it."""
    return {
        "number": one.number,
        "group": one.group,
        "per_second": one.per_second,
        "asked_by": one.asked_by,
        "reason": one.reason,
        "begun_ms": one.begun_ms,
        "ended_ms": one.ended_ms,
        "counts": dict(one.counts),
        "letters": [
            {"message_id": letter, "outcome": outcome, "error": one.errors.get(letter, "")}
            for letter, outcome in one.outcomes.items()
        ],
        "error": one.errors.get("", ""),
    }


def _noted(who: ApiCaller, change: Change) -> Callable[[Resending], Awaitable[Any]]:
    async def note(one: Resending) -> None:
        after = {"number": one.number, **one.counts}
        await note_end(who, change, "dead-letters.resent", after)

    return note
