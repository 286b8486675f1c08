"""Routes of brokers: who was seen, who is being emptied, and what is left there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from fastapi import APIRouter
from sqlalchemy import Connection

from sparrowmq.coordinator.api.shared import Answer, Caller, Reason, Who
from sparrowmq.coordinator.audit import Actor
from sparrowmq.coordinator.services import board, brokers, drains
from sparrowmq.coordinator.services.drains import Drain, Known
from sparrowmq.coordinator.users.roles import Right
from sparrowmq.core.errors import RefusedError

router = APIRouter(tags=["brokers"])


class DrainWish(Reason):
    """Why a broker is emptied. `forced`: even if topics are left that nothing can be sent to."""

    forced: bool = False


@router.get("/brokers")
def list_brokers(who: Who) -> list[Answer]:
    """All brokers that were ever seen and not removed, process by process, as the last check found them."""
    who.need(Right.READ)
    return who.read(lambda connection: _views(connection, None))


@router.get("/brokers/{name}")
def one_broker(name: str, who: Who) -> list[Answer]:
    """One broker's processes, with the backlog of each group while it is emptied."""
    who.need(Right.READ)
    found = who.read(lambda connection: _views(connection, name))
    if not found:
        raise RefusedError(f"there is no broker {name[:64]!r}; list all to see them", status=404)
    return found


@router.post("/brokers/{name}/drain")
def drain_broker(name: str, body: DrainWish, who: Who) -> list[Answer]:
    """Have no more messages sent to a broker, and see what groups have not read there."""
    return _wish(who, name, body, lambda found, actor: drains.ask(found, name, body.forced, actor))


@router.post("/brokers/{name}/cancel")
def cancel_drain(name: str, body: Reason, who: Who) -> list[Answer]:
    """Have messages sent to it again, as before."""
    return _wish(who, name, body, lambda found, actor: drains.cancel(found, name, actor))


@router.post("/brokers/{name}/remove")
def remove_broker(name: str, body: Reason, who: Who) -> list[Answer]:
    """Count a broker out that is drained; looked at once more before that."""
    return _wish(who, name, body, lambda found, actor: drains.remove(found, name, actor))


@router.post("/brokers/{name}/forget")
def forget_broker(name: str, body: Reason, who: Who) -> list[Answer]:
    """Miss a broker no more that does not answer, with all it had."""
    return _wish(who, name, body, lambda found, actor: drains.forget(found, name, actor))


def _wish(who: Caller, name: str, body: Reason, work: Callable[[Connection, Actor], None]) -> list[Answer]:
    who.need(Right.OPERATE)
    service = brokers.KIND.name

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
