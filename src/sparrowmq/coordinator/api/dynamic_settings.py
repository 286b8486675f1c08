"""Routes of dynamic settings: their definitions, the values of groups, and offset resets.

Until the release after 0.1, paths and fields also have their old name, `knobs` and `knob`.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field
from sqlalchemy import Connection

from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.groups import dynamic_settings, followers, resets
from sparrowmq.coordinator.groups.dynamic_settings import SettingRow
from sparrowmq.coordinator.groups.resets import ResetRow, ResetTarget
from sparrowmq.coordinator.records.audit import REASON_CHARS_MAX, Actor
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.dynamic_settings import DYNAMIC_SETTINGS, LIST_MAX, TEXT_CHARS_MAX, SettingPlace
from sparrowmq.core.errors import RefusedError, SettingsError

router = APIRouter(tags=["dynamic settings"])
REBALANCE = "rebalance"
"""The service that sends settings to brokers and members."""
PLACE_CHARS_MAX = 440
Words = Annotated[str, Field(max_length=TEXT_CHARS_MAX)]


class SettingChange(Reason):
    """A value for a dynamic setting at a place; `seconds` is how long it applies, 0 until it is unset.

    With `revision`, the group's revision that the caller saw, the request is refused if the group has changed
    since.
    """

    value: bool | int | float | Words | Annotated[list[Words], Field(max_length=LIST_MAX)]
    place: str = Field(default="*", max_length=PLACE_CHARS_MAX)
    seconds: int = Field(default=0, ge=0, le=dynamic_settings.UNTIL_MS_MAX // 1000)
    revision: int | None = None


class Move(Reason):
    """The new offset of a group in a topic or queue: one of `to` (first, last), `offset` and `time_ms`."""

    place: str = Field(max_length=PLACE_CHARS_MAX)
    to: str | None = Field(default=None, max_length=8)
    offset: int | None = None
    time_ms: int | None = None


@router.get("/knobs", deprecated=True)
@router.get("/settings")
def list_settings(who: Who) -> list[Answer]:
    """All dynamic settings: name, range, scopes, who applies them, and their effect on pull consumers."""
    who.need(RoleRight.READ)
    return [
        {
            "name": setting.name,
            "range": setting.range,
            "unit": setting.unit,
            "default": setting.default,
            "places": [scope.value for scope in setting.scopes],
            "obeyed_by": setting.obeyed.value,
            "help": setting.help,
            "pull_consumers": setting.pull,
        }
        for setting in DYNAMIC_SETTINGS.values()
    ]


@router.get("/knobs/set", deprecated=True)
@router.get("/settings/set")
def list_set(who: Who) -> list[Answer]:
    """The dynamic settings of all groups."""
    who.need(RoleRight.READ)
    return [{"group": row.group, **row_view(row)} for row in who.read(dynamic_settings.read)]


@router.get("/groups/{group}/knobs", deprecated=True)
@router.get("/groups/{group}/settings")
def show_group(group: str, who: Who) -> Answer:
    """The dynamic settings of a group, the number of its last change, and which members apply them.

    Of its managed `members`, `newest` is the number that apply the latest values. `older` names the first of
    the others, and each setting names the first members that are `unable` to apply it, with the reason.
    """
    who.need(RoleRight.READ)

    def work(connection: Connection) -> Answer:
        number, going = dynamic_settings.revision(connection, group), followers.followers(connection, group)
        rows, unable = dynamic_settings.read(connection, group), going.unable or {}
        shown = [row_view(row) | {"unable": dict(unable.get(row.setting.name, ()))} for row in rows]
        return {
            "group": group,
            "revision": number,
            "members": going.members,
            "newest": going.newest,
            "older": list(going.older),
            "settings": shown,
            "knobs": shown,
        }

    return who.read(work)


@router.put("/groups/{group}/knobs/{name}", deprecated=True)
@router.put("/groups/{group}/settings/{name}")
def put_setting(group: str, name: str, body: SettingChange, who: Who) -> Answer:
    """Change a dynamic setting of a group, a topic or a queue. Clients apply it within five seconds.

    `note` says if no known member is concerned.
    """
    who.need(RoleRight.EDIT, ("group", group))
    place = _place(body.place)

    def work(connection: Connection, actor: Actor) -> SettingRow:
        return dynamic_settings.put(
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


@router.delete("/groups/{group}/knobs/{name}", deprecated=True)
@router.delete("/groups/{group}/settings/{name}")
def delete_setting(
    group: str,
    name: str,
    who: Who,
    place: Annotated[str, Query(max_length=PLACE_CHARS_MAX)] = "*",
    revision: int | None = None,
    reason: Annotated[str, Query(max_length=REASON_CHARS_MAX)] = "",
) -> Answer:
    """Remove a value; the default applies again."""
    who.need(RoleRight.EDIT, ("group", group))
    at = _place(place)
    who.change(
        reason,
        lambda connection, actor: dynamic_settings.remove(
            connection, group, name, at, actor, expected=revision
        ),
    )
    _wake(who)
    return {}


@router.post("/groups/{group}/resets", status_code=202)
def move_group(group: str, body: Move, who: Who) -> Answer:
    """Move a group to another offset in a topic or queue. Returns immediately: poll until it is done."""
    who.need(RoleRight.EDIT, ("group", group))
    place, target = _place(body.place), ResetTarget.of(body.to, body.offset, body.time_ms)
    number = who.change(
        body.reason, lambda connection, actor: resets.ask(connection, group, place, target, actor)
    )
    _wake(who)
    return {"id": number}


@router.post("/groups/{group}/resets/{number}/undo", status_code=202)
def undo_reset(group: str, number: int, body: Reason, who: Who) -> Answer:
    """Undo the last reset of a group: restore the offsets from before it. 409 if `number` is not its id.
    Returns immediately, as a reset does.
    """
    who.need(RoleRight.EDIT, ("group", group))
    made = who.change(body.reason, lambda connection, actor: resets.undo(connection, group, number, actor))
    _wake(who)
    return {"id": made}


@router.get("/groups/{group}/resets")
def list_resets(
    group: str, who: Who, count: Annotated[int, Query(ge=1, le=resets.PAGE_MAX)] = 20
) -> list[Answer]:
    """The moves of a group, newest first."""
    who.need(RoleRight.READ)
    return [wish_view(wish) for wish in who.read(lambda connection: resets.of(connection, group, count))]


def row_view(row: SettingRow) -> Answer:
    """A setting as the API shows it."""
    one = row.setting
    setting = DYNAMIC_SETTINGS[one.name]
    return {
        "setting": one.name,
        "knob": one.name,
        "place": str(one.place),
        "value": one.value,
        "unit": setting.unit,
        "obeyed_by": setting.obeyed.value,
        "until_ms": one.until or None,
        "reason": one.reason,
        "changed_by": row.changed_by,
        "changed_ms": row.changed_at,
    }


def wish_view(wish: ResetRow) -> Answer:
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


def _place(text: str) -> SettingPlace:
    try:
        return SettingPlace.parse(text)
    except SettingsError as error:
        raise RefusedError(str(error), status=422) from None


def _wake(who: ApiCaller) -> None:
    kinds: Any = who.context.kinds
    if REBALANCE in kinds:
        who.context.wake(REBALANCE)
