"""Routes of groups of brokers with a second copy: who is master, which copies are in sync, elections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter
from pydantic import Field
from sqlalchemy import Connection

from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.database.tables import NAME_CHARS
from sparrowmq.coordinator.records.audit import REASON_CHARS_MAX, Actor
from sparrowmq.coordinator.replicas import conditions, table
from sparrowmq.coordinator.replicas.decisions import ElectionTimes, WishKind
from sparrowmq.coordinator.replicas.table import StoredGroup
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.brokers import replica_election
from sparrowmq.coordinator.users.roles import RoleRight

router = APIRouter(tags=["replicas"])


class NewMaster(Reason):
    """Which broker becomes master: its address."""

    target: str = Field(max_length=NAME_CHARS)


class AnyMaster(NewMaster):
    """The same, although messages may be lost; the reason is kept in the audit log."""

    reason: str = Field(min_length=1, max_length=REASON_CHARS_MAX)


@router.get("/replica-groups")
def list_replica_groups(who: Who) -> list[Answer]:
    """The groups of brokers whose master the coordinator elects, with their brokers as they answered last."""
    who.need(RoleRight.READ)
    return who.read(lambda connection: [_view(one) for one in table.every(connection)])


@router.get("/replica-groups/{name}")
def one_replica_group(name: str, who: Who) -> Answer:
    """One of them, with what each broker would lack as master."""
    who.need(RoleRight.READ)
    return who.read(lambda connection: _view(table.one(connection, name)))


@router.post("/replica-groups/{name}/manage")
def manage_replica_group(name: str, body: Reason, who: Who) -> Answer:
    """Elect the master of a group from now on; it keeps the one it has."""
    lease_ms = ElectionTimes().lease_ms
    return _wish(who, name, body, lambda found, actor: table.manage(found, name, lease_ms, actor))


@router.post("/replica-groups/{name}/release")
def release_replica_group(name: str, body: Reason, who: Who) -> Answer:
    """Leave a group alone: its master goes on without a lease, and nobody takes over."""
    return _wish(who, name, body, lambda found, actor: table.ask(found, name, WishKind.RELEASE, "", actor))


@router.post("/replica-groups/{name}/elect")
def elect_replica(name: str, body: NewMaster, who: Who) -> Answer:
    """Make another broker of the in-sync set the master. No acknowledged message is lost."""
    return _wish(
        who, name, body, lambda found, actor: table.ask(found, name, WishKind.ELECT, body.target, actor)
    )


@router.post("/replica-groups/{name}/elect-unclean")
def elect_replica_unclean(name: str, body: AnyMaster, who: Who) -> Answer:
    """Make any broker of the group the master. What it lacks is lost, acknowledged messages too."""
    return _wish(
        who, name, body, lambda found, actor: table.ask(found, name, WishKind.UNCLEAN, body.target, actor)
    )


def _wish(who: ApiCaller, name: str, body: Reason, work: Callable[[Connection, Actor], None]) -> Answer:
    who.need(RoleRight.OPERATE)
    service = replica_election.KIND.name

    def change(connection: Connection, actor: Actor) -> Answer:
        work(connection, actor)
        board.hasten(connection, service)
        return _view(table.one(connection, name))

    answer = who.change(body.reason, change)
    who.context.wake(service)
    return answer


def _view(stored: StoredGroup) -> Answer:
    group, seen, wish = stored.group, stored.seen, stored.wish
    problems = (check(group, seen) for check in (conditions.no_master, conditions.one_copy, conditions.ahead))
    return {
        "name": group.name,
        "cluster": group.cluster,
        "epoch": group.epoch,
        "master": group.master,
        "in_sync": list(group.in_sync),
        "in_sync_number": group.number,
        "lease_ms": group.lease_ms,
        "text": stored.text,
        "changed_at": stored.changed_at,
        "seen_at": stored.seen_at,
        "problems": [text for text in problems if text] if stored.seen_at else [],
        "wish": None
        if wish is None
        else {
            "kind": str(wish.kind),
            "target": wish.target,
            "asked_by": wish.asked_by,
            "reason": wish.reason,
            "asked_at": wish.asked_at,
        },
        "brokers": [_broker(stored, address) for address in sorted(group.members)],
    }


def _broker(stored: StoredGroup, address: str) -> dict[str, Any]:
    group, one = stored.group, stored.seen.get(address, {})
    lacks = conditions.lack(group, stored.seen, address)
    return {
        "address": address,
        "role": one.get("role", ""),
        "state": one.get("state", ""),
        "epoch": one.get("epoch", 0),
        "log_epoch": one.get("log_epoch"),
        "end": one.get("end"),
        "confirmed": one.get("confirmed"),
        "behind": conditions.behind(group, stored.seen, address),
        "in_sync": address in group.in_sync,
        "error": one.get("error", "") or one.get("trouble", ""),
        "would_lose": {
            "bytes": lacks.bytes,
            "acknowledged_bytes": lacks.acknowledged,
            "text": lacks.text,
        },
    }
