"""Brokers and name servers: availability, storage, copies, settings, stalls, and draining."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sparrowmq.console import shown
from sparrowmq.console.pages import guards, over_time
from sparrowmq.console.pages.columns import BROKERS, DISKS, broker_rows, disk_rows, role_of
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import (
    SEARCH_SECONDS,
    Field,
    Form,
    Page,
    PagePart,
    Preview,
    Values,
    Visit,
    at,
)
from sparrowmq.coordinator.api import brokers as drains
from sparrowmq.coordinator.api import cluster, upkeep
from sparrowmq.coordinator.api.brokers import DrainWish
from sparrowmq.coordinator.api.cluster import ServerChange
from sparrowmq.coordinator.api.shared import Reason
from sparrowmq.coordinator.api.told import servers
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

ALL: Final = (
    *BROKERS[:2],
    Column("cluster", filtered=True),
    BROKERS[2],
    Column("broker_id", "number"),
    Column("address"),
    *BROKERS[3:5],
    Column("log_bytes", "bytes"),
    Column("behind_bytes", "bytes"),
    Column("drain", "state"),
    BROKERS[5],
    Column("error"),
)
TOLD: Final = (
    *ALL[:9],
    Column("disk_total", "bytes"),
    Column("disk_free", "bytes"),
    *ALL[-2:],
)
"""The content of the page of one broker."""
SLAVES: Final = (
    Column("address"),
    Column("state", "state"),
    Column("behind_bytes", "bytes"),
    Column("position", "number"),
)
CLIENTS: Final = (
    Column("address"),
    Column("client_id"),
    Column("language", filtered=True),
    Column("version", "number"),
    Column("consumes", "list"),
    Column("produces", "list"),
)
REGISTERED: Final = (
    Column("broker", link=lambda row: at("brokers", row["address"])),
    Column("broker_id", "number"),
    Column("address"),
    Column("state", "state", filtered=True),
)
LEFT: Final = (
    Column("group", link=lambda row: at("groups", row["group"])),
    Column("messages", "number"),
)
NAME_SERVERS: Final = (
    Column("address", link=lambda row: at("name-servers", row["address"])),
    Column("state", "state"),
    Column("topics", "number"),
)
CHANGEABLE: Final = (
    Column("name"),
    Column("value"),
    Column("range"),
    Column("default"),
    Column("help"),
)
SETTINGS: Final = (Column("name"), Column("value"))
BOUNDS: Final = (
    Column("bound"),
    Column("used", "meter"),
    Column("in_use", "number"),
    Column("most", "number"),
)
STALLS: Final = (
    Column("at_ms", "time"),
    Column("own_ms", "span"),
    Column("cpu_ms", "span"),
    Column("waited_ms", "span"),
    Column("what"),
    Column("client"),
    Column("where", "list"),
)


async def brokers(visit: Visit) -> Values:
    """All broker processes that the name servers list now, and the progress of their drains."""
    found = await cluster.list_servers(visit.caller)
    known = await visit.call(drains.list_brokers, visit.caller)
    drained = {one["broker"]: one["drain"]["state"] for one in known if one["drain"]}
    rows = [one | {"drain": drained.get(one["broker"], "none")} for one in broker_rows(found)]
    rows += [
        _lost(one) for one in known if one["error"] and one["address"] not in {row["address"] for row in rows}
    ]
    table = await visit.table("brokers", ALL, rows, sort="broker", empty="empty.brokers")
    return {"table": table, "looked_ms": found["looked_ms"]}


def _lost(one: Mapping[str, Any]) -> dict[str, Any]:
    """A known broker that no name server lists now."""
    return {
        "broker": one["broker"],
        "cluster": one["cluster"],
        "broker_id": one["id"],
        "role": role_of(one["id"]),
        "address": one["address"],
        "state": "silent",
        "error": one["error"],
        "drain": one["drain"]["state"] if one["drain"] else "none",
    }


async def name_servers(visit: Visit) -> Values:
    """The name servers of the coordinator's settings, and those that they list."""
    found = await cluster.list_servers(visit.caller)
    rows = [
        one | {"state": "silent" if one["topics"] is None else "answers"} for one in found["name_servers"]
    ]
    table = await visit.table("name_servers", NAME_SERVERS, rows, sort="address")
    return {"table": table, "looked_ms": found["looked_ms"]}


async def disks(visit: Visit) -> Values:
    """Disks, and when they will be full according to the service `capacity`."""
    forecasts = await visit.call(upkeep.list_findings, visit.caller, "capacity")
    found = await cluster.list_disks(visit.caller)
    columns = (
        *DISKS,
        Column("log_bytes", "bytes"),
        Column("oldest_ms", "time"),
        Column("reserved_hours", "number"),
    )
    table = await visit.table(
        "disks", columns, disk_rows(found, forecasts), sort="broker", empty="empty.brokers"
    )
    notes = [one["text"] for one in forecasts]
    return {"table": table, "looked_ms": found["looked_ms"], "notes": notes}


async def broker(visit: Visit) -> Values:
    """One broker, from its own report."""
    found = await cluster.list_servers(visit.caller)
    address = visit.named("address")
    for one in broker_rows(found):
        if one["address"] == address:
            facts = [(column.key, column.kind, one[column.key]) for column in TOLD]
            return {"facts": facts, "looked_ms": found["looked_ms"]}
    raise RefusedError(f"there is no broker at {address[:64]}", status=404)


async def _replicated(visit: Visit) -> Mapping[str, Any]:
    address = visit.named("address")
    return await visit.once("replication", lambda: servers.server_replication(address, visit.caller))


async def replication(visit: Visit) -> Values:
    """A master's copies and what sends wait for, or a slave's master."""
    found = await _replicated(visit)
    settings = found["settings"]
    if not found["known"]:
        return {"facts": [("role", "text", settings["brokerRole"])], "notes": [visit.words("copies.untold")]}
    facts: list[tuple[str, str, Any]] = [("role", "text", settings["brokerRole"])]
    replica = found["replica"]
    onward = [] if replica is None else [("do.replicas", "/replicas")]
    if replica is not None:
        facts += [("state", "state", replica["state"]), ("epoch", "number", max(0, replica["epoch"]))]
        facts += [("trouble", "text", replica["trouble"])] if replica["trouble"] else []
    if not found["is_master"]:
        facts += [("master", "text", found["master"] or "–"), ("heard_ms", "time", found["heard_ms"])]
        facts.append(("end", "number", found["end"]))
        notes = [] if found["master"] else [visit.words("copies.alone")]
        return {"facts": facts, "notes": notes, "onward": onward}
    facts += [
        ("copies_in_sync", "number", found["copies_in_sync"]),
        ("in_sync_replicas", "text", settings["inSyncReplicas"]),
        ("min_in_sync_replicas", "text", settings["minInSyncReplicas"]),
        ("end", "number", found["end"]),
    ]
    says = "copies.waits" if settings["brokerRole"] == "SYNC_MASTER" else "copies.goes-on"
    return {"facts": facts, "notes": [visit.words(says)], "onward": onward}


async def slaves(visit: Visit) -> Values:
    """The slaves that are connected to a master, the furthest behind first."""
    found = await _replicated(visit)
    rows = [one | {"state": "in-sync" if one["in_sync"] else "lags"} for one in found["slaves"]]
    empty = "empty.slaves" if found["is_master"] else "empty.slaves-of-none"
    return {"table": await visit.table("slaves", SLAVES, rows, sort="-behind_bytes", empty=empty)}


async def _drained(visit: Visit) -> Mapping[str, Any] | None:
    """The drain of the broker of the path, with what is left there."""
    known = await visit.call(drains.list_brokers, visit.caller)
    names = [one["broker"] for one in known if one["address"] == visit.named("address") and one["drain"]]
    if not names:
        return None
    found: Mapping[str, Any] = (await visit.call(drains.one_broker, names[0], visit.caller))[0]["drain"]
    return found


async def drain(visit: Visit) -> Values:
    """The progress of draining this broker, as the service broker-check measured it last."""
    found = await visit.once("drain", lambda: _drained(visit))
    if found is None:
        return {"facts": [("drain", "state", "none")]}
    left = found["left"]
    facts = [
        ("drain", "state", found["state"]),
        ("messages", "number", left["messages"]),
        ("delayed", "number", left["delayed"]),
        ("asked_ms", "time", found["asked_at"]),
        ("asked_by", "text", found["asked_by"]),
        ("reason", "text", found["reason"] or "–"),
    ]
    unknown = visit.words("server.unknown", why=left["unknown"]) if left["unknown"] else ""
    notes = list(filter(None, (found["message"], unknown)))
    return {"facts": facts, "looked_ms": found["measured_at"], "notes": notes}


async def drain_left(visit: Visit) -> Values:
    """The groups that still have messages to read there, the most first."""
    found = await visit.once("drain", lambda: _drained(visit))
    groups = {} if found is None else found["left"]["groups"]
    rows = [{"group": group, "messages": count} for group, count in groups.items()]
    empty = "empty.not-drained" if found is None else "empty.drained"
    return {"table": await visit.table("left", LEFT, rows, sort="-messages", empty=empty)}


async def clients(visit: Visit) -> Values:
    """The clients that are connected to a broker."""
    found = await servers.broker_clients(visit.named("address"), visit.caller)
    notes = [] if found["producers_known"] else [visit.words("server.no-producers")]
    if found["groups_left"]:
        notes.append(visit.words("server.groups-left", count=found["groups_left"]))
    table = await visit.table("clients", CLIENTS, found["clients"], sort="address", empty="empty.clients")
    return {"table": table, "notes": notes}


async def _name_server(visit: Visit) -> Mapping[str, Any]:
    address = visit.named("address")
    return await visit.once("name-server", lambda: servers.show_name_server(address, visit.caller))


async def name_server(visit: Visit) -> Values:
    """How a name server differs from the others."""
    found = await _name_server(visit)
    facts = [
        ("address", "text", found["address"]),
        ("topics", "number", found["topics"]),
        ("lacks", "number", found["lacks_count"]),
        ("alone", "number", found["alone_count"]),
    ]
    notes = [
        visit.words(f"server.{name}", topics=shown.listed(found[name]))
        for name in ("lacks", "alone")
        if found[name]
    ]
    return {"facts": facts, "notes": notes}


async def registered(visit: Visit) -> Values:
    """The brokers that are registered at a name server, and those that are only at others."""
    found = (await _name_server(visit))["brokers"]
    rows = [one | {"state": "registered" if one["listed"] else "unregistered"} for one in found]
    return {"table": await visit.table("registered", REGISTERED, rows, sort="broker", empty="empty.brokers")}


async def name_server_settings(visit: Visit) -> Values:
    """The settings a name server runs with."""
    found = (await _name_server(visit))["settings"]
    rows = [{"name": name, "value": value} for name, value in (found or {}).items()]
    empty = "empty.no-settings" if found is None else ""
    return {"table": await visit.table("settings", SETTINGS, rows, sort="name", empty=empty)}


async def settings(visit: Visit) -> Values:
    """The settings a broker runs with."""
    found = await cluster.server_settings(visit.named("address"), visit.caller)
    rows = [{"name": name, "value": value} for name, value in found.items()]
    return {"table": await visit.table("settings", SETTINGS, rows, sort="name")}


async def stalls(visit: Visit) -> Values:
    """Times when its event loop was blocked for 50 ms or more, the latest first."""
    found = await cluster.server_stalls(visit.named("address"), visit.caller)
    rows = [one | {"client": one.get("client") or "–"} for one in found["stalls"]]
    empty = "empty.stalls" if found["known"] else "empty.stalls-unknown"
    return {"table": await visit.table("stalls", STALLS, rows, sort="-at_ms", empty=empty)}


async def bounds(visit: Visit) -> Values:
    """How much of a broker's bounds is used."""
    return await _bounds(visit, await servers.server_bounds(visit.named("address"), visit.caller))


async def name_server_bounds(visit: Visit) -> Values:
    """The same of a name server."""
    return await _bounds(visit, (await _name_server(visit))["bounds"])


async def _bounds(visit: Visit, found: Sequence[Mapping[str, Any]]) -> Values:
    """Bounds, the one that is used most first."""
    rows = [
        {
            "bound": visit.words.named("bound", one["name"]),
            "used": 100 * one["used"] // max(1, one["most"]),
            "in_use": one["used"],
            "most": one["most"],
        }
        for one in found
    ]
    return {"table": await visit.table("bounds", BOUNDS, rows, sort="-used", empty="empty.bounds")}


async def changeable(visit: Visit) -> Values:
    """Settings that can change while it runs, with their ranges."""
    found = await cluster.changeable_settings(visit.named("address"), visit.caller)
    return {
        "table": await visit.table("changeable", CHANGEABLE, found, sort="name", empty="empty.changeable")
    }


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    base = at("brokers", visit.named("address"))
    connected = ("do.clients", f"{base}/clients")
    if not visit.may(RoleRight.OPERATE):
        return [connected]
    names = ("drain", "cancel", "remove", "forget")
    return [
        connected,
        ("do.settings", f"{base}/settings"),
        *((f"do.{name}", f"{base}/{name}") for name in names),
    ]


# Changes


async def _name(visit: Visit) -> str:
    for one in await visit.call(drains.list_brokers, visit.caller):
        if one["address"] == visit.named("address"):
            return str(one["broker"])
    raise RefusedError(
        f"the service broker-check has not seen a broker at {visit.named('address')[:64]} yet; run it now, "
        "or wait a minute",
        status=404,
    )


async def _nothing(visit: Visit) -> Sequence[Field]:
    return ()


async def _drain_fields(visit: Visit) -> Sequence[Field]:
    choices = [("", visit.words("form.drain-careful")), ("forced", visit.words("form.drain-forced"))]
    return [Field("forced", "form.drain-if", "select", "", choices)]


def _forced(given: Mapping[str, str]) -> bool:
    return given.get("forced") == "forced"


def _form(name: str, route: Callable[..., Any], *, typed: bool = False) -> Form:
    async def preview(visit: Visit, given: Mapping[str, str]) -> Preview:
        broker_name = await _name(visit)
        found = (await visit.call(drains.one_broker, broker_name, visit.caller))[0]["drain"]
        state = found["state"] if found else "none"
        says = [visit.words(f"form.broker-{name}", name=broker_name)]
        if _forced(given):
            says.append(visit.words("form.broker-forced"))
        return Preview(says, stamp=repr((state, _forced(given))))

    async def act(visit: Visit, given: Mapping[str, str], reason: str) -> str:
        forced = _forced(given)
        body = DrainWish(forced=forced, reason=reason) if name == "drain" else Reason(reason=reason)
        await visit.call(route, await _name(visit), body, visit.caller)
        return name

    path = f"/brokers/{{address}}/{name}"
    fields, whose = _drain_fields if name == "drain" else _nothing, _address if typed else None
    return Form(path, f"do.{name}", "brokers", fields, preview, act, _back, typed=whose)


async def _live_fields(visit: Visit) -> Sequence[Field]:
    visit.caller.need(RoleRight.OPERATE)
    found = await cluster.changeable_settings(visit.named("address"), visit.caller)
    return [
        Field(one["name"], "", value=one["value"], help=f"{one['help']} ({one['range']})", needed=False)
        for one in found
    ]


async def _wanted(visit: Visit, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Old and new values of the settings that differ."""
    found = await cluster.changeable_settings(visit.named("address"), visit.caller)
    before = {one["name"]: str(one["value"]) for one in found}
    after = {
        name: given[name].strip() for name in before if name in given and given[name].strip() != before[name]
    }
    return {name: before[name] for name in after}, after


async def _preview_live(visit: Visit, given: Mapping[str, str]) -> Preview:
    before, after = await _wanted(visit, given)
    cluster.checked_settings(after)
    says = [f"{name}: {before[name]} → {value}" for name, value in after.items()]
    says = [*says, visit.words("form.until-stopped")] if says else [visit.words("form.nothing")]
    return Preview(says, stamp=repr((before, after)))


async def _save_live(visit: Visit, given: Mapping[str, str], reason: str) -> str:
    before, after = await _wanted(visit, given)
    if not after:
        raise RefusedError(visit.words("form.nothing"), status=422)
    body = ServerChange(changes=after, expected=before, reason=reason)
    await cluster.change_server(visit.named("address"), body, visit.caller)
    return "saved"


def _address(visit: Visit) -> str:
    return visit.named("address")


def _back(visit: Visit) -> str:
    return at("brokers", visit.named("address"))


PAGES: Final = (
    Page(
        "/brokers",
        "page.brokers",
        "brokers",
        (
            PagePart("brokers", brokers),
            PagePart("disks", disks),
            guards.HOLDS_PART,
            PagePart("name_servers", name_servers),
        ),
    ),
    Page(
        "/brokers/{address}",
        "page.broker",
        "brokers",
        (
            PagePart("broker", broker, template="facts"),
            over_time.part(over_time.broker),
            PagePart("replication", replication, template="facts"),
            PagePart("slaves", slaves),
            PagePart("drain", drain, template="facts"),
            PagePart("drain-left", drain_left),
            PagePart("bounds", bounds),
            PagePart("stalls", stalls),
            PagePart("changeable", changeable),
            PagePart("settings", settings),
        ),
        links=_links,
    ),
    Page(
        "/brokers/{address}/clients",
        "page.broker-clients",
        "brokers",
        (PagePart("clients", clients, seconds=SEARCH_SECONDS),),
        is_live=False,
    ),
    Page(
        "/name-servers/{address}",
        "page.name-server",
        "brokers",
        (
            PagePart("name-server", name_server, template="facts"),
            PagePart("registered", registered),
            PagePart("bounds", name_server_bounds),
            PagePart("settings", name_server_settings),
        ),
    ),
)
FORMS: Final[Sequence[Form]] = (
    Form("/brokers/{address}/settings", "do.settings", "brokers", _live_fields, _preview_live, _save_live,
         _back, looks_first=True),
    _form("drain", drains.drain_broker),
    _form("cancel", drains.cancel_drain),
    _form("remove", drains.remove_broker, typed=True),
    _form("forget", drains.forget_broker, typed=True),
)  # fmt: skip
