"""The lease table: each rule is one conditional statement, so that the database resolves races.

Every function takes the connection of a writing transaction. Times in rows are the database's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, and_, case, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import lease
from sparrowmq.coordinator.leases.rules import Owner
from sparrowmq.core.errors import LeaseLostError


@dataclass(frozen=True, slots=True)
class LeaseRow:
    """One row, for display. `live` is whether the owner still has the lease, by the database's clock."""

    service: str
    owner_id: str
    owner_label: str
    epoch: int
    acquired_at: int
    renewed_at: int
    expires_at: int
    live: bool


def ensure(database: Database, service: str) -> None:
    """Insert the service's row if it does not exist; a concurrent insert is accepted (pmq:L8)."""
    with database.write() as connection:
        if connection.execute(select(lease.c.epoch).where(lease.c.service == service)).first() is not None:
            return
        try:
            with connection.begin_nested():
                connection.execute(insert(lease).values(service=service))
        except IntegrityError:
            pass  # another coordinator was faster


def claim(connection: Connection, service: str, owner: Owner, ttl_ms: int) -> int | None:
    """Take the lease if no other process has it, and raise the epoch; returns the epoch, None if another
    process was faster.

    The caller knows of no lease of its own: a lease in its name comes from a claim whose answer was lost, and
    is replaced. An owner that handed the service over cannot claim it until its block ends.
    """
    mine = lease.c.service == service
    free = or_(lease.c.owner_id.in_(("", owner.id)), lease.c.expires_at <= now_ms())
    open_to_me = or_(lease.c.blocked_owner != owner.id, lease.c.blocked_until <= now_ms())
    changed = connection.execute(
        update(lease)
        .where(and_(mine, free, open_to_me))
        .values(
            owner_id=owner.id,
            owner_label=owner.label[:200],
            epoch=lease.c.epoch + 1,
            acquired_at=now_ms(),
            renewed_at=now_ms(),
            expires_at=now_ms() + ttl_ms,
        )
    )
    if changed.rowcount != 1:
        return None
    return int(connection.execute(select(lease.c.epoch).where(mine)).scalar_one())


def renew(connection: Connection, service: str, owner: Owner, epoch: int, ttl_ms: int) -> bool:
    """Extend the lease; False if it belongs to another process or has expired: stop now."""
    changed = connection.execute(
        update(lease)
        .where(_held(service, owner.id, epoch), lease.c.expires_at > now_ms())
        .values(renewed_at=now_ms(), expires_at=now_ms() + ttl_ms)
    )
    return changed.rowcount == 1


def release(connection: Connection, service: str, owner: Owner, epoch: int) -> bool:
    """Release the lease, so that the next leader need not wait for its end (pmq:L5)."""
    changed = connection.execute(
        update(lease).where(_held(service, owner.id, epoch)).values(owner_id="", expires_at=now_ms())
    )
    return changed.rowcount == 1


def hand_over(connection: Connection, service: str, block_ms: int) -> LeaseRow | None:
    """Take the lease from its owner and block that owner for `block_ms`; returns the previous row, None if no
    process has the lease.

    From now on, writes of the old owner are rejected.
    """
    before = row(connection, service, lock=True)
    if before is None or not before.live:
        return None
    connection.execute(
        update(lease)
        .where(_held(service, before.owner_id, before.epoch))
        .values(
            owner_id="",
            epoch=lease.c.epoch + 1,
            expires_at=now_ms(),
            blocked_owner=before.owner_id,
            blocked_until=now_ms() + block_ms,
        )
    )
    return before


def lift(connection: Connection, service: str, epoch: int) -> None:
    """Free the lease with the higher one of `epoch` and its own: the next leader gets an even higher one.

    For the leader itself, after `guard` in the same transaction.
    """
    higher = case((lease.c.epoch > epoch, lease.c.epoch), else_=epoch)
    connection.execute(
        update(lease).where(lease.c.service == service).values(owner_id="", epoch=higher, expires_at=now_ms())
    )


def guard(connection: Connection, service: str, owner: Owner, epoch: int) -> None:
    """Ensure that the transaction belongs to the leader: first statement of everything a leader writes
    (pmq:L1).

    The row stays locked until the transaction ends, so no other process can become leader in the middle of
    it. Raises `LeaseLostError` when the lease is no longer this owner's in this epoch, or has run out.
    """
    found = row(connection, service, lock=True)
    if found is None or found.owner_id != owner.id or found.epoch != epoch or not found.live:
        now = "nobody" if found is None or not found.live else f"{found.owner_label} in epoch {found.epoch}"
        raise LeaseLostError(
            f"the lease of {service} in epoch {epoch} is lost and {now} holds it now; nothing was written",
            what=service,
            value=found.epoch if found is not None and found.live else None,
        )


def row(connection: Connection, service: str, *, lock: bool = False) -> LeaseRow | None:
    """The service's row; with `lock` it cannot change before the transaction ends."""
    query = _query().where(lease.c.service == service)
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    return None if found is None else _row(found)


def rows(connection: Connection) -> list[LeaseRow]:
    """All rows, by service."""
    return [_row(found) for found in connection.execute(_query().order_by(lease.c.service)).mappings()]


def _query() -> Select[Any]:
    live = and_(lease.c.owner_id != "", lease.c.expires_at > now_ms())
    return select(lease, live.label("live"))


def _row(found: RowMapping) -> LeaseRow:
    names = ("service", "owner_id", "owner_label", "epoch", "acquired_at", "renewed_at", "expires_at")
    values: dict[str, Any] = {name: found[name] for name in names}
    return LeaseRow(**(values | {"live": bool(found["live"])}))


def _held(service: str, owner_id: str, epoch: int) -> ColumnElement[bool]:
    return and_(lease.c.service == service, lease.c.owner_id == owner_id, lease.c.epoch == epoch)
