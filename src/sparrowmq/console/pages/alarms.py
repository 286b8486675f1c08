"""Alarms: the active ones, their details, and actions on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sparrowmq.console.pages.columns import ALARMS, CHANGES, alarm_rows, audit_rows
from sparrowmq.console.visits import Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.api import watching
from sparrowmq.coordinator.api.shared import Reason
from sparrowmq.coordinator.api.watching import Silence
from sparrowmq.core.errors import RefusedError

MINUTES: Final = ("15", "60", "240", "1440", "10080")


async def alarms(visit: Visit) -> Values:
    """Unresolved alarms, or with `resolved` all stored ones."""
    states = list(AlarmState) if visit.query.get("resolved") else None
    rows = alarm_rows(await visit.call(watching.list_alarms, visit.caller, states))
    return {"table": await visit.table("alarms", ALARMS, rows, sort="-since_ms", empty="empty.alarms")}


async def alarm(visit: Visit) -> Values:
    """One alarm."""
    one = await _one(visit)
    facts = (
        ("state", "state", one["state"]),
        ("text", "text", one["text"]),
        ("rule", "text", one["rule"]),
        ("object", "text", one["object"]),
        ("since_ms", "time", one["since_ms"]),
        ("changed_ms", "time", one["changed_ms"]),
        ("changed_by", "text", one["changed_by"]),
        ("noticed_ms", "time", one["noticed_ms"]),
        ("silenced_until_ms", "time", one["silenced_until_ms"]),
    )
    return {"facts": facts}


async def history(visit: Visit) -> Values:
    """The history of an alarm, from its entries in the audit log."""
    one = await _one(visit)
    found = await visit.call(
        watching.list_audit, visit.caller, kind="alarm", object=f"{one['rule']} {one['object']}"
    )
    return {"table": await visit.table("changes", CHANGES, audit_rows(found), empty="empty.audit")}


async def _one(visit: Visit) -> Mapping[str, Any]:
    number = visit.named("number")
    for one in await visit.call(watching.list_alarms, visit.caller, list(AlarmState)):
        if str(one["id"]) == number:
            return one
    raise RefusedError(f"there is no alarm {number[:20]}; it may have been resolved and deleted", status=404)


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    base = at("alarms", visit.named("number"))
    return [(f"do.{name}", f"{base}/{name}") for name in ("acknowledge", "silence", "wake")]


# Changes


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _minutes(visit: Visit) -> Sequence[Field]:
    choices = [(one, visit.words(f"minutes.m{one}")) for one in MINUTES]
    return [Field("minutes", "form.minutes", "select", "60", choices)]


def _form(name: str) -> Form:
    async def preview(visit: Visit, given: Mapping[str, str]) -> Preview:
        one = await _one(visit)
        says = [one["text"], visit.words(f"form.alarm-{name}")]
        return Preview(says, stamp=repr((one["state"], one["silenced_until_ms"])))

    async def act(visit: Visit, given: Mapping[str, str], reason: str) -> str:
        number = int((await _one(visit))["id"])
        if name == "acknowledge":
            await visit.call(watching.acknowledge_alarm, number, Reason(reason=reason), visit.caller)
        elif name == "wake":
            await visit.call(watching.wake_alarm, number, Reason(reason=reason), visit.caller)
        else:
            minutes = given.get("minutes", "")
            if minutes not in MINUTES:
                raise RefusedError(visit.words("form.pick-minutes"), status=422)
            body = Silence(minutes=int(minutes), reason=reason)
            await visit.call(watching.silence_alarm, number, body, visit.caller)
        return name

    fields = _minutes if name == "silence" else _nothing
    return Form(f"/alarms/{{number}}/{name}", f"do.{name}", "alarms", fields, preview, act, _back)


def _back(visit: Visit) -> str:
    return at("alarms", visit.named("number"))


def _all(visit: Visit) -> Sequence[tuple[str, str]]:
    if visit.query.get("resolved"):
        return [("do.unresolved", "/alarms")]
    return [("do.resolved", "/alarms?resolved=1")]


PAGES: Final = (
    Page("/alarms", "page.alarms", "alarms", (PagePart("alarms", alarms),), links=_all),
    Page(
        "/alarms/{number}",
        "page.alarm",
        "alarms",
        (PagePart("alarm", alarm, template="facts"), PagePart("changes", history)),
        links=_links,
    ),
)
FORMS: Final[Sequence[Form]] = tuple(_form(name) for name in ("acknowledge", "silence", "wake"))
