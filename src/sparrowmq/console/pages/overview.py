"""The overview: one page that shows whether anything is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from sparrowmq.console.pages import over_time
from sparrowmq.console.pages.columns import ALARMS as ALARM_COLUMNS
from sparrowmq.console.pages.columns import (
    BROKERS,
    CHANGES,
    DISKS,
    LAGS,
    alarm_rows,
    audit_rows,
    broker_rows,
    disk_rows,
    lag_rows,
    service_rows,
)
from sparrowmq.console.pages.columns import SERVICES as SERVICE_COLUMNS
from sparrowmq.console.visits import Form, Page, PagePart, Values, Visit
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.api import cluster, upkeep, watching
from sparrowmq.coordinator.api.shared import Answer
from sparrowmq.coordinator.services.base.schedule import RunOutcome
from sparrowmq.core.errors import SparrowError

WORST: Final = 8
"""Maximum number of rows in a part of the overview; the page of the part has all."""
FULL_SOON_HOURS: Final = 24


async def verdict(visit: Visit) -> Values:
    """One line for each kind of object: good, bad, or unknown, and why."""
    checks = await asyncio.gather(
        _check("alarms", "/alarms", _alarms(visit)),
        _check("lag", "/groups", _lag(visit)),
        _check("brokers", "/brokers", _brokers(visit)),
        _check("disks", "/brokers", _disks(visit)),
        _check("services", "/services", _services(visit)),
    )
    states = {one["state"] for one in checks}
    overall = "bad" if states & {"bad", "none"} else "unknown" if "unknown" in states else "good"
    return {"checks": checks, "overall": overall}


async def _check(name: str, link: str, found: Awaitable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """`found` returns a state, and values for the words `verdict.NAME-STATE`; `none` counts as bad."""
    try:
        async with asyncio.timeout(2.0):
            state, values = await found
    except SparrowError as error:
        return {"name": name, "state": "unknown", "values": {}, "why": str(error), "link": link}
    except TimeoutError:
        return {"name": name, "state": "unknown", "values": {}, "why": "", "link": link}
    return {"name": name, "state": state, "values": values, "why": "", "link": link}


async def _alarms(visit: Visit) -> tuple[str, Mapping[str, Any]]:
    found = await visit.call(watching.list_alarms, visit.caller)
    firing = sum(one["state"] == AlarmState.FIRING for one in found)
    return ("bad" if firing else "good"), {"count": firing, "others": len(found) - firing}


async def _lag(visit: Visit) -> tuple[str, Mapping[str, Any]]:
    """Waiting messages alone are not a fault: alarms decide by their limits."""
    groups = (await cluster.list_lag(visit.caller))["groups"]
    waiting = sum(one["messages"] or 0 for one in groups)
    lost = sum(bool(one["error"]) for one in groups)
    return ("unknown" if lost else "good"), {"messages": waiting, "count": lost or len(groups)}


async def _brokers(visit: Visit) -> tuple[str, Mapping[str, Any]]:
    found = await cluster.list_servers(visit.caller)
    silent = [one for one in found["brokers"] if one["error"]]
    silent += [one for one in found["name_servers"] if one["topics"] is None]
    count = len(found["brokers"]) + len(found["name_servers"])
    if not found["brokers"]:
        return "none", {}
    return ("bad" if silent else "good"), {"silent": len(silent), "count": count}


async def _disks(visit: Visit) -> tuple[str, Mapping[str, Any]]:
    disks = await visit.call(upkeep.list_findings, visit.caller, "capacity")
    soon = [
        one for one in disks if (one["numbers"].get("first_in") is not None
                                 and one["numbers"]["first_in"] <= FULL_SOON_HOURS)
    ]  # fmt: skip
    state = "bad" if soon else "good" if disks else "unknown"
    return state, {"soon": len(soon), "count": len(disks)}


async def _services(visit: Visit) -> tuple[str, Mapping[str, Any]]:
    found = await _all_services(visit)
    still = [one for one in found if one["leader"] is None or one["paused"] or _failed(one)]
    return ("bad" if still else "good"), {"still": len(still), "count": len(found)}


async def _all_services(visit: Visit) -> Sequence[Answer]:
    """Queried once, for the verdict and the table."""
    return await visit.once("services", lambda: visit.call(watching.list_services, visit.caller))


def _failed(service: Mapping[str, Any]) -> bool:
    last = service["last_run"]
    return last is not None and last["outcome"] != RunOutcome.DONE.value


async def lags(visit: Visit) -> Values:
    """The groups with the most lag; those that could not be queried come first."""
    found = await cluster.list_lag(visit.caller)
    rows = lag_rows(found)
    unknown = [row for row in rows if row["error"]]
    behind = sorted((row for row in rows if row["messages"]), key=lambda row: -row["messages"])
    table = await visit.table("lag", LAGS, [*unknown, *behind][:WORST], empty="empty.lag")
    return {"table": table, "looked_ms": found["looked_ms"], "more": "/groups"}


async def alarms(visit: Visit) -> Values:
    """The unresolved alarms, the latest first."""
    rows = alarm_rows(await visit.call(watching.list_alarms, visit.caller))
    table = await visit.table("alarms", ALARM_COLUMNS, _first(rows, "since_ms"), empty="empty.alarms")
    return {"table": table, "more": "/alarms"}


async def brokers(visit: Visit) -> Values:
    """Brokers with their rates; those that do not answer first."""
    found = await cluster.list_servers(visit.caller)
    rows = sorted(
        broker_rows(found), key=lambda row: (row["state"] != "silent", row["broker"], row["broker_id"])
    )
    table = await visit.table("brokers", BROKERS, rows[:WORST], empty="empty.brokers")
    return {"table": table, "looked_ms": found["looked_ms"], "more": "/brokers"}


async def disks(visit: Visit) -> Values:
    """Disks, and when they will be full."""
    forecasts = await visit.call(upkeep.list_findings, visit.caller, "capacity")
    found = await cluster.list_disks(visit.caller)
    table = await visit.table("disks", DISKS, disk_rows(found, forecasts)[:WORST], empty="empty.brokers")
    return {"table": table, "looked_ms": found["looked_ms"]}


async def services(visit: Visit) -> Values:
    """Services and their leaders; those that are paused or have no leader come first."""
    rows = service_rows(await _all_services(visit), visit.words)
    rows = sorted(rows, key=lambda row: (row["state"] == "leads", row["name"]))
    return {"table": await visit.table("services", SERVICE_COLUMNS[:-1], rows), "more": "/services"}


async def changes(visit: Visit) -> Values:
    """The latest changes, with authors and reasons."""
    found = await visit.call(watching.list_audit, visit.caller, count=WORST)
    table = await visit.table("changes", CHANGES, audit_rows(found), empty="empty.audit")
    return {"table": table, "more": "/audit"}


def _first(rows: Sequence[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    return sorted(rows, key=lambda row: -(row[key] or 0))[:WORST]


PAGES: Final = (
    Page(
        "/",
        "page.overview",
        "overview",
        (
            PagePart("verdict", verdict, template="verdict"),
            PagePart("lag", lags, template="excerpt"),
            over_time.part(over_time.overview),
            PagePart("alarms", alarms, template="excerpt"),
            PagePart("brokers", brokers, template="excerpt", is_wide=False),
            PagePart("disks", disks, template="excerpt", is_wide=False),
            PagePart("services", services, template="excerpt"),
            PagePart("changes", changes, template="excerpt"),
        ),
    ),
)
FORMS: Final[Sequence[Form]] = ()
