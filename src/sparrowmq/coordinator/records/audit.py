"""The audit log: one entry for every change, in the transaction of the change itself (pmq:P3).

Code that changes something calls `record` with the same connection; a change that is rolled back leaves no
entry, and if an entry cannot be written, the change is rolled back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, insert, select

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.tables import audit

PAGE_MAX: Final = 500
REASON_CHARS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Actor:
    """Who makes a change: a person, or a service in an epoch. `reason` is given by the person."""

    name: str
    reason: str = ""
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One entry. `before` and `after` are the changed values, None where there were none."""

    id: int
    at: int
    actor: str
    action: str
    kind: str
    object: str
    before: Any
    after: Any
    reason: str
    generation: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Filter for entries: exact matches; empty texts match everything. `before_id` pages backwards."""

    actor: str = ""
    action: str = ""
    kind: str = ""
    object: str = ""
    before_id: int | None = None
    count: int = 100


def record(
    connection: Connection,
    actor: Actor,
    action: str,
    object_: tuple[str, str],
    *,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> None:
    """Write the entry for a change of `object_`, which is a kind and a name. It must not contain secrets."""
    kind, name = object_
    connection.execute(
        insert(audit).values(
            at=now_ms(),
            actor=actor.name[:100],
            action=action,
            kind=kind,
            object=name[:600],
            before=_json(before),
            after=_json(after),
            reason=actor.reason[:REASON_CHARS_MAX],
            generation=actor.generation,
        )
    )


def search(connection: Connection, wanted: Search) -> list[AuditEntry]:
    """Entries, the newest first, at most `PAGE_MAX`. Values are bound, never part of the SQL (pmq:P4)."""
    query = select(audit).order_by(audit.c.id.desc()).limit(max(1, min(wanted.count, PAGE_MAX)))
    for name in ("actor", "action", "kind", "object"):
        value = getattr(wanted, name)
        if value:
            query = query.where(audit.c[name] == value)
    if wanted.before_id is not None:
        query = query.where(audit.c.id < wanted.before_id)
    return [_entry(row) for row in connection.execute(query).mappings()]


def delete_before(connection: Connection, at: int, limit: int) -> int:
    """Delete up to `limit` entries older than `at`, the oldest first; returns how many (pmq:T7)."""
    ids = connection.execute(
        select(audit.c.id).where(audit.c.at < at).order_by(audit.c.at, audit.c.id).limit(limit)
    ).scalars()
    found = list(ids)
    if found:
        connection.execute(delete(audit).where(audit.c.id.in_(found)))
    return len(found)


def _json(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(dict(value), ensure_ascii=False, sort_keys=True)


def _entry(row: Any) -> AuditEntry:
    values = dict(row)
    for name in ("before", "after"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return AuditEntry(**values)
