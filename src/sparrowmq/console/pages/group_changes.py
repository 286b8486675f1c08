"""Changes of a group: dynamic settings, pauses, skipped messages, offsets of another group, undone resets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from sparrowmq.console import shown
from sparrowmq.console.pages.offsets import OFFSET_STEPS, says_of, step_rows
from sparrowmq.console.visits import Field, Form, Preview, Visit, at
from sparrowmq.coordinator.api import cluster, dynamic_settings
from sparrowmq.coordinator.api.dynamic_settings import Move, SettingChange
from sparrowmq.coordinator.api.shared import Reason
from sparrowmq.coordinator.api.told import offsets
from sparrowmq.coordinator.api.told.offsets import Takeover
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.dynamic_settings import DYNAMIC_SETTINGS, SettingPlace, find
from sparrowmq.core.errors import InvalidNameError, RefusedError, SettingsError

PAUSE: Final = "pause"
EVERYWHERE: Final = "*"
MINUTES_MAX: Final = 527_040
"""A year, the maximum duration of a value."""
SKIP_MAX: Final = 10**15


def links(visit: Visit) -> Sequence[tuple[str, str]]:
    """Changes of a group that its page offers."""
    group = visit.named("group")
    base = at("groups", group)
    plan = [("do.plan", f"{base}/plan")]
    if not visit.may(RoleRight.EDIT, ("group", group)):
        return plan
    names = ("reset", "skip", "clone", "setting", "pause")
    return [
        *((f"do.group-{name}" if name != "reset" else "do.reset", f"{base}/{name}") for name in names),
        *plan,
    ]


def _back(visit: Visit) -> str:
    return at("groups", visit.named("group"))


def _group(visit: Visit) -> str:
    return visit.named("group")


async def _shown(visit: Visit) -> Mapping[str, Any]:
    return await visit.call(dynamic_settings.show_group, _group(visit), visit.caller)


# Dynamic settings


async def _setting_fields(visit: Visit) -> Sequence[Field]:
    choices = [
        (name, f"{name} – {setting.help} ({setting.range})")
        for name, setting in DYNAMIC_SETTINGS.items()
        if name != PAUSE
    ]
    return [
        Field("name", "tune.name", "select", choices[0][0], choices),
        Field("value", "column.value", help=visit.words("tune.value-help")),
        Field("place", "column.place", value=EVERYWHERE, help=visit.words("tune.place-help")),
        _minutes(visit),
    ]


def _minutes(visit: Visit) -> Field:
    return Field("minutes", "tune.minutes", "number", "0", help=visit.words("tune.minutes-help"))


def _seconds(given: Mapping[str, str]) -> int:
    """The duration of a value. Raises `RefusedError` (422)."""
    return 60 * whole("minutes", given.get("minutes", "").strip() or "0", 0, MINUTES_MAX)


def whole(name: str, text: str, low: int, high: int) -> int:
    """A number that the user entered. Raises `RefusedError` (422) with the range."""
    fits = text.isascii() and text.isdecimal() and len(text) <= 18
    if not fits or not low <= int(text) <= high:
        raise RefusedError(
            f"{name} must be a whole number from {low} to {high}, not {text[:40]!r}", status=422
        )
    return int(text)


def _place(text: str) -> str:
    """The scope of a setting as it is written. Raises `RefusedError` (422)."""
    try:
        return str(SettingPlace.parse(text.strip() or EVERYWHERE))
    except (SettingsError, InvalidNameError) as error:
        raise RefusedError(str(error), status=422) from None


def _wish(
    given: Mapping[str, str], *, revision: int | None = None, reason: str = ""
) -> tuple[str, SettingChange]:
    """The setting and its value. Raises `RefusedError` (422) if the value or the scope is not allowed."""
    name, place = given.get("name", ""), _place(given.get("place", ""))
    try:
        setting = find(name)
        setting.check_place(SettingPlace.parse(place))
        value = setting.parse(given.get("value", ""))
    except SettingsError as error:
        raise RefusedError(str(error), status=422) from None
    found: Any = list(value) if isinstance(value, tuple) else value
    return name, SettingChange(
        value=found, place=place, seconds=_seconds(given), revision=revision, reason=reason
    )


def _now(found: Mapping[str, Any], name: str, place: str) -> Any:
    """The current value there; None if there is none."""
    return next(
        (one["value"] for one in found["settings"] if (one["setting"], one["place"]) == (name, place)), None
    )


def _who_follows(visit: Visit, found: Mapping[str, Any], name: str) -> str:
    obeyed = visit.words.named("tune", f"by-{DYNAMIC_SETTINGS[name].obeyed.name.lower()}")
    return visit.words("tune.follows", who=obeyed, count=found["members"])


async def _preview_setting(visit: Visit, given: Mapping[str, str]) -> Preview:
    found = await _shown(visit)
    name, change = _wish(given)
    before = _now(found, name, change.place)
    says = [
        visit.words(
            "tune.set",
            name=name,
            place=change.place,
            before=DYNAMIC_SETTINGS[name].default if before is None else before,
            after=change.value,
        ),
        _who_follows(visit, found, name),
    ]
    if change.seconds:
        says.append(visit.words("tune.ends", minutes=change.seconds // 60))
    return Preview(says, stamp=repr((found["revision"], name, change.place, change.value)))


async def _set(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    found = await _shown(visit)
    name, change = _wish(given, revision=found["revision"], reason=reason)
    await visit.call(dynamic_settings.put_setting, _group(visit), name, change, visit.caller)
    return "setting"


async def _unset_fields(visit: Visit) -> Sequence[Field]:
    rows = [one for one in (await _shown(visit))["settings"] if one["setting"] != PAUSE]
    return _of_those(visit, rows, "tune.none-set")


def _of_those(visit: Visit, rows: Sequence[Mapping[str, Any]], empty: str) -> Sequence[Field]:
    """A selection of the current settings. Raises `RefusedError` (409) if there are none."""
    if not rows:
        raise RefusedError(visit.words(empty), status=409)
    choices = [
        (f"{one['setting']} {one['place']}", f"{one['setting']} = {one['value']} ({one['place']})")
        for one in rows
    ]
    asked = visit.query.get("which", "")
    chosen = asked if asked in dict(choices) else choices[0][0]
    return [Field("which", "tune.which", "select", chosen, choices)]


def undo_link(group: str) -> str:
    """The form that undoes the group's last reset."""
    return at("groups", group, "undo")


def unset_link(group: str, row: Mapping[str, Any]) -> str:
    """The form that unsets a setting."""
    name = "resume" if row["setting"] == PAUSE else "unset"
    which = f"{row['setting']} {row['place']}"
    return f"{at('groups', group, name)}?{urlencode({'which': which})}"


async def _preview_unset(visit: Visit, given: Mapping[str, str]) -> Preview:
    found = await _shown(visit)
    name, place, before = _which(found, given)
    says = visit.words(
        "tune.unset", name=name, place=place, before=before, after=DYNAMIC_SETTINGS[name].default
    )
    return Preview([says, _who_follows(visit, found, name)], stamp=repr((found["revision"], name, place)))


def _which(found: Mapping[str, Any], given: Mapping[str, str]) -> tuple[str, str, Any]:
    """The setting, its scope and value. Raises `RefusedError` (404) if it is not set."""
    name, _, place = given.get("which", "").partition(" ")
    before = _now(found, name, place)
    if before is None:
        raise RefusedError(
            f"{name[:40] or 'nothing'} is not set for {place[:100] or '*'}; look again", status=404
        )
    return name, place, before


def _unset(done: str) -> Callable[[Visit, Mapping[str, str], str], Any]:
    async def act(visit: Visit, given: Mapping[str, str], reason: str) -> str:
        found = await _shown(visit)
        name, place, _ = _which(found, given)
        who, revision = visit.caller, found["revision"]
        await visit.call(dynamic_settings.delete_setting, _group(visit), name, who, place, revision, reason)
        return done

    return act


# Pauses


async def _pause_fields(visit: Visit) -> Sequence[Field]:
    return [
        Field("place", "column.place", value=EVERYWHERE, help=visit.words("tune.place-help")),
        _minutes(visit),
    ]


def _rest(given: Mapping[str, str], **more: Any) -> SettingChange:
    return SettingChange(value=True, place=_place(given.get("place", "")), seconds=_seconds(given), **more)


async def _preview_pause(visit: Visit, given: Mapping[str, str]) -> Preview:
    found, change = await _shown(visit), _rest(given)
    key = "tune.pause-for" if change.seconds else "tune.pause"
    says = visit.words(key, group=_group(visit), place=change.place, minutes=change.seconds // 60)
    return Preview([says], stamp=repr((found["revision"], change.place, change.seconds)))


async def _pause(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    change = _rest(given, revision=(await _shown(visit))["revision"], reason=reason)
    await visit.call(dynamic_settings.put_setting, _group(visit), PAUSE, change, visit.caller)
    return "pause"


async def _paused_fields(visit: Visit) -> Sequence[Field]:
    rows = [one for one in (await _shown(visit))["settings"] if one["setting"] == PAUSE]
    return _of_those(visit, rows, "tune.not-paused")


async def _preview_resume(visit: Visit, given: Mapping[str, str]) -> Preview:
    found = await _shown(visit)
    _, place, _ = _which(found, given)
    return Preview(
        [visit.words("tune.resume", group=_group(visit), place=place)], stamp=repr((found["revision"], place))
    )


# Offsets


async def _topics(visit: Visit) -> list[str]:
    """Topics in which the group has offsets. Raises `RefusedError` (409) if there are none."""
    found = await cluster.group_progress(_group(visit), visit.caller)
    topics = sorted({one["topic"] for one in found})
    if not topics:
        raise RefusedError(visit.words("empty.places"), status=409)
    return topics


async def _skip_fields(visit: Visit) -> Sequence[Field]:
    topics = await _topics(visit)
    return [
        Field("topic", "column.topic", "select", topics[0], [(one, one) for one in topics]),
        Field("queue", "form.queue", needed=False, help=visit.words("tune.skip-queue")),
        Field("count", "tune.count", "number", needed=False, help=visit.words("tune.skip-count")),
    ]


async def _skip_to(visit: Visit, given: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The scope, and the new position: after the last message, or some messages further in one queue."""
    topic, queue, count = (given.get(name, "").strip() for name in ("topic", "queue", "count"))
    place = f"{topic}/{queue}" if queue else topic
    if not count:
        return place, {"to": "last"}
    number = whole("count", count, 1, SKIP_MAX)
    where = cluster.place_of(place)
    found = [
        one
        for one in await cluster.group_progress(_group(visit), visit.caller)
        if (one["topic"], one["broker"], one["queue"]) == (where.topic, where.broker, where.queue_id)
    ]
    if not found:
        raise RefusedError(visit.words("tune.skip-one", place=place), status=422)
    return place, {"offset": max(0, found[0]["offset"]) + number}


async def _preview_skip(visit: Visit, given: Mapping[str, str]) -> Preview:
    place, target = await _skip_to(visit, given)
    steps = await cluster.preview_reset(_group(visit), visit.caller, place, **target)
    rows = step_rows(steps, cluster.place_of(place).topic)
    table = await visit.table("steps", OFFSET_STEPS, rows)
    return Preview(says_of(visit, "form.reset", rows, group=_group(visit), place=place), table,
                   stamp=repr((place, target)))  # fmt: skip


async def _skip(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    place, target = await _skip_to(visit, given)
    move = Move(place=place, reason=reason, **target)
    await visit.call(dynamic_settings.move_group, _group(visit), move, visit.caller)
    return "reset"


async def _clone_fields(visit: Visit) -> Sequence[Field]:
    return [
        Field("source", "tune.source", help=visit.words("tune.source-help")),
        Field("topic", "column.topic", needed=False, help=visit.words("tune.all-topics")),
    ]


async def _preview_clone(visit: Visit, given: Mapping[str, str]) -> Preview:
    source, topic = given.get("source", "").strip(), given.get("topic", "").strip() or None
    steps = await offsets.preview_takeover(_group(visit), visit.caller, source, topic)
    rows = step_rows(steps)
    table = await visit.table("steps", OFFSET_STEPS, rows)
    says = says_of(visit, "tune.clone", rows, group=_group(visit), source=source)
    stamp = repr(
        (source, topic, [(one["topic"], one["broker"], one["queue"], one["before"]) for one in rows])
    )
    return Preview([*says, visit.words("tune.clone-nobody")], table, stamp=stamp)


async def _clone(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    topic = given.get("topic", "").strip() or None
    body = Takeover(source=given.get("source", "").strip(), topic=topic, reason=reason)
    await offsets.take_over(_group(visit), body, visit.caller)
    return "cloned"


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _preview_undo(visit: Visit, given: Mapping[str, str]) -> Preview:
    found = await offsets.preview_undo(_group(visit), visit.caller)
    undone, rows = found["undoes"], step_rows(found["steps"], found["topic"])
    which = {name: undone[name] for name in ("place", "to", "asked_by", "reason")}
    says = visit.words("tune.undo", when=shown.moment(undone["asked_ms"]), **which)
    table = await visit.table("steps", OFFSET_STEPS, rows)
    return Preview(
        [says, *says_of(visit, "form.reset", rows, group=_group(visit), place=undone["place"])],
        table,
        stamp=str(undone["id"]),
    )


async def _undo(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    undone = int(given["stamp"])  # compared with that of the preview
    body = Reason(reason=reason)
    await visit.call(dynamic_settings.undo_reset, _group(visit), undone, body, visit.caller)
    return "reset"


def _form(
    name: str, title: str, steps: tuple[Any, Any, Any], *, typed: bool = False, first: bool = True
) -> Form:
    fields, preview, act = steps
    return Form(
        f"/groups/{{group}}/{name}", title, "groups", fields, preview, act, _back,
        typed=_group if typed else None, looks_first=first,
    )  # fmt: skip


FORMS: Final[Sequence[Form]] = (
    _form("setting", "do.group-setting", (_setting_fields, _preview_setting, _set)),
    _form("unset", "do.group-unset", (_unset_fields, _preview_unset, _unset("unset"))),
    _form("pause", "do.group-pause", (_pause_fields, _preview_pause, _pause)),
    _form("resume", "do.group-resume", (_paused_fields, _preview_resume, _unset("resume"))),
    _form("undo", "do.group-undo", (_nothing, _preview_undo, _undo), typed=True, first=False),
    _form("skip", "do.group-skip", (_skip_fields, _preview_skip, _skip), typed=True),
    _form("clone", "do.group-clone", (_clone_fields, _preview_clone, _clone), typed=True),
)
