"""More about a group: a preview of its plan with other members, and one member's report about itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from sparrowmq.console.tables import Column
from sparrowmq.console.visits import SEARCH_SECONDS, Page, PagePart, Values, Visit, at
from sparrowmq.coordinator.api import groups as managed
from sparrowmq.coordinator.api.told import members as running
from sparrowmq.coordinator.groups.preview import JOIN_MAX
from sparrowmq.core.errors import RefusedError

MOVES: Final = (
    Column("topic", filtered=True),
    Column("broker"),
    Column("queue", "number"),
    Column("before"),
    Column("after"),
    Column("moves", "state", filtered=True),
    Column("why"),
)
HELD: Final = (
    Column("topic", filtered=True),
    Column("broker"),
    Column("queue", "number"),
    Column("in_hand", "number"),
    Column("offset", "number"),
    Column("locked", "text"),
    Column("pulled_ms", "time"),
    Column("handled_ms", "time"),
)
RATES: Final = (
    Column("topic"),
    Column("handled_per_second", "rate"),
    Column("failed_per_second", "rate"),
    Column("handling_ms", "span"),
    Column("pulled_per_second", "rate"),
)
TOLD: Final = (Column("name"), Column("value"))


NAMES_MAX: Final = 200
"""Members that the form offers to leave out; the address can name any."""


async def plan(visit: Visit) -> Values:
    """The next plan, with the members given in the address."""
    asked = visit.query
    join = _whole(asked.get("join", ""))
    without = [one for one in (asked.get("without", "").strip(),) if one]
    is_managed, look = True, _preview
    try:
        now = await _preview(visit)
    except RefusedError as error:
        if error.status != 404:
            raise
        is_managed, look = False, _would_be
        try:
            now = await _would_be(visit)
        except RefusedError as none:
            if none.status != 404:
                raise
            return {"nobody": True}
    found = await look(visit, join, without) if join or without else now
    rows = [
        {
            "topic": one["topic"],
            "broker": one["broker"],
            "queue": one["queue"],
            "before": one["before"] or "–",
            "after": one["owner"] or "–",
            "moves": "moves" if one["moves"] else "stays",
            "why": one["reason"],
        }
        for one in found["queues"]
    ]
    table = await visit.table("moves", MOVES, rows, sort="moves", empty="empty.no-queues")
    return {
        "nobody": False,
        "managed": is_managed,
        "table": table,
        "join": join,
        "without": without[0] if without else "",
        "names": sorted(one["client"] for one in now["members"])[:NAMES_MAX],
        "moved": found["moves"],
        "given": found["given"],
        "members": len(found["members"]),
        "join_max": JOIN_MAX,
    }


async def _preview(visit: Visit, join: int = 0, without: Sequence[str] = ()) -> Mapping[str, Any]:
    group, who = visit.named("group"), visit.caller
    return await visit.call(managed.preview_plan, group, who, join=join, without=list(without) or None)


async def _would_be(visit: Visit, join: int = 0, without: Sequence[str] = ()) -> Mapping[str, Any]:
    """The same of a group that is not managed."""
    group, who = visit.named("group"), visit.caller
    return await managed.preview_unmanaged_group(group, who, join=join, without=list(without) or None)


def _whole(text: str) -> int:
    fits = text.isascii() and text.isdecimal() and len(text) <= 6
    return min(int(text), JOIN_MAX) if fits else 0


async def _told(visit: Visit, *, stacks: bool = False) -> Mapping[str, Any]:
    group, client = visit.named("group"), visit.named("client")
    key = f"member{stacks}"
    return await visit.once(key, lambda: running.show_member(group, client, visit.caller, stacks))


async def held(visit: Visit) -> Values:
    """The member's queues."""
    found = await _told(visit)
    rows = [
        one | {"locked": visit.words("word.yes" if one["locked"] else "word.no")} for one in found["queues"]
    ]
    return {"table": await visit.table("held", HELD, rows, empty="member.nothing-held")}


async def rates(visit: Visit) -> Values:
    """Its rates, by topic."""
    found = await _told(visit)
    return {"table": await visit.table("rates", RATES, found["rates"], empty="member.no-rates")}


async def told(visit: Visit) -> Values:
    """Its settings and subscriptions, from its report."""
    found = await _told(visit)
    rows = [
        {"name": visit.words("member.subscribes", topic=topic), "value": expression}
        for topic, expression in sorted(found["subscriptions"].items())
    ]
    rows += [{"name": name, "value": value} for name, value in sorted(found["settings"].items())]
    return {"table": await visit.table("told", TOLD, rows)}


async def stacks(visit: Visit) -> Values:
    """Stack traces of its threads. They are only requested by a link: the client pauses briefly to create
    them.
    """
    if not visit.query.get("stacks"):
        return {"text": None, "link": f"{visit.path}?{urlencode({'stacks': 1})}"}
    found = await _told(visit, stacks=True)
    return {"text": found["stacks"] or "", "link": ""}


def _back(visit: Visit) -> Sequence[tuple[str, str]]:
    return [("do.to-group", at("groups", visit.named("group")))]


PAGES: Final = (
    Page(
        "/groups/{group}/plan",
        "page.plan",
        "groups",
        (PagePart("plan", plan, template="plan", seconds=SEARCH_SECONDS),),
        is_live=False,
        links=_back,
    ),
    Page(
        "/groups/{group}/members/{client}",
        "page.member",
        "groups",
        (
            PagePart("held", held, seconds=12.0),
            PagePart("rates", rates, seconds=12.0),
            PagePart("stacks", stacks, template="stacks", seconds=12.0),
            PagePart("told", told, seconds=12.0),
        ),
        is_live=False,
        links=_back,
    ),
)
