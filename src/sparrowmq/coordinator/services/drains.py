"""Brokers that are being emptied, as people ask for it: no more messages are sent to one, groups read what it
has, and with nothing left it may be removed. Each change has its audit entry.

People only say what they want; the leader of `broker-check` does it, and notes how far it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update

from sparrowmq.coordinator.audit import Actor, record
from sparrowmq.coordinator.cluster.fleet import Broker
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import broker_seen, drain
from sparrowmq.core.errors import RefusedError

MESSAGE_CHARS: Final = 500
GROUPS_SHOWN: Final = 1000
"""Groups with a backlog that are kept, those with most of it."""
MASTER: Final = 0
NOT_REGISTERED: Final = "it is not registered at the name servers"


class State(StrEnum):
    """How far it is."""

    ASKED = "asked"
    REFUSED = "refused"
    """It would leave topics that nothing can be sent to."""
    DRAINING = "draining"
    DRAINED = "drained"
    """Nothing waits there."""
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    REMOVING = "removing"
    """Looked at once more before it is removed."""
    REMOVED = "removed"
    """May be stopped; nobody misses it."""


OVER: Final = frozenset({State.REFUSED, State.CANCELLED})
"""The broker is as it was."""


QUIET: Final = (
    "nothing is left; it counts as drained when it took no messages for settle_seconds (sparrow service show "
    "broker-check)"
)
"""What an empty broker that is not drained yet waits for."""


@dataclass(frozen=True, slots=True)
class Left:
    """What waits on a broker: unread messages by group, and messages that wait for their time.

    `unknown` says what could not be looked at.
    """

    groups: Mapping[str, int] = field(default_factory=dict)
    delayed: int = 0
    unknown: str = ""

    @property
    def nothing(self) -> bool:
        """Whether it is known that nothing waits."""
        return not (self.groups or self.delayed or self.unknown)

    def text(self) -> str:
        """It in words; empty for nothing."""
        parts = []
        if self.groups:
            who = "1 group has" if len(self.groups) == 1 else f"{len(self.groups)} groups have"
            parts.append(f"{sum(self.groups.values())} messages that {who} not read")
        if self.delayed:
            parts.append(f"{self.delayed} messages that wait for their time")
        if self.unknown:
            parts.append(f"what could not be looked at: {self.unknown}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Drain:
    """One broker's. `permission` is what it permitted before; times by the database's clock."""

    broker: str
    state: State
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
    """A broker that was registered once. `error` says why it does not answer, `write_error` why it takes no
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
    """Every broker that was seen, by name and id."""
    query = select(broker_seen).order_by(broker_seen.c.broker, broker_seen.c.broker_id)
    return [Known(*row) for row in connection.execute(query)]


def note(connection: Connection, brokers: Iterable[Broker], write_errors: Mapping[str, str]) -> list[Known]:
    """Note who is registered and answers; gives every broker that was ever seen, as it is now."""
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
    """Have a broker emptied. Raises `RefusedError`: 404 for one nobody saw, 409 when it is under way.

    `forced`: even if there are topics that no other broker takes messages of.
    """
    _need_known(connection, broker)
    before = _one(connection, broker)
    if before is not None and before.state not in OVER:
        raise RefusedError(f"the broker {broker} is {before.state} already", status=409)
    connection.execute(delete(drain).where(drain.c.broker == broker))
    now = int(connection.execute(select(now_ms())).scalar_one())
    connection.execute(
        insert(drain).values(
            broker=broker,
            state=str(State.ASKED),
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
        after={"state": str(State.ASKED), "forced": forced},
    )


def cancel(connection: Connection, broker: str, actor: Actor) -> None:
    """Have messages sent to a broker again. Raises `RefusedError`: 404, 409 by its state."""
    found = _need(connection, broker)
    if found.state in OVER or found.state is State.REMOVED:
        raise RefusedError(
            f"the drain of broker {broker} is over ({found.state}); nothing is left to cancel", status=409
        )
    wanted = State.CANCELLED if found.state is State.ASKED else State.CANCELLING
    _by_person(connection, found, wanted, "broker.cancel", actor)


def remove(connection: Connection, broker: str, actor: Actor) -> None:
    """Have a broker that is drained counted out. Raises `RefusedError`: 404, and 409 with what is left."""
    found = _need(connection, broker)
    if found.state is not State.DRAINED:
        left = found.left.text() or (QUIET if found.measured_at else "it was not looked at yet")
        why = f": {left}" if found.state is State.DRAINING else ""
        raise RefusedError(f"the broker {broker} is {found.state}, not drained{why}", status=409)
    _by_person(connection, found, State.REMOVING, "broker.remove", actor)


def forget(connection: Connection, broker: str, actor: Actor) -> None:
    """Miss a broker no more that is gone with all it had. Raises `RefusedError`: 404, 409 while any of its
    processes answers.
    """
    rows = _need_known(connection, broker)
    if any(not row.error for row in rows):
        raise RefusedError(
            f"the broker {broker} answers; empty it first: sparrow broker drain {broker}", status=409
        )
    was = {"processes": [f"{row.id} at {row.address}" for row in rows], "last_seen": rows[0].last_seen}
    connection.execute(delete(broker_seen).where(broker_seen.c.broker == broker))
    connection.execute(delete(drain).where(drain.c.broker == broker))
    record(connection, actor, "broker.forget", ("broker", broker), before=was)


def move(connection: Connection, before: Drain, state: State, actor: Actor, **values: Any) -> bool:
    """Note how far it is, unless a person changed it meanwhile; whether it was noted."""
    values = {"state": str(state), **values}
    if state is not before.state:
        values["changed_at"] = now_ms()
    mine = (drain.c.broker == before.broker) & (drain.c.state == str(before.state))
    if connection.execute(update(drain).where(mine).values(**values)).rowcount == 0:
        return False
    if state is not before.state:
        told = Actor(actor.name, before.reason, actor.generation)
        after = {"state": str(state), "message": values.get("message", "")}
        was = {"state": str(before.state)}
        record(connection, told, f"broker.{state}", ("broker", before.broker), before=was, after=after)
    return True


def measured(left: Left) -> dict[str, Any]:
    """The values of a row for what was found."""
    most = sorted(left.groups.items(), key=lambda pair: (-pair[1], pair[0]))[:GROUPS_SHOWN]
    data = {"groups": dict(most), "delayed": left.delayed, "unknown": left.unknown[:MESSAGE_CHARS]}
    return {
        "backlog": json.dumps(data, ensure_ascii=False),
        "measured_at": now_ms(),
        "message": left.text()[:MESSAGE_CHARS],
    }


def end(connection: Connection, found: Drain, actor: Actor) -> None:
    """A removed broker is gone: forget it."""
    connection.execute(delete(drain).where(drain.c.broker == found.broker))
    connection.execute(delete(broker_seen).where(broker_seen.c.broker == found.broker))
    record(connection, actor, "broker.gone", ("broker", found.broker), before={"state": str(found.state)})


def _by_person(connection: Connection, found: Drain, wanted: State, action: str, actor: Actor) -> None:
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
        State(row["state"]),
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
