"""Groups of brokers in the database, people's requests, and the audit entries of both.

People only ask; the leader of `replica-election` decides, and is the only one that changes a group.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import broker_seen, replica_group, replica_wish
from sparrowmq.coordinator.database.texts import fitting
from sparrowmq.coordinator.records.audit import Actor, record
from sparrowmq.coordinator.replicas.decisions import GroupChange, ReplicaGroup, ReplicaMember, WishKind
from sparrowmq.core.errors import CoordinatorError, RefusedError

TEXT_CHARS: Final = 500
GROUPS_MAX: Final = 200
"""Maximum number of groups whose master is elected: each of their brokers is asked twice a second."""
OBJECT: Final = "replica-group"


@dataclass(frozen=True, slots=True)
class StoredWish:
    """What a person asked for."""

    kind: WishKind
    target: str
    asked_by: str
    reason: str
    asked_at: int


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group's rows. `seen` has its brokers' last answers, as `group_watch.seen` writes them."""

    group: ReplicaGroup
    text: str
    changed_at: int
    seen: Mapping[str, Any]
    seen_at: int
    wish: StoredWish | None


def every(connection: Connection) -> list[StoredGroup]:
    """All groups, by name."""
    wishes = {row["name"]: _wish(row) for row in connection.execute(select(replica_wish)).mappings()}
    rows = connection.execute(select(replica_group).order_by(replica_group.c.name)).mappings()
    return [_stored(row, wishes.get(row["name"])) for row in rows]


def one(connection: Connection, name: str) -> StoredGroup:
    """A group. Raises `RefusedError` (404)."""
    row = connection.execute(select(replica_group).where(replica_group.c.name == name)).mappings().first()
    if row is None:
        raise RefusedError(
            f"the brokers {name[:64]!r} are not managed; start with: sparrow replicas manage {name[:64]}",
            status=404,
        )
    wish = connection.execute(select(replica_wish).where(replica_wish.c.name == name)).mappings().first()
    return _stored(row, None if wish is None else _wish(wish))


def manage(connection: Connection, name: str, lease_ms: int, actor: Actor) -> None:
    """Elect the master of a group from now on. Raises `RefusedError`: 404 for unknown brokers, 409 if the
    group is already managed or there are too many groups.
    """
    known = connection.execute(select(broker_seen.c.broker).distinct().order_by(broker_seen.c.broker))
    names = list(known.scalars())
    if name not in names:
        told = ", ".join(names[:20]) or "none yet"
        raise RefusedError(f"there is no broker {name[:64]!r}; there are {told}", status=404)
    if len(every(connection)) >= GROUPS_MAX:
        raise RefusedError(f"{GROUPS_MAX} groups are managed, which is the limit", status=409)
    group = ReplicaGroup(name, lease_ms=lease_ms)
    values = {"name": name, "body": _body(group), "seen": "{}", "changed_at": now_ms()}
    try:
        with connection.begin_nested():
            connection.execute(insert(replica_group).values(**values))
    except IntegrityError:
        raise RefusedError(f"the brokers {name} are managed already", status=409) from None
    record(connection, actor, "replicas.manage", (OBJECT, name))


def ask(connection: Connection, name: str, kind: WishKind, target: str, actor: Actor) -> None:
    """Request a master, or the release of the group. A new request replaces an older one.

    Raises `RefusedError`: 404 for an unknown group or broker, 409 for a broker that is not in sync, 422 for
    an unclean election without a reason.
    """
    found = one(connection, name)
    group = found.group
    if kind is not WishKind.RELEASE:
        if target not in group.members:
            told = ", ".join(sorted(group.members)) or "none yet"
            raise RefusedError(f"{target[:64]!r} is not a broker of {name}; there are {told}", status=404)
        if kind is WishKind.ELECT and target not in group.in_sync:
            raise RefusedError(
                f"{target} is not in sync, so it may lack acknowledged messages; in sync are "
                f"{', '.join(group.in_sync) or 'none'}. See what would be lost: sparrow replicas list {name}"
                "; to accept that: sparrow replicas elect --unclean --reason TEXT",
                status=409,
            )
        if kind is WishKind.UNCLEAN and not actor.reason.strip():
            raise RefusedError("an unclean election may lose messages and needs a reason", status=422)
    connection.execute(delete(replica_wish).where(replica_wish.c.name == name))
    connection.execute(
        insert(replica_wish).values(
            name=name,
            kind=str(kind),
            target=target,
            asked_by=actor.name[:100],
            reason=fitting(actor.reason, TEXT_CHARS),
            asked_at=now_ms(),
        )
    )
    before = {"master": group.master, "epoch": group.epoch, "in_sync": list(group.in_sync)}
    record(connection, actor, f"replicas.{kind}", (OBJECT, name), before=before, after={"target": target})


def save(connection: Connection, before: ReplicaGroup, change: GroupChange, actor: Actor) -> None:
    """Write a change; for the leader only. Raises `CoordinatorError` if the group has changed meanwhile."""
    same = (
        (replica_group.c.name == before.name)
        & (replica_group.c.epoch == before.epoch)
        & (replica_group.c.number == before.number)
    )
    after = change.group
    values = {
        "epoch": after.epoch,
        "number": after.number,
        "body": _body(after),
        "text": fitting(change.text, TEXT_CHARS),
        "changed_at": now_ms(),
    }
    if connection.execute(update(replica_group).where(same).values(**values)).rowcount != 1:
        raise CoordinatorError(
            f"the group {before.name} is not in epoch {before.epoch} with set {before.number} any more"
        )
    if change.ends_wish:
        forget_wish(connection, before.name)
    record(
        connection,
        actor,
        f"replicas.{change.kind}",
        (OBJECT, before.name),
        before=_told(before),
        after=_told(after) | {"text": change.text},
    )


def see(connection: Connection, name: str, seen: Mapping[str, Any]) -> None:
    """Store the brokers' last answers."""
    text = fitting(json.dumps(seen, ensure_ascii=False), 1 << 20)
    connection.execute(
        update(replica_group).where(replica_group.c.name == name).values(seen=text, seen_at=now_ms())
    )


def release(connection: Connection, name: str, actor: Actor) -> None:
    """Stop managing a group; for the leader, after its brokers got their last orders."""
    found = one(connection, name)
    forget_wish(connection, name)
    connection.execute(delete(replica_group).where(replica_group.c.name == name))
    record(connection, actor, "replicas.released", (OBJECT, name), before=_told(found.group))


def forget_wish(connection: Connection, name: str) -> None:
    """A request is done."""
    connection.execute(delete(replica_wish).where(replica_wish.c.name == name))


def _told(group: ReplicaGroup) -> dict[str, Any]:
    return {
        "epoch": group.epoch,
        "number": group.number,
        "master": group.master,
        "in_sync": list(group.in_sync),
    }


def _body(group: ReplicaGroup) -> str:
    values = asdict(group)
    values["members"] = [asdict(member) for member in group.members.values()]
    return json.dumps(values, ensure_ascii=False, sort_keys=True)


def _stored(row: Any, wish: StoredWish | None) -> StoredGroup:
    values = json.loads(row["body"])
    members = [ReplicaMember(**member) for member in values.pop("members")]
    values["in_sync"] = tuple(values["in_sync"])
    group = ReplicaGroup(**values, members={member.address: member for member in members})
    return StoredGroup(group, row["text"], row["changed_at"], json.loads(row["seen"]), row["seen_at"], wish)


def _wish(row: Any) -> StoredWish:
    return StoredWish(WishKind(row["kind"]), row["target"], row["asked_by"], row["reason"], row["asked_at"])
