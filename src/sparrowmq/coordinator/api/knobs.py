"""Routes of live knobs: the table of them, what is set of groups, and offsets that are to be set."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy import Connection

from sparrowmq.coordinator.api.shared import Answer, Caller, Reason, Who
from sparrowmq.coordinator.audit import REASON_CHARS_MAX, Actor
from sparrowmq.coordinator.groups import followers, knobs, resets
from sparrowmq.coordinator.groups.knobs import Row
from sparrowmq.coordinator.groups.resets import Target, Wish
from sparrowmq.coordinator.users.roles import Right
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.knobs import KNOBS, LIST_MAX, TEXT_CHARS_MAX, Place

router = APIRouter(tags=["knobs"])
REBALANCE = "rebalance"
"""The service that brings knobs to brokers and members."""
PLACE_CHARS_MAX = 440
Words = Annotated[str, Field(max_length=TEXT_CHARS_MAX)]


class KnobChange(Reason):
    """A value for a knob at a place; `seconds` is how long it counts, 0 until it is unset.

    `revision` is that of the group when the caller looked: with it, a change in between is refused.
    """

    value: bool | int | float | Words | Annotated[list[Words], Field(max_length=LIST_MAX)]
    place: str = Field(default="*", max_length=PLACE_CHARS_MAX)
    seconds: int = Field(default=0, ge=0, le=knobs.UNTIL_MS_MAX // 1000)
    revision: int | None = None


class Move(Reason):
    """Where a group is to go on in a topic or queue: one of `to` (first, last), `offset` and `time_ms`."""

    place: str = Field(max_length=PLACE_CHARS_MAX)
    to: str | None = Field(default=None, max_length=8)
    offset: int | None = None
    time_ms: int | None = None


@router.get("/knobs")
def list_knobs(who: Who) -> list[Answer]:
    """All knobs: name, range, where they can be set, who obeys them, and what pull consumers do with them."""
    who.need(Right.READ)
    return [
        {
            "name": knob.name,
            "range": knob.range,
            "unit": knob.unit,
            "default": knob.default,
            "places": [scope.value for scope in knob.scopes],
            "obeyed_by": knob.obeyed.value,
            "help": knob.help,
            "pull_consumers": knob.pull,
        }
        for knob in KNOBS.values()
    ]


@router.get("/knobs/set")
def list_set(who: Who) -> list[Answer]:
    """What is set of all groups."""
    who.need(Right.READ)
    return [{"group": row.group, **row_view(row)} for row in who.read(knobs.read)]


@router.get("/groups/{group}/knobs")
def show_group(group: str, who: Who) -> Answer:
    """What is set of a group, the number of its last change, and who goes by it.

    Of its managed `members` so many go by the `newest`; the first of those who do not yet are `older`, and
    each knob names the first of those who are `unable` to go by it, with why.
    """
    who.need(Right.READ)

    def work(connection: Connection) -> Answer:
        number, going = knobs.revision(connection, group), followers.followers(connection, group)
        rows, unable = knobs.read(connection, group), going.unable or {}
        return {
            "group": group,
            "revision": number,
            "members": going.members,
            "newest": going.newest,
            "older": list(going.older),
            "knobs": [row_view(row) | {"unable": dict(unable.get(row.setting.name, ()))} for row in rows],
        }

    return who.read(work)


@router.put("/groups/{group}/knobs/{name}")
def put_knob(group: str, name: str, body: KnobChange, who: Who) -> Answer:
    """Set a knob of a group, a topic or a queue of it; in force within five seconds.

    `note` says when nobody is there whom it concerns.
    """
    who.need(Right.EDIT, ("group", group))
    place = _place(body.place)

    def work(connection: Connection, actor: Actor) -> Row:
        return knobs.put(
            connection,
            group,
            name,
            place,
            body.value,
            actor,
            for_ms=body.seconds * 1000,
            expected=body.revision,
        )

    row = who.change(body.reason, work)
    _wake(who)
    note = who.read(lambda connection: followers.note(connection, group, name))
    return row_view(row) | {"note": note}


@router.delete("/groups/{group}/knobs/{name}")
def delete_knob(
    group: str,
    name: str,
    who: Who,
    place: Annotated[str, Query(max_length=PLACE_CHARS_MAX)] = "*",
    revision: int | None = None,
    reason: Annotated[str, Query(max_length=REASON_CHARS_MAX)] = "",
) -> Answer:
    """Unset a knob: what counts without it counts again."""
    who.need(Right.EDIT, ("group", group))
    at = _place(place)
    who.change(
        reason,
        lambda connection, actor: knobs.remove(connection, group, name, at, actor, expected=revision),
    )
    _wake(who)
    return {}


@router.post("/groups/{group}/resets", status_code=202)
def move_group(group: str, body: Move, who: Who) -> Answer:
    """Have a group go on elsewhere in a topic or queue. The answer comes at once: look whether it is done."""
    who.need(Right.EDIT, ("group", group))
    place, target = _place(body.place), Target.of(body.to, body.offset, body.time_ms)
    number = who.change(
        body.reason, lambda connection, actor: resets.ask(connection, group, place, target, actor)
    )
    _wake(who)
    return {"id": number}


@router.get("/groups/{group}/resets")
def list_resets(
    group: str, who: Who, count: Annotated[int, Query(ge=1, le=resets.PAGE_MAX)] = 20
) -> list[Answer]:
    """Where a group was moved, the newest first."""
    who.need(Right.READ)
    return [wish_view(wish) for wish in who.read(lambda connection: resets.of(connection, group, count))]


def row_view(row: Row) -> Answer:
    """A setting as the API shows it."""
    one = row.setting
    knob = KNOBS[one.name]
    return {
        "knob": one.name,
        "place": str(one.place),
        "value": one.value,
        "unit": knob.unit,
        "obeyed_by": knob.obeyed.value,
        "until_ms": one.until or None,
        "reason": one.reason,
        "changed_by": row.changed_by,
        "changed_ms": row.changed_at,
    }


def wish_view(wish: Wish) -> Answer:
    """A reset as the API shows it."""
    return {
        "id": wish.id,
        "place": str(wish.place),
        "to": str(wish.target),
        "state": str(wish.state),
        "asked_by": wish.asked_by,
        "reason": wish.reason,
        "asked_ms": wish.asked_at,
        "ended_ms": wish.ended_at or None,
        "before": dict(wish.before),
        "after": dict(wish.after),
        "message": wish.message,
    }


def _place(text: str) -> Place:
    try:
        return Place.parse(text)
    except SettingsError as error:
        raise RefusedError(str(error), status=422) from None


def _wake(who: Caller) -> None:
    kinds: Any = who.context.kinds
    if REBALANCE in kinds:
        who.context.wake(REBALANCE)
