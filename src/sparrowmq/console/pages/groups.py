"""Groups: their lag, the owners of queues with reasons, and offset resets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sparrowmq.console import shown
from sparrowmq.console.pages import group_changes, guards, over_time
from sparrowmq.console.pages import owners as owners_of
from sparrowmq.console.pages.columns import LAGS, lag_rows
from sparrowmq.console.pages.offsets import OFFSET_STEPS, says_of, step_rows
from sparrowmq.console.pages.picture import QueueLine, picture
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api import cluster, dynamic_settings
from sparrowmq.coordinator.api import groups as managed
from sparrowmq.coordinator.api.dynamic_settings import Move
from sparrowmq.coordinator.groups.resets import TIME_MS_MAX, ResetState
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.clock import epoch_ms
from sparrowmq.core.errors import RefusedError, SettingsError
from sparrowmq.core.names import RETRY_PREFIX

GROUPS: Final = (
    *LAGS[:3],
    Column("planned", "state", filtered=True),
    *LAGS[3:],
)
QUEUES: Final = (
    Column("topic", filtered=True, link=lambda row: at("topics", row["topic"])),
    Column("broker", filtered=True),
    Column("queue", "number"),
    Column("lag", "number"),
    Column("in_flight", "number"),
    Column("offset", "number"),
    Column("next", "number"),
    Column("consumed_ms", "time"),
    Column("owner"),
)
MEMBERS: Final = (
    Column("client_id", link=lambda row: row["link"]),
    Column("standing", "state", filtered=True),
    Column("queue_count", "number"),
    Column("address"),
    Column("language"),
    Column("heard_ms", "time"),
    Column("says"),
)
PLANNED: Final = (
    Column("topic", filtered=True),
    Column("broker"),
    Column("queue", "number"),
    Column("client_id"),
    Column("phase", "state", filtered=True),
    Column("generation", "number"),
    Column("since_ms", "time"),
    Column("why"),
)
RESETS: Final = (
    Column("asked_ms", "time"),
    Column("place"),
    Column("to"),
    Column("state", "state"),
    Column("asked_by"),
    Column("reason"),
    Column("message"),
    Column("undo", link=lambda row: row["link"]),
)
SET: Final = (
    Column("setting", link=lambda row: row["link"]),
    Column("place"),
    Column("value"),
    Column("unit"),
    Column("until_ms", "time"),
    Column("changed_by"),
    Column("reason"),
)


async def groups(visit: Visit) -> Values:
    """All groups, those with the most lag first."""
    found = await cluster.list_lag(visit.caller)
    planned = {one["group"] for one in await visit.call(managed.list_groups, visit.caller)}
    rows = [
        one | {"planned": "managed" if one["group"] in planned else "unmanaged"} for one in lag_rows(found)
    ]
    table = await visit.table("groups", GROUPS, rows, sort="-messages", empty="empty.groups")
    return {"table": table, "looked_ms": found["looked_ms"]}


async def summary(visit: Visit) -> Values:
    """What kind of group it is: how members get messages, of what, and its settings at the brokers."""
    found = await _group(visit)
    waiting = sum(one["lag"] for one in found["queues"]) if found["queues"] else None
    subscribed = [
        f"{topic}: {text}"
        for topic, text in sorted(found["subscriptions"].items())
        if not topic.startswith(RETRY_PREFIX)
    ]
    facts: list[tuple[str, str, Any]] = [
        ("state", "state", "online" if found["online"] else "nobody"),
        ("lag", "number", waiting),
        ("in_flight", "number", sum(in_flight(found, one) for one in found["queues"])),
        ("members", "number", len(found["members"])),
        ("how", "state", found["type"]),
        ("model", "state", found["model"]),
        ("subscribed", "text", shown.listed(subscribed) if subscribed else None),
    ]
    for name, kind in (("retries", "number"), ("consume", "text"), ("orderly", "text")):
        told = sorted({one[name] for one in found["configs"].values()})
        facts.append((name, kind, told[0] if len(told) == 1 else None if not told else _each(found, name)))
    notes = [visit.words("group.pops")] if found["type"] == "pop" else []
    if waiting is None:
        notes.append(visit.words("group.begins"))
    lost = sum(one["lost"] for one in found["queues"])
    if lost:
        notes.append(visit.words("group.lost", count=lost))
    rate = found["delivered_per_second"]
    if rate is not None:
        facts.insert(1, ("delivered_per_second", "rate", rate))
        notes.append(visit.words("group.hidden" if rate else "group.nobody"))
    return {"facts": facts, "notes": notes}


def _each(found: Mapping[str, Any], name: str) -> str:
    """A setting that differs between brokers."""
    return ", ".join(f"{broker}: {one[name]}" for broker, one in sorted(found["configs"].items()))


async def queues(visit: Visit) -> Values:
    """Its offset in each queue, the largest lag first."""
    found = await _group(visit)
    owners = _owners(found["members"])
    rows = [
        one | {"in_flight": in_flight(found, one), "owner": owners.get(_queue(one), "–")}
        for one in found["queues"]
    ]
    return {"table": await visit.table("queues", QUEUES, rows, sort="-lag", empty="empty.places")}


def in_flight(group: Mapping[str, Any], queue: Mapping[str, Any]) -> int:
    """Messages of a queue that were sent and not confirmed: of POP, those that are invisible. Pure.

    Brokers still report what a member that left had asked for. Nobody handles that, unless the group gets
    messages all the same.
    """
    is_read = group["online"] or group["delivered_per_second"]
    return int(queue["in_flight"]) if is_read else 0


async def members(visit: Visit) -> Values:
    """Online members; for a managed group with the coordinator's data about each."""
    found = await _group(visit)
    planned = await _planned_members(visit)
    known = {one["client_id"]: one for one in planned}
    rows: list[dict[str, Any]] = []
    for one in found["members"]:
        plan = known.pop(one["client_id"], None)
        rows.append(
            {
                "client_id": one["client_id"],
                "address": one["address"],
                "language": one["language"],
                "queue_count": None if one["queues"] is None else len(one["queues"]),
                "standing": plan["standing"] if plan else "online",
                "heard_ms": plan["heard_ms"] if plan else None,
                "says": one["error"] or (plan["reason"] if plan else "") or "–",
            }
        )
    rows += [
        {
            "client_id": one["client_id"],
            "address": one["address"],
            "language": "–",
            "queue_count": one["queues"],
            "standing": one["standing"],
            "heard_ms": one["heard_ms"],
            "says": one["reason"] or "–",
        }
        for one in known.values()
    ]
    online = {one["client_id"] for one in found["members"]}
    for row in rows:
        name = row["client_id"]
        row["link"] = at("groups", visit.named("group"), "members", name) if name in online else ""
    return {"table": await visit.table("members", MEMBERS, rows, sort="client_id", empty="empty.members")}


async def assignment(visit: Visit) -> Values:
    """The assignment of queues to members, as a picture."""
    found = await _group(visit)
    owners = _owners(found["members"])
    planned = await _planned(visit)
    if planned is not None:
        lines = [
            QueueLine(_queue(one), one["client_id"] or "", _why(visit, one)) for one in planned["queues"]
        ]
    else:
        lines = [QueueLine(_queue(one), owners.get(_queue(one), "")) for one in found["queues"]]
    names = sorted({*owners.values(), *(one["client_id"] for one in found["members"])})
    return {"drawn": picture(lines, names), "is_managed": planned is not None}


def _why(visit: Visit, one: Mapping[str, Any]) -> str:
    """Generation, time and reason of an assignment."""
    since = shown.moment(one["since_ms"]) if one["since_ms"] else visit.words("word.unknown")
    return visit.words("picture.why", generation=one["generation"], since=since, why=one["why"] or "–")


async def planned(visit: Visit) -> Values:
    """For a managed group: the owner of each queue, since when and why."""
    found = await _planned(visit)
    rows = found["queues"] if found is not None else []
    return {"table": await visit.table("planned", PLANNED, rows, empty="empty.planned")}


async def settings(visit: Visit) -> Values:
    """Its dynamic settings and pauses."""
    found = await visit.call(dynamic_settings.show_group, visit.named("group"), visit.caller)
    may = visit.may(RoleRight.EDIT, ("group", visit.named("group")))
    rows = [
        dict(one)
        | {
            "until_ms": one["until_ms"] or 0,
            "link": group_changes.unset_link(visit.named("group"), one) if may else "",
        }
        for one in found["settings"]
    ]
    return {
        "table": await visit.table("set", SET, rows, empty="empty.settings"),
        "notes": _who_follows(visit, found),
    }


def _who_follows(visit: Visit, found: Mapping[str, Any]) -> list[str]:
    """Managed members that apply the latest values, those that do not yet, and those that cannot, with the
    reason.
    """
    if not found["members"]:
        return []
    says = [visit.words("tune.newest", newest=found["newest"], members=found["members"])]
    if found["older"]:
        says.append(visit.words("tune.older", members=shown.listed(found["older"])))
    unable = {
        (one["setting"], member, why) for one in found["settings"] for member, why in one["unable"].items()
    }
    unable_say = [
        visit.words("tune.unable", name=name, member=member, why=why) for name, member, why in sorted(unable)
    ]
    return says + shown.first(unable_say, visit.words)


async def resets(visit: Visit) -> Values:
    """Its offset resets; the last one leads to the form that undoes it."""
    group = visit.named("group")
    found = await visit.call(dynamic_settings.list_resets, group, visit.caller, 100)
    last = max((one["id"] for one in found if one["state"] == ResetState.DONE), default=0)
    may = visit.may(RoleRight.EDIT, ("group", group))
    undo = {"undo": visit.words("do.group-undo"), "link": group_changes.undo_link(group)}
    rows = [dict(one) | (undo if may and one["id"] == last else {"undo": "", "link": ""}) for one in found]
    return {"table": await visit.table("resets", RESETS, rows, sort="-asked_ms", empty="empty.resets")}


async def _group(visit: Visit) -> Mapping[str, Any]:
    """The group according to brokers and members."""
    return await visit.once("group", lambda: cluster.show_group(visit.named("group"), visit.caller))


async def _planned(visit: Visit) -> Mapping[str, Any] | None:
    try:
        return await visit.call(managed.show_group, visit.named("group"), visit.caller)
    except RefusedError as error:
        if error.status != 404:
            raise
        return None


async def _planned_members(visit: Visit) -> Sequence[Mapping[str, Any]]:
    try:
        return await visit.call(managed.list_members, visit.named("group"), visit.caller)
    except RefusedError as error:
        if error.status != 404:
            raise
        return ()


def _queue(one: Mapping[str, Any]) -> str:
    return f"{one['topic']}/{one['broker']}/{one['queue']}"


def _owners(found: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The owners of queues, according to the members."""
    return {queue: one["client_id"] for one in found for queue in one["queues"] or ()}


# Changes


async def _fields(visit: Visit) -> Sequence[Field]:
    found = await _group(visit)
    topics = sorted({one["topic"] for one in found["queues"]})
    if not topics:
        raise RefusedError(visit.words("empty.places"), status=409)
    kinds = [(name, visit.words(f"form.to-{name}")) for name in ("time", "first", "last", "offset")]
    now = datetime.now(UTC).astimezone().isoformat(timespec="seconds")
    return [
        Field("topic", "column.topic", "select", topics[0], [(one, one) for one in topics]),
        Field("queue", "form.queue", value="", needed=False, help=visit.words("form.queue-help")),
        Field("to", "form.to", "select", "time", kinds),
        Field("time", "form.time", "moment", now, needed=False, help=visit.words("form.time-help")),
        Field("offset", "form.offset", "number", needed=False, help=visit.words("form.offset-help")),
    ]


def _aim(given: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """The scope, and one of `to`, `time_ms` and `offset`. Raises `RefusedError` (422)."""
    topic, queue, kind = (given.get(name, "").strip() for name in ("topic", "queue", "to"))
    place = f"{topic}/{queue}" if queue else topic
    if kind in ("first", "last"):
        return place, {"to": kind}
    if kind == "offset":
        text = given.get("offset", "").strip()
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise RefusedError(f"{text[:40]!r} is not an offset: write a whole number", status=422)
        return place, {"offset": int(text)}
    return place, {"time_ms": moment_of(given.get("time", ""))}


def moment_of(text: str) -> int:
    """Epoch milliseconds of an ISO 8601 time with a time zone. Raises `RefusedError` (422)."""
    example = "write for example 2026-11-23T09:00:00+08:00"
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        raise RefusedError(f"{text[:40]!r} is not a time; {example}", status=422) from None
    try:
        ms = epoch_ms("time", found)
    except SettingsError as error:
        raise RefusedError(f"{error}; {example}", status=422) from None
    if ms > TIME_MS_MAX:
        raise RefusedError(f"{text[:40]!r} is out of range; {example}", status=422)
    return ms


async def _preview(visit: Visit, given: Mapping[str, str]) -> Preview:
    group, (place, target) = visit.named("group"), _aim(given)
    steps = await cluster.preview_reset(group, visit.caller, place, **target)
    rows = step_rows(steps, cluster.place_of(place).topic)
    table = await visit.table("steps", OFFSET_STEPS, rows)
    says = says_of(visit, "form.reset", rows, group=group, place=place)
    return Preview(says, table, stamp=repr((place, target)))


async def _reset(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    place, target = _aim(given)
    move = Move(place=place, reason=reason, **target)
    await visit.call(dynamic_settings.move_group, visit.named("group"), move, visit.caller)
    return "reset"


def _back(visit: Visit) -> str:
    return at("groups", visit.named("group"))


PAGES: Final = (
    Page("/groups", "page.groups", "groups", (PagePart("groups", groups),)),
    Page(
        "/groups/{group}",
        "page.group",
        "groups",
        (
            PagePart("summary", summary, template="facts"),
            PagePart("queues", queues),
            over_time.part(over_time.group),
            PagePart("assignment", assignment, template="picture"),
            PagePart("members", members),
            PagePart("planned", planned),
            guards.FENCES_PART,
            PagePart("set", settings),
            PagePart("resets", resets),
            owners_of.part("group"),
        ),
        links=group_changes.links,
    ),
)
FORMS: Final[Sequence[Form]] = (
    Form("/groups/{group}/reset", "do.reset", "groups", _fields, _preview, _reset, _back, looks_first=True,
         typed=lambda visit: visit.named("group")),
)  # fmt: skip
