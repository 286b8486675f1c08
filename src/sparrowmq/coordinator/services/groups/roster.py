"""The members of every group that were seen online, with first and last time. Rows are deleted when their
member has left, all rows of a group with one audit entry.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from sqlalchemy import Connection, delete, select, update

from sparrowmq.aio import GroupMemberInfo
from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.many import insert_all, update_all
from sparrowmq.coordinator.database.tables import NAME_CHARS, managed_member, member_seen
from sparrowmq.coordinator.database.texts import fitting, key_of
from sparrowmq.coordinator.records.audit import Actor, record

AT_ONCE: Final = 500
"""Maximum number of rows in one statement."""
NAMED: Final = 20
"""Maximum number of members listed in an audit entry."""
PAGE_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class RosterEntry:
    """A member of a group; times by the database's clock."""

    group: str
    client_id: str
    address: str
    language: str
    version: int
    first_seen: int
    last_seen: int


def read(connection: Connection, group: str = "") -> list[RosterEntry]:
    """Known members that were not removed, of one group or all, at most `PAGE_MAX`."""
    query = select(member_seen).order_by(member_seen.c.group_name, member_seen.c.client_id)
    if group:
        query = query.where(member_seen.c.group_name == group)
    return [RosterEntry(*row) for row in connection.execute(query.limit(PAGE_MAX))]


def fenced(connection: Connection, group: str = "") -> set[tuple[str, str]]:
    """(group, client id) of members whose requests have generations: those managed by a coordinator."""
    query = select(managed_member.c.group_name, managed_member.c.client_id)
    if group:
        query = query.where(managed_member.c.group_name == group)
    return {(name, client_id) for name, client_id in connection.execute(query)}


def note(
    connection: Connection, online: Mapping[str, Iterable[GroupMemberInfo]], now: int
) -> dict[str, list[RosterEntry]]:
    """Record the online members of each group; returns all known members of all groups that were not
    removed.
    """
    rows: dict[str, dict[str, RosterEntry]] = {}
    for row in connection.execute(select(member_seen)):
        seen = RosterEntry(*row)
        rows.setdefault(seen.group, {})[seen.client_id] = seen
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for group, members in online.items():
        known = rows.setdefault(group, {})
        same: list[str] = []
        for member in members:
            client_id, address = key_of(member.client_id, NAME_CHARS), fitting(member.address, 200)
            before = known.get(client_id)
            seen = RosterEntry(
                group, client_id, address, fitting(member.language, 32), member.version, now, now
            )
            if before is not None:
                seen = replace(seen, first_seen=before.first_seen)
            if before is not None and replace(before, last_seen=now) == seen:
                same.append(client_id)
            else:
                values = asdict(seen)
                (new if before is None else changed).append({"group_name": values.pop("group")} | values)
            known[client_id] = seen
        for start in range(0, len(same), AT_ONCE):
            mine = member_seen.c.client_id.in_(same[start : start + AT_ONCE])
            connection.execute(
                update(member_seen).where(member_seen.c.group_name == group, mine).values(last_seen=now)
            )
    insert_all(connection, member_seen, new)
    update_all(connection, member_seen, ("group_name", "client_id"), changed)
    return {group: list(known.values()) for group, known in rows.items() if known}


def sweep(connection: Connection, group: str, gone: Collection[RosterEntry], actor: Actor) -> None:
    """Remove members of a group, with one audit entry."""
    ids = sorted(one.client_id for one in gone)
    for start in range(0, len(ids), AT_ONCE):
        mine = member_seen.c.client_id.in_(ids[start : start + AT_ONCE])
        connection.execute(delete(member_seen).where(member_seen.c.group_name == group, mine))
    last = max(one.last_seen for one in gone)
    named = [
        f"{one.client_id} at {one.address}" for one in sorted(gone, key=lambda one: one.client_id)[:NAMED]
    ]
    was = {"members": len(ids), "named": named, "last_seen": last}
    record(connection, actor, "members.gone", ("group", group), before=was)


def time(connection: Connection) -> int:
    """The database's time."""
    return int(connection.execute(select(now_ms())).scalar_one())
