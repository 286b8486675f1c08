"""Routes of brokers: those that were seen, those that are being drained, and the messages left there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from fastapi import APIRouter
from sqlalchemy import Connection

from sparrowmq.coordinator.api.shared import Answer, ApiCaller, Reason, Who
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.base import board
from sparrowmq.coordinator.services.brokers import broker_check, drains
from sparrowmq.coordinator.services.brokers.drains import Drain, Known
from sparrowmq.coordinator.users.roles import RoleRight
from sparrowmq.core.errors import RefusedError

router = APIRouter(tags=["brokers"])


class DrainWish(Reason):
    """Why a broker is drained. With `forced`, even if some topics then have no broker that
    accepts messages.
    """

    forced: bool = False


@router.get("/brokers")
def list_brokers(who: Who) -> list[Answer]:
    """All brokers that were seen and not removed, with each process as the last check found it."""
    who.need(RoleRight.READ)
    return who.read(lambda connection: _views(connection, None))


@router.get("/brokers/{name}")
def one_broker(name: str, who: Who) -> list[Answer]:
    """One broker's processes, with the backlog of each group while it is drained."""
    who.need(RoleRight.READ)
    found = who.read(lambda connection: _views(connection, name))
    if not found:
        raise RefusedError(f"there is no broker {name[:64]!r}; list all to see them", status=404)
    return found


@router.post("/brokers/{name}/drain")
def drain_broker(name: str, body: DrainWish, who: Who) -> list[Answer]:
    """Drain a broker: stop sends to it, and list the messages that groups have not read there."""
    return _wish(who, name, body, lambda found, actor: drains.ask(found, name, body.forced, actor))


@router.post("/brokers/{name}/cancel")
def cancel_drain(name: str, body: Reason, who: Who) -> list[Answer]:
    """End the drain of a broker: allow sends to it again."""
    return _wish(who, name, body, lambda found, actor: drains.cancel(found, name, actor))


@router.post("/brokers/{name}/remove")
def remove_broker(name: str, body: Reason, who: Who) -> list[Answer]:
    """Remove a drained broker, after one more check."""
    return _wish(who, name, body, lambda found, actor: drains.remove(found, name, actor))


@router.post("/brokers/{name}/forget")
def forget_broker(name: str, body: Reason, who: Who) -> list[Answer]:
    """Forget a broker that does not answer, with everything known about it."""
    return _wish(who, name, body, lambda found, actor: drains.forget(found, name, actor))


def _wish(who: ApiCaller, name: str, body: Reason, work: Callable[[Connection, Actor], None]) -> list[Answer]:
    who.need(RoleRight.OPERATE)
    service = broker_check.KIND.name

    def change(connection: Connection, actor: Actor) -> list[Answer]:
        work(connection, actor)
        board.hasten(connection, service)
        return _views(connection, name)

    answer = who.change(body.reason, change)
    who.context.wake(service)
    return answer


def _views(connection: Connection, name: str | None) -> list[Answer]:
    under_way = drains.all_drains(connection)
    return [
        _view(row, under_way.get(row.broker), whole=name is not None)
        for row in drains.known(connection)
        if name in (None, row.broker)
    ]


def _view(row: Known, drain: Drain | None, *, whole: bool) -> Answer:
    found = asdict(row) | {"drain": None}
    if drain is not None:
        found["drain"] = asdict(drain) | {"state": str(drain.state), "left": _left(drain, whole=whole)}
    return found


def _left(drain: Drain, *, whole: bool) -> Answer:
    left = drain.left
    sums = {"messages": sum(left.groups.values()), "delayed": left.delayed, "unknown": left.unknown}
    return sums | ({"groups": dict(left.groups)} if whole else {})
