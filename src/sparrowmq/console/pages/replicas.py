"""Groups of brokers with a second copy: who is the master, who is in sync, elections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sparrowmq.console import shown
from sparrowmq.console.pages.columns import CHANGES, audit_rows
from sparrowmq.console.tables import Column
from sparrowmq.console.visits import Field, Form, Page, PagePart, Preview, Values, Visit, at
from sparrowmq.coordinator.api import brokers as known_brokers
from sparrowmq.coordinator.api import replicas as elections
from sparrowmq.coordinator.api import watching
from sparrowmq.coordinator.api.replicas import AnyMaster, NewMaster
from sparrowmq.coordinator.api.shared import Answer, Reason
from sparrowmq.coordinator.replicas.decisions import MASTER, SERVING
from sparrowmq.coordinator.replicas.table import OBJECT
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

ELECTIONS_SHOWN: Final = 20
GROUPS: Final = (
    Column("name", link=lambda row: at("replicas", row["name"])),
    Column("state", "state", filtered=True),
    Column("master"),
    Column("epoch", "number"),
    Column("in_sync", "list"),
    Column("copies", "number"),
    Column("changed_ms", "time"),
    Column("text"),
)
UNELECTED: Final = (
    Column("name", link=lambda row: row["link"]),
    Column("copies", "number"),
)
COPIES: Final = (
    Column("address", link=lambda row: at("brokers", row["address"])),
    Column("role", "state"),
    Column("state", "state"),
    Column("set", "state"),
    Column("epoch", "number"),
    Column("log_epoch", "number"),
    Column("behind_bytes", "bytes"),
    Column("loses", "long"),
    Column("error", "long"),
)


def state_of(group: Answer) -> str | None:
    """The state of a group as a word of the catalogue; None if its brokers were not asked yet. Pure."""
    if not group["seen_at"]:
        return None
    serves = any(
        one["address"] == group["master"] and one["state"] == SERVING and one["epoch"] == group["epoch"]
        for one in group["brokers"]
    )
    if not serves:
        return "masterless"
    return "two-copies" if len(group["in_sync"]) > 1 else "one-copy"


def loses(visit: Visit, group: Answer, one: Mapping[str, Any]) -> str:
    """What would be lost if this broker became master now."""
    lost, words = one["would_lose"], visit.words
    if one["address"] == group["master"]:
        return words("replicas.is-master")
    if lost["bytes"] is None:
        return words("replicas.loses-unknown")
    missing, acknowledged = shown.size(lost["bytes"]), shown.size(lost["acknowledged_bytes"])
    if one["in_sync"] and not lost["acknowledged_bytes"]:
        return words("replicas.loses-nothing", bytes=missing)
    epochs = {other["address"]: other["log_epoch"] for other in group["brokers"]}
    master_epoch, epoch = epochs.get(group["master"]), one["log_epoch"]
    parted = master_epoch is not None and epoch is not None and epoch < master_epoch
    key = "replicas.loses-at-least" if parted else "replicas.loses"
    return words(key, bytes=missing, acknowledged=acknowledged)


async def groups(visit: Visit) -> Values:
    """The groups whose master is elected; those without a master first."""
    rows = [_row(one) for one in await _groups(visit)]
    rows = sorted(rows, key=lambda row: (row["state"] != "masterless", row["name"]))
    return {"table": await visit.table("replicas", GROUPS, rows, empty="empty.replicas")}


def _row(one: Answer) -> dict[str, Any]:
    return one | {
        "state": state_of(one),
        "master": one["master"] or "–",
        "copies": len(one["brokers"]),
        "changed_ms": one["changed_at"],
        "text": one["text"] or "–",
    }


async def _groups(visit: Visit) -> Sequence[Answer]:
    return await visit.once("groups", lambda: visit.call(elections.list_replica_groups, visit.caller))


async def unelected(visit: Visit) -> Values:
    """Brokers whose master nobody elects, with the way to change that."""
    elected = {one["name"] for one in await _groups(visit)}
    known = Counter(one["broker"] for one in await visit.call(known_brokers.list_brokers, visit.caller))
    may = visit.may(RoleRight.OPERATE)
    rows = [
        {"name": name, "copies": count, "link": at("replicas", name, "manage") if may else ""}
        for name, count in known.items()
        if name not in elected
    ]
    empty = "empty.unelected" if known else "empty.brokers"
    return {"table": await visit.table("unelected", UNELECTED, rows, sort="name", empty=empty)}


async def _group(visit: Visit) -> Answer:
    name = visit.named("broker")
    return await visit.once("group", lambda: visit.call(elections.one_replica_group, name, visit.caller))


async def group(visit: Visit) -> Values:
    """The master, the in-sync set, what was decided last and why, and what a user asked for."""
    found = await _group(visit)
    facts: list[tuple[str, str, Any]] = [
        ("state", "state", state_of(found)),
        ("chosen", "text", found["master"] or "–"),
        ("epoch", "number", found["epoch"]),
        ("in_sync", "list", found["in_sync"] or ["–"]),
        ("set_number", "number", found["in_sync_number"]),
        ("lease", "span", found["lease_ms"]),
        ("changed_ms", "time", found["changed_at"]),
        ("text", "text", found["text"] or "–"),
    ]
    notes = list(found["problems"])
    if found["wish"] is not None:
        notes.append(_wish(visit, found["wish"]))
    return {"facts": facts, "looked_ms": found["seen_at"], "notes": notes}


def _wish(visit: Visit, wish: Mapping[str, Any]) -> str:
    words = {"target": wish["target"], "who": wish["asked_by"], "reason": wish["reason"] or "–"}
    return visit.words(f"replicas.wish-{wish['kind']}", **words)


async def copies(visit: Visit) -> Values:
    """The brokers as they answered last, and what each would lack as master."""
    found = await _group(visit)
    rows = [
        one
        | {
            "role": None if not one["role"] else "master" if one["role"] == MASTER else "slave",
            "state": one["state"] or None,
            "set": "in-sync" if one["in_sync"] else "lags",
            "behind_bytes": one["behind"],
            "loses": loses(visit, found, one),
            "error": one["error"] or "–",
        }
        for one in found["brokers"]
    ]
    return {"table": await visit.table("copies", COPIES, rows, sort="address", empty="empty.copies")}


async def changes(visit: Visit) -> Values:
    """The last elections and changes of the in-sync set, from the audit log."""
    found = await visit.call(
        watching.list_audit,
        visit.caller,
        kind=OBJECT,
        object=visit.named("broker"),
        count=ELECTIONS_SHOWN,
    )
    table = await visit.table("elections", CHANGES, audit_rows(found), empty="empty.audit")
    return {"table": table}


def _links(visit: Visit) -> Sequence[tuple[str, str]]:
    if not visit.may(RoleRight.OPERATE):
        return []
    base = at("replicas", visit.named("broker"))
    return [(f"do.{name}", f"{base}/{name}") for name in ("elect", "elect-unclean", "release")]


# Changes


def _stamp(found: Answer, target: str = "") -> str:
    return repr((found["epoch"], found["in_sync_number"], found["master"], target))


def _others(found: Answer, *, in_sync: bool) -> list[Mapping[str, Any]]:
    """The brokers that may be chosen."""
    return [
        one
        for one in found["brokers"]
        if one["address"] != found["master"] and (one["in_sync"] or not in_sync)
    ]


def _target(visit: Visit, given: Mapping[str, str], others: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The chosen broker. Raises `RefusedError` (422)."""
    if not others:
        raise RefusedError(visit.words("replicas.nobody"), status=422)
    for one in others:
        if one["address"] == given.get("target", others[0]["address"]):
            return one
    raise RefusedError(visit.words("replicas.choose"), status=422)


def _election(name: str, *, unclean: bool) -> Form:
    """The form that makes another broker the master; with `unclean` also one that lacks messages."""

    async def fields(visit: Visit) -> Sequence[Field]:
        found = await _group(visit)
        choices = [(one["address"], one["address"]) for one in _others(found, in_sync=not unclean)]
        first = choices[0][0] if choices else ""
        return [Field("target", "form.new-master", "select", first, choices)]

    async def preview(visit: Visit, given: Mapping[str, str]) -> Preview:
        found = await _group(visit)
        one = _target(visit, given, _others(found, in_sync=not unclean))
        target, master = one["address"], found["master"] or "–"
        says = [visit.words(f"form.{name}", target=target, master=master)]
        says.append(visit.words("form.elect-loses", target=target, loses=loses(visit, found, one)))
        if unclean:
            says.append(visit.words("form.elect-for-good"))
        if one["error"]:
            says.append(visit.words("form.elect-silent", target=target, why=one["error"]))
        return Preview(says, stamp=_stamp(found, target))

    async def act(visit: Visit, given: Mapping[str, str], reason: str) -> str:
        broker, target = visit.named("broker"), given.get("target", "")
        if unclean:
            body = AnyMaster(target=target, reason=reason)
            await visit.call(elections.elect_replica_unclean, broker, body, visit.caller)
        else:
            await visit.call(
                elections.elect_replica, broker, NewMaster(target=target, reason=reason), visit.caller
            )
        return "elect"

    typed = _name if unclean else None
    return Form(f"/replicas/{{broker}}/{name}", f"do.{name}", "replicas", fields, preview, act, _back, typed)


def _plain(name: str, route: Callable[..., Answer], look: Callable[[Visit], Any]) -> Form:
    """A form without fields; `look` gives what its preview must be made again for."""

    async def fields(visit: Visit) -> Sequence[Field]:
        return ()

    async def preview(visit: Visit, given: Mapping[str, str]) -> Preview:
        stamp = await look(visit)
        return Preview([visit.words(f"form.{name}", name=visit.named("broker"))], stamp=stamp)

    async def act(visit: Visit, given: Mapping[str, str], reason: str) -> str:
        await visit.call(route, visit.named("broker"), Reason(reason=reason), visit.caller)
        return name

    back = _back if name == "release" else _back_to_all
    return Form(f"/replicas/{{broker}}/{name}", f"do.{name}", "replicas", fields, preview, act, back)


async def _present(visit: Visit) -> str:
    return _stamp(await _group(visit))


async def _absent(visit: Visit) -> str:
    """Raises `RefusedError` (409) if its master is elected already."""
    name = visit.named("broker")
    if any(one["name"] == name for one in await _groups(visit)):
        raise RefusedError(visit.words("replicas.managed", name=name), status=409)
    return name


def _name(visit: Visit) -> str:
    return visit.named("broker")


def _back(visit: Visit) -> str:
    return at("replicas", visit.named("broker"))


def _back_to_all(visit: Visit) -> str:
    return "/replicas"


PAGES: Final = (
    Page(
        "/replicas",
        "page.replicas",
        "replicas",
        (PagePart("replicas", groups), PagePart("unelected", unelected)),
    ),
    Page(
        "/replicas/{broker}",
        "page.replica-group",
        "replicas",
        (
            PagePart("replica-group", group, template="facts"),
            PagePart("copies", copies),
            PagePart("elections", changes),
        ),
        links=_links,
    ),
)
FORMS: Final[Sequence[Form]] = (
    _election("elect", unclean=False),
    _election("elect-unclean", unclean=True),
    _plain("manage", elections.manage_replica_group, _absent),
    _plain("release", elections.release_replica_group, _present),
)
