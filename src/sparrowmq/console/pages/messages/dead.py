"""Dead letters: groups that have some, the letters and why they died, delivering them again, and purging."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from sparrowmq.console import shown
from sparrowmq.console.pages.messages.places import place_of
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import SEARCH_SECONDS, Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api import letters as api
from sparrowmq.coordinator.api.letters import ResendSlowly
from sparrowmq.coordinator.api.shared import Answer, Reason
from sparrowmq.coordinator.cluster.resends import IDS_MAX, RATE_MAX, RATE_MIN, WAITS
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

LETTERS: Final = 500
DEAD: Final = (
    Column("group", link=lambda row: at("dead-letters", row["group"])),
    Column("messages", "number"),
)
LETTER: Final = (
    Column("pick", "pick"),
    Column("stored_ms", "time"),
    Column("message_id", link=lambda row: place_of(row)),
    Column("origin", filtered=True),
    Column("why", filtered=True),
    Column("tags", filtered=True),
    Column("keys", "list"),
    Column("tries", "number"),
    Column("born_ms", "time"),
    Column("born_host"),
)
CAUSES: Final = (
    Column("why", link=lambda row: row["link"]),
    Column("origin", filtered=True),
    Column("messages", "number"),
    Column("first_ms", "time"),
    Column("newest_ms", "time"),
)
RESENDS: Final = (
    Column("number"),
    Column("begun_ms", "time"),
    Column("ended_ms", "time"),
    Column("per_second"),
    Column("sent", "number"),
    Column("waits_still", "number"),
    Column("gone", "number"),
    Column("not_sent", "number"),
    Column("asked_by"),
    Column("reason"),
    Column("stop", "state", link=lambda row: row["stop_link"]),
)
OUTCOMES: Final = (
    Column("number", filtered=True),
    Column("message_id"),
    Column("outcome", "state", filtered=True),
    Column("error_said"),
)


async def dead(visit: Visit) -> Values:
    """Groups with dead letters."""
    rows = await api.list_dead(visit.caller)
    return {"table": await visit.table("dead", DEAD, rows, sort="-messages", empty="empty.dead")}


async def _listed(visit: Visit) -> list[Answer]:
    group = visit.named("group")
    return await visit.once("letters", lambda: api.dead_letters(group, visit.caller, LETTERS))


async def causes(visit: Visit) -> Values:
    """Why a group's letters died: how many of each error and topic, with links to them."""
    listed = await _listed(visit)
    rows = by_cause(listed)
    for row in rows:
        fields = {"letters.is.why": row["why"], "letters.is.origin": row["origin"]}
        row["link"] = f"{visit.path}?{urlencode(fields)}#part-letters"
    table = await visit.table("causes", CAUSES, rows, sort="-messages", empty="empty.letters")
    return {"table": table, "notes": _only_first(visit, listed)}


def by_cause(listed: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Dead letters by error and original topic: how many, and when the first and the last were stored.
    Pure.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in listed:
        why, stored = one["error"] or "–", one["stored_ms"]
        row = found.setdefault(
            (why, one["origin"]),
            {"why": why, "origin": one["origin"], "messages": 0, "first_ms": stored, "newest_ms": stored},
        )
        row["messages"] += 1
        row["first_ms"] = min(row["first_ms"], stored)
        row["newest_ms"] = max(row["newest_ms"], stored)
    return list(found.values())


def _only_first(visit: Visit, listed: Sequence[Answer]) -> list[str]:
    return [visit.words("find.first-letters", count=LETTERS)] if len(listed) == LETTERS else []


async def letters(visit: Visit) -> Values:
    """A group's dead letters, the first ones of each broker."""
    group = visit.named("group")
    listed = await _listed(visit)
    may = visit.may(RoleRight.EDIT, ("group", group))
    rows = [
        one | {"tags": one["tags"] or "–", "why": one["error"] or "–", "pick": one["message_id"]}
        for one in listed
    ]
    columns = LETTER if may else LETTER[1:]
    table = await visit.table("letters", columns, rows, sort="-stored_ms", empty="empty.letters")
    notes = _only_first(visit, listed)
    return {"table": table, "notes": notes, "resend": f"{at('dead-letters', group)}/resend" if may else ""}


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    group = visit.named("group")
    here = at("dead-letters", group)
    found = [("do.resends", f"{here}/resends")]
    if visit.may(RoleRight.EDIT, ("group", group)):
        found.append(("do.resend", f"{here}/resend"))
    if visit.may(RoleRight.OPERATE, ("group", group)):
        found.append(("do.purge", f"{here}/purge"))
    return found


# Sent again


async def resends(visit: Visit) -> Values:
    """What was sent again of a group, the last first."""
    group = visit.named("group")
    may = visit.may(RoleRight.EDIT, ("group", group))
    rows = [
        one
        | {
            "sent": one["counts"].get("sent", 0),
            "waits_still": one["counts"].get(WAITS, 0),
            "gone": one["counts"].get("gone", 0),
            "not_sent": one["counts"].get("failed", 0),
            "stop": "stop" if may and not one["ended_ms"] else "–",
            "stop_link": f"{at('dead-letters', group)}/resends/{one['number']}/stop"
            if may and not one["ended_ms"]
            else "",
        }
        for one in await api.list_resends(group, visit.caller)
    ]
    return {"table": await visit.table("resends", RESENDS, rows, empty="empty.resends")}


async def outcomes(visit: Visit) -> Values:
    """What became of each letter."""
    listed = await api.list_resends(visit.named("group"), visit.caller)
    rows = [
        letter | {"number": str(one["number"]), "error_said": letter["error"] or one["error"]}
        for one in listed
        for letter in one["letters"]
    ]
    return {"table": await visit.table("outcomes", OUTCOMES, rows, empty="empty.resends")}


async def _fields(visit: Visit) -> Sequence[Field]:
    return [
        Field("ids", "form.ids", "lines", help=visit.words("form.ids-help", most=IDS_MAX)),
        Field("rate", "form.rate", "decimal", "10", help=visit.words("form.rate-help")),
    ]


def _wanted(visit: Visit, given: Mapping[str, str]) -> tuple[list[str], float]:
    ids = list(dict.fromkeys(given.get("ids", "").split()))
    if not 1 <= len(ids) <= IDS_MAX:
        raise RefusedError(visit.words("form.ids-help", most=IDS_MAX), status=422)
    text = given.get("rate", "").strip()
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not RATE_MIN <= rate <= RATE_MAX:
        problem = f"the rate is a number from {RATE_MIN:g} to {RATE_MAX:g}, not {text[:40]!r}"
        raise RefusedError(problem, status=422)
    return ids, rate


async def _preview(visit: Visit, given: Mapping[str, str]) -> Preview:
    group, (ids, rate) = visit.named("group"), _wanted(visit, given)
    known = {one["message_id"] for one in await api.dead_letters(group, visit.caller, LETTERS)}
    says = [visit.words("form.resend", count=len(ids), group=group, rate=f"{rate:g}")]
    strange = [one for one in ids if one not in known]
    if strange:
        says.append(visit.words("form.resend-strange", ids=shown.listed(strange)))
    return Preview(says, stamp=" ".join(ids))


async def _resend(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    ids, rate = _wanted(visit, given)
    body = ResendSlowly(message_ids=ids, per_second=rate, reason=reason)
    await api.begin_resend(visit.named("group"), body, visit.caller)
    return "resent"


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _preview_stop(visit: Visit, given: Mapping[str, str]) -> Preview:
    number = visit.named("number")
    listed = await api.list_resends(visit.named("group"), visit.caller)
    found = next((one for one in listed if str(one["number"]) == number), None)
    if found is None or found["ended_ms"]:
        raise RefusedError(visit.words("form.resend-ended", number=number[:20]), status=409)
    says = visit.words("form.resend-stop", number=number, count=found["counts"].get(WAITS, 0))
    return Preview([says], stamp=number)


async def _stop(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await api.stop_resend(
        visit.named("group"), int(visit.named("number")), Reason(reason=reason), visit.caller
    )
    return "stopped"


# Purged


async def _preview_purge(visit: Visit, given: Mapping[str, str]) -> Preview:
    group = visit.named("group")
    known = {one["group"]: one["messages"] for one in await api.list_dead(visit.caller)}
    if group not in known:
        raise RefusedError(visit.words("empty.letters"), status=404)
    return Preview([visit.words("form.purge", group=group, count=known[group])], stamp=str(known[group]))


async def _purge(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    await api.purge_letters(visit.named("group"), visit.caller, reason)
    return "purged"


def _resends_page(visit: Visit) -> str:
    return f"{at('dead-letters', visit.named('group'))}/resends"


PAGES: Final = (
    Page(
        "/dead-letters", "page.dead", "dead", (PagePart("dead", dead, seconds=SEARCH_SECONDS),), is_live=False
    ),
    Page(
        "/dead-letters/{group}",
        "page.letters",
        "dead",
        (
            PagePart("causes", causes, seconds=SEARCH_SECONDS),
            PagePart("letters", letters, template="letters", seconds=SEARCH_SECONDS),
        ),
        is_live=False,
        links=_links,
    ),
    Page(
        "/dead-letters/{group}/resends",
        "page.resends",
        "dead",
        (PagePart("resends", resends), PagePart("outcomes", outcomes)),
    ),
)
FORMS: Final[Sequence[Form]] = (
    Form("/dead-letters/{group}/resend", "do.resend", "dead", _fields, _preview, _resend, _resends_page,
         looks_first=True),
    Form("/dead-letters/{group}/resends/{number}/stop", "do.stop", "dead", _nothing, _preview_stop, _stop,
         _resends_page),
    Form("/dead-letters/{group}/purge", "do.purge", "dead", _nothing, _preview_purge, _purge,
         lambda visit: "/dead-letters", typed=lambda visit: visit.named("group")),
)  # fmt: skip
