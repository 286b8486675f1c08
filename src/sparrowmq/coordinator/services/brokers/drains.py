"""Drains of brokers: no more messages are sent to the broker, groups read the remaining ones, and then the
broker may be removed. Each change has its audit entry.

Users only request a drain; the leader of `broker-check` carries it out and records its progress.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, select, update

from sparrowmq.coordinator.cluster.fleet import FleetBroker
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import broker_seen, drain
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.core.errors import RefusedError

MESSAGE_CHARS: Final = 500
GROUPS_SHOWN: Final = 1000
"""Maximum number of groups with a backlog that are stored: those with the largest."""
MASTER: Final = 0
NOT_REGISTERED: Final = "it is not registered at the name servers"


class DrainState(StrEnum):
    """State of a drain."""

    ASKED = "asked"
    REFUSED = "refused"
    """It would leave topics without a writable queue."""
    DRAINING = "draining"
    DRAINED = "drained"
    """Nothing is left there."""
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    REMOVING = "removing"
    """Checked once more before it is removed."""
    REMOVED = "removed"
    """May be stopped; nothing needs it."""


OVER: Final = frozenset({DrainState.REFUSED, DrainState.CANCELLED})
"""The broker's permission is restored."""


QUIET: Final = (
    "nothing is left; it counts as drained once it has received no messages for settle_seconds (sparrow "
    "service show broker-check)"
)
"""Why an empty broker is not drained yet."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is left on a broker: unread messages by group, and delayed messages.

    `unknown` lists what could not be queried.
    """

    groups: Mapping[str, int] = field(default_factory=dict)
    delayed: int = 0
    unknown: str = ""

    @property
    def nothing(self) -> bool:
        """Whether it is certain that nothing is left."""
        return not (self.groups or self.delayed or self.unknown)

    def text(self) -> str:
        """The backlog in words; empty if there is none."""
        parts = []
        if self.groups:
            who = "1 group has" if len(self.groups) == 1 else f"{len(self.groups)} groups have"
            parts.append(f"{sum(self.groups.values())} messages that {who} not yet read")
        if self.delayed:
            parts.append(f"{self.delayed} delayed messages")
        if self.unknown:
            parts.append(f"could not be checked: {self.unknown}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Drain:
    """The drain of one broker. `permission` is its previous permission; times by the database's clock."""

    broker: str
    state: DrainState
    permission: int
    forced: bool
    asked_by: str
    reason: str
    asked_at: int
    changed_at: int
    measured_at: int
    left: Left
    message: str


@dataclass(frozen=True, slots=True)
class Known:
    """A broker that was registered. `error` says why it does not answer, `write_error` why it does not accept
    messages.
    """

    broker: str
    id: int
    cluster: str
    address: str
    first_seen: int
    last_seen: int
    checked_at: int
    error: str
    write_error: str


def all_drains(connection: Connection) -> dict[str, Drain]:
    """All drains, by broker."""
    rows = connection.execute(select(drain).order_by(drain.c.broker)).mappings()
    return {row["broker"]: _drain(row) for row in rows}


def known(connection: Connection) -> list[Known]:
    """Every known broker, by name and id."""
    query = select(broker_seen).order_by(broker_seen.c.broker, broker_seen.c.broker_id)
    return [Known(*row) for row in connection.execute(query)]


def note(
    connection: Connection, brokers: Iterable[FleetBroker], write_errors: Mapping[str, str]
) -> list[Known]:
    """Record which brokers are registered and answer; returns every known broker in its current state."""
    now = int(connection.execute(select(now_ms())).scalar_one())
    rows = {(row.broker, row.id): row for row in known(connection)}
    for one in brokers:
        found = rows.get((one.name, one.id))
        rows[(one.name, one.id)] = Known(
            one.name,
            one.id,
            one.cluster,
            one.address,
            now if found is None else found.first_seen,
            (0 if found is None else found.last_seen) if one.error else now,
            now,
            one.error[:MESSAGE_CHARS],
            write_errors.get(one.name, "")[:MESSAGE_CHARS] if one.id == MASTER else "",
        )
        values = dict(zip(broker_seen.c.keys(), astuple(rows[(one.name, one.id)]), strict=True))
        mine = (broker_seen.c.broker == one.name) & (broker_seen.c.broker_id == one.id)
        change = insert(broker_seen) if found is None else update(broker_seen).where(mine)
        connection.execute(change.values(**values))
    gone = [row for row in rows.values() if row.checked_at != now]
    for row in gone:
        mine = (broker_seen.c.broker == row.broker) & (broker_seen.c.broker_id == row.id)
        values = {"checked_at": now, "error": NOT_REGISTERED, "write_error": ""}
        connection.execute(update(broker_seen).where(mine).values(**values))
        rows[(row.broker, row.id)] = replace(row, **values)
    return [row for _, row in sorted(rows.items())]


def ask(connection: Connection, broker: str, forced: bool, actor: Actor) -> None:
    """Drain a broker.

    Raises `RefusedError`: 404 for an unknown broker, 409 during a drain. `forced`: even if some topics are
    writable at no other broker.
    """
    _need_known(connection, broker)
    before = _one(connection, broker)
    if before is not None and before.state not in OVER:
        raise RefusedError(f"the broker {broker} is already {before.state}", status=409)
    connection.execute(delete(drain).where(drain.c.broker == broker))
    now = int(connection.execute(select(now_ms())).scalar_one())
    if before is not None:
        now = max(now, before.changed_at + 1)  # `move` tells the two drains apart by it
    connection.execute(
        insert(drain).values(
            broker=broker,
            state=str(DrainState.ASKED),
            forced=forced,
            asked_by=actor.name[:64],
            reason=actor.reason[:MESSAGE_CHARS],
            asked_at=now,
            changed_at=now,
            backlog="{}",
        )
    )
    was = None if before is None else {"state": str(before.state)}
    record(
        connection,
        actor,
        "broker.drain",
        ("broker", broker),
        before=was,
        after={"state": str(DrainState.ASKED), "forced": forced},
    )


def cancel(connection: Connection, broker: str, actor: Actor) -> None:
    """Make a broker writable again. Raises `RefusedError`: 404, 409 in the wrong state."""
    found = _need(connection, broker)
    if found.state in OVER or found.state is DrainState.REMOVED:
        raise RefusedError(
            f"the drain of broker {broker} has ended ({found.state}); there is nothing to cancel", status=409
        )
    wanted = DrainState.CANCELLED if found.state is DrainState.ASKED else DrainState.CANCELLING
    _by_person(connection, found, wanted, "broker.cancel", actor)


def remove(connection: Connection, broker: str, actor: Actor) -> None:
    """Remove a drained broker. Raises `RefusedError`: 404, and 409 with the remaining backlog."""
    found = _need(connection, broker)
    if found.state is not DrainState.DRAINED:
        left = found.left.text() or (QUIET if found.measured_at else "it has not been checked yet")
        why = f": {left}" if found.state is DrainState.DRAINING else ""
        raise RefusedError(f"the broker {broker} is {found.state}, not drained{why}", status=409)
    _by_person(connection, found, DrainState.REMOVING, "broker.remove", actor)


def forget(connection: Connection, broker: str, actor: Actor) -> None:
    """Forget a broker that is lost with all its data. Raises `RefusedError`: 404, 409 while any of its
    processes answers.
    """
    rows = _need_known(connection, broker)
    if any(not row.error for row in rows):
        raise RefusedError(
            f"the broker {broker} still answers; drain it first: sparrow broker drain {broker}", status=409
        )
    was = {"processes": [f"{row.id} at {row.address}" for row in rows], "last_seen": rows[0].last_seen}
    connection.execute(delete(broker_seen).where(broker_seen.c.broker == broker))
    connection.execute(delete(drain).where(drain.c.broker == broker))
    record(connection, actor, "broker.forget", ("broker", broker), before=was)


def move(connection: Connection, before: Drain, state: DrainState, actor: Actor, **values: Any) -> bool:
    """Record the progress, unless a person changed the drain in the meantime; returns whether it was
    recorded.
    """
    values = {"state": str(state), **values}
    if state is not before.state:
        values["changed_at"] = now_ms()
    if connection.execute(update(drain).where(_unchanged(before)).values(**values)).rowcount == 0:
        return False
    if state is not before.state:
        told = Actor(actor.name, before.reason, actor.generation)
        after = {"state": str(state), "message": values.get("message", "")}
        was = {"state": str(before.state)}
        record(connection, told, f"broker.{state}", ("broker", before.broker), before=was, after=after)
    return True


def measured(left: Left) -> dict[str, Any]:
    """The column values for a backlog."""
    most = sorted(left.groups.items(), key=lambda pair: (-pair[1], pair[0]))[:GROUPS_SHOWN]
    data = {"groups": dict(most), "delayed": left.delayed, "unknown": left.unknown[:MESSAGE_CHARS]}
    return {
        "backlog": json.dumps(data, ensure_ascii=False),
        "measured_at": now_ms(),
        "message": left.text()[:MESSAGE_CHARS],
    }


def end(connection: Connection, found: Drain, actor: Actor) -> None:
    """A removed broker has disappeared: forget it, unless a person did so in the meantime."""
    if connection.execute(delete(drain).where(_unchanged(found))).rowcount == 0:
        return
    connection.execute(delete(broker_seen).where(broker_seen.c.broker == found.broker))
    record(connection, actor, "broker.gone", ("broker", found.broker), before={"state": str(found.state)})


def _unchanged(before: Drain) -> ColumnElement[bool]:
    """Whether the row is still the drain that was read."""
    of_it = (drain.c.broker == before.broker, drain.c.state == str(before.state))
    return and_(*of_it, drain.c.changed_at == before.changed_at)


def _by_person(connection: Connection, found: Drain, wanted: DrainState, action: str, actor: Actor) -> None:
    connection.execute(
        update(drain)
        .where(drain.c.broker == found.broker)
        .values(state=str(wanted), changed_at=now_ms(), message="")
    )
    was, becomes = {"state": str(found.state)}, {"state": str(wanted)}
    record(connection, actor, action, ("broker", found.broker), before=was, after=becomes)


def _need_known(connection: Connection, broker: str) -> list[Known]:
    rows = known(connection)
    mine = [row for row in rows if row.broker == broker]
    if not mine:
        names = ", ".join(dict.fromkeys(row.broker for row in rows)) or "none yet"
        raise RefusedError(f"there is no broker {broker[:64]!r}; there are {names}", status=404)
    return mine


def _need(connection: Connection, broker: str) -> Drain:
    found = _one(connection, broker)
    if found is None:
        _need_known(connection, broker)
        raise RefusedError(f"the broker {broker} is not being drained", status=409)
    return found


def _one(connection: Connection, broker: str) -> Drain | None:
    query = select(drain).where(drain.c.broker == broker).with_for_update()
    row = connection.execute(query).mappings().first()
    return None if row is None else _drain(row)


def _drain(row: Any) -> Drain:
    backlog = json.loads(row["backlog"])
    left = Left(backlog.get("groups", {}), backlog.get("delayed", 0), backlog.get("unknown", ""))
    return Drain(
        row["broker"],
        DrainState(row["state"]),
        row["permission"],
        bool(row["forced"]),
        row["asked_by"],
        row["reason"],
        row["asked_at"],
        row["changed_at"],
        row["measured_at"],
        left,
        row["message"],
    )
