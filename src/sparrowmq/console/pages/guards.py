"""What brokers guard: holds of topics with their forms, and the policies and fences of groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparrowmq.console import shown
from sparrowmq.console.pages.group_changes import whole
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Field, Form, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api import cluster
from sparrowmq.coordinator.api.told import guards
from sparrowmq.coordinator.api.told.guards import HOURS_MAX, SIZE_MAX, HoldWish
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

HOLDS: Final = (
    Column("topic", link=lambda row: at("topics", row["topic"])),
    Column("broker", filtered=True),
    Column("group", link=lambda row: at("groups", row["group"])),
    Column("state", "state", filtered=True),
    Column("messages", "number"),
    Column("oldest_ms", "time"),
    Column("hold_hours", "number"),
    Column("size_max", "bytes"),
    Column("why"),
    Column("release", link=lambda row: row["link"]),
)
FENCES: Final = (
    Column("topic", filtered=True, link=lambda row: at("topics", row["topic"])),
    Column("broker", filtered=True),
    Column("queue", "number"),
    Column("client_id"),
    Column("generation", "number"),
    Column("state", "state", filtered=True),
)


async def holds(visit: Visit) -> Values:
    """All holds, or those of the topic of the path."""
    found = await guards.list_holds(visit.caller)
    topic = visit.request.path_params.get("topic")
    rows = [
        one
        | {
            "state": "gave-way" if one["overrun"] else "keeps",
            "hold_hours": one["hours"],
            "size_max": one["size_max"] or "–",
            "oldest_ms": one["oldest_ms"] or 0,
            "why": one["overrun"] or "–",
        }
        | _release_link(visit, one["topic"])
        for one in found
        if topic in (None, one["topic"])
    ]
    empty = "empty.holds" if topic is None else "empty.not-held"
    return {"table": await visit.table("holds", HOLDS, rows, sort="topic", empty=empty)}


def _release_link(visit: Visit, topic: str) -> Values:
    if not visit.may(RoleRight.OPERATE, ("topic", topic)):
        return {"release": "", "link": ""}
    return {"release": visit.words("do.release-hold"), "link": at("topics", topic, "release-hold")}


async def fences(visit: Visit) -> Values:
    """What each broker enforces for the group of the path: its queues, and in a sentence all else."""
    found = (await guards.group_policies(visit.named("group"), visit.caller))["brokers"]
    rows = [
        one
        | {
            "broker": policy["broker"],
            "client_id": one["owner"] or "–",
            "state": "fenced" if one["fenced"] else "unfenced",
        }
        for policy in found
        for one in policy["queues"]
    ]
    table = await visit.table("fences", FENCES, rows, sort="topic", empty="empty.fences")
    return {"table": table, "notes": [says for one in found for says in _says(visit, one)]}


def _says(visit: Visit, policy: Mapping[str, Any]) -> list[str]:
    """Who may consume at one broker, and what is paused there."""
    broker, members = policy["broker"], policy["members"]
    who = visit.words("guard.everybody") if members is None else shown.listed(members)
    number = f"{policy['epoch']}.{policy['revision']}"
    says = [visit.words("guard.policy", broker=broker, revision=number, members=who)]
    if policy["maximum"]:
        says.append(visit.words("guard.maximum", broker=broker, count=policy["maximum"]))
    paused = []
    for one in policy["pauses"]:
        place = "/".join(str(part) for part in (one["topic"], one["queue"]) if part is not None)
        until = shown.moment(one["until_ms"]) if one["until_ms"] else visit.words("guard.resumed")
        given = {"place": place or visit.words("guard.everything"), "reason": one["reason"] or "–"}
        paused.append(visit.words("guard.paused", broker=broker, until=until, **given))
    return says + shown.first(paused, visit.words)


# Changes


def links(visit: Visit) -> Sequence[tuple[str, str]]:
    """The form of a topic's hold; the hold itself leads to the form that releases it."""
    name = visit.named("topic")
    return [("do.hold", at("topics", name, "hold"))] if visit.may(RoleRight.OPERATE, ("topic", name)) else []


async def _held(visit: Visit) -> list[Mapping[str, Any]]:
    """The hold of the topic of the path, by broker."""
    return [one for one in await guards.list_holds(visit.caller) if one["topic"] == visit.named("topic")]


async def _hold_fields(visit: Visit) -> Sequence[Field]:
    found = await _held(visit)
    now: Mapping[str, Any] = found[0] if found else {"group": "", "hours": 168, "size_max": 0}
    return [
        Field("group", "column.group", value=now["group"], help=visit.words("form.hold-group")),
        Field("hours", "column.hold_hours", "number", str(now["hours"]), help=f"1–{HOURS_MAX}"),
        Field(
            "size_max", "form.hold-size", "number", str(now["size_max"]), help=visit.words("form.hold-all")
        ),
    ]


def _wish(given: Mapping[str, str], reason: str = "") -> HoldWish:
    """Raises `RefusedError` (422) for numbers out of range."""
    return HoldWish(
        group=given.get("group", "").strip(),
        hours=whole("hours", given.get("hours", "").strip(), 1, HOURS_MAX),
        size_max=whole("size_max", given.get("size_max", "").strip(), 0, SIZE_MAX),
        reason=reason,
    )


async def _preview_hold(visit: Visit, given: Mapping[str, str]) -> Preview:
    """What is held from now on: the unread messages of the group, or all where it has no offset."""
    topic = visit.named("topic")
    if not given.get("group", "").strip():
        raise RefusedError(visit.words("form.hold-group-missing"), status=422)
    wish = _wish(given)
    queues = (await cluster.show_topic(topic, visit.caller))["queues"]
    offsets = {
        (one["broker"], one["queue"]): one["offset"]
        for one in await cluster.group_progress(wish.group, visit.caller)
        if one["topic"] == topic
    }
    unread = sum(
        max(0, one["next"] - max(one["first"], offsets.get((one["broker"], one["queue"]), 0)))
        for one in queues
    )
    known = {"group": wish.group, "topic": topic}
    says = [
        visit.words("form.hold", hours=wish.hours, **known),
        visit.words("form.hold-unread", messages=unread, **known),
    ]
    if wish.size_max:
        says.append(visit.words("form.hold-most", size=shown.size(wish.size_max)))
    if not offsets:
        says.append(visit.words("form.hold-stranger", **known))
    found = await _held(visit)
    says += [
        visit.words("form.hold-before", broker=one["broker"], group=one["group"], hours=one["hours"])
        for one in found
    ]
    return Preview([*says, visit.words("form.hold-disk")], stamp=repr(_stamp(found)))


def _stamp(found: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """What another user may have changed: counts of messages change without anybody."""
    return [(one["broker"], one["group"], one["hours"], one["size_max"]) for one in found]


async def _hold(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await guards.put_hold(visit.named("topic"), _wish(given, reason), visit.caller)
    return "saved"


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _preview_release(visit: Visit, given: Mapping[str, str]) -> Preview:
    found = await _held(visit)
    if not found:
        raise RefusedError(visit.words("form.hold-none", topic=visit.named("topic")), status=404)
    says = [
        visit.words("form.hold-release", broker=one["broker"], group=one["group"], messages=one["messages"])
        for one in found
    ]
    return Preview(says, stamp=repr(_stamp(found)))


async def _release(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await guards.release_hold(visit.named("topic"), visit.caller, reason)
    return "hold-released"


def _topic(visit: Visit) -> str:
    return visit.named("topic")


def _page(visit: Visit) -> str:
    return at("topics", _topic(visit))


FORMS: Final[Sequence[Form]] = (
    Form("/topics/{topic}/hold", "do.hold", "topics", _hold_fields, _preview_hold, _hold, _page,
         looks_first=True),
    Form("/topics/{topic}/release-hold", "do.release-hold", "topics", _nothing, _preview_release, _release,
         _page, typed=_topic),
)  # fmt: skip
HOLDS_PART: Final = PagePart("holds", holds)
FENCES_PART: Final = PagePart("fences", fences)
