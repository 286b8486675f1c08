"""What services found at their last look, kept for people to read and to repair.

A look replaces what its service found before: what is seen again keeps its number and its first time, what
is gone is deleted. A person may have a finding repaired; `coordinator.repairs` does that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, delete, select, update

from sparrowmq.coordinator.database.clock import now_ms
from sparrowmq.coordinator.database.many import delete_all, insert_all, update_all
from sparrowmq.coordinator.database.tables import NAME_CHARS
from sparrowmq.coordinator.database.tables import finding as finding_table
from sparrowmq.coordinator.database.texts import fitting, key_of
from sparrowmq.core.errors import RefusedError

FINDINGS_MAX: Final = 2000
"""Findings of one service that are kept; a service counts those beyond."""
TEXT_CHARS: Final = 1000
REPAIR_MS_MAX: Final = 120_000
"""How long a repair may take: after that the coordinator that did it is taken for dead."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A named action that would mend a finding, and the state it was proposed for."""

    action: str
    arguments: Mapping[str, Any]
    before: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something a service found: `kind` and `key` tell it from others, `text` says it to people."""

    kind: str
    key: str
    text: str
    group: str = ""
    topic: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    repair: Repair | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A finding that is kept. Times are the database's."""

    id: int
    service: str
    finding: Finding
    first_at: int
    seen_at: int
    repairing_at: int


def replace(
    connection: Connection,
    service: str,
    found: Sequence[Finding],
    *,
    unknown: Collection[str] = (),
    partial: bool = False,
) -> dict[str, int]:
    """Keep what a look found. Findings of `unknown` groups stay as they are: nobody could look; all of them
    when it was `partial`. Gives how many are seen, new and gone.
    """
    now = int(connection.execute(select(now_ms())).scalar_one())
    mine = finding_table.c.service == service
    known = {
        (row["kind"], row["object_key"]): row
        for row in connection.execute(select(finding_table).where(mine).with_for_update()).mappings()
    }
    counts = {"seen": len(found), "new": 0, "gone": 0}
    new: list[dict[str, Any]] = []
    again: list[dict[str, Any]] = []
    for (kind, key), one in {(one.kind, key_of(one.key)): one for one in found[:FINDINGS_MAX]}.items():
        row = known.pop((kind, key), None)
        values = _values(one) | {"seen_at": now}
        if row is None:
            new.append({"service": service, "kind": kind, "object_key": key, "first_at": now} | values)
        else:
            again.append({"id": row["id"]} | values)
    gone = [row for row in known.values() if not (partial or row["group_name"] in unknown)]
    insert_all(connection, finding_table, new)
    update_all(connection, finding_table, ("id",), again)
    delete_all(connection, finding_table, ("id",), [{"id": row["id"]} for row in gone])
    return counts | {"new": len(new), "gone": len(gone)}


def search(connection: Connection, *, service: str = "", kind: str = "", repairs: bool = False) -> list[Row]:
    """Findings by number; of a service, of a kind, or only those with a repair when asked so."""
    query = select(finding_table).order_by(finding_table.c.id).limit(FINDINGS_MAX)
    if service:
        query = query.where(finding_table.c.service == service)
    if kind:
        query = query.where(finding_table.c.kind == kind)
    rows = (_row(found) for found in connection.execute(query).mappings())
    return [row for row in rows if not repairs or row.finding.repair is not None]


def one(connection: Connection, number: int, *, lock: bool = False) -> Row:
    """A finding. Raises `RefusedError` (404): it may be gone since."""
    query = select(finding_table).where(finding_table.c.id == number)
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None:
        raise RefusedError(f"there is no finding {number} (any more); see sparrow repair list", status=404)
    return _row(found)


def begin_repair(connection: Connection, number: int) -> Row:
    """Take a finding for repair. Raises `RefusedError`: 404, and 409 while somebody else repairs it."""
    row = one(connection, number, lock=True)
    now = int(connection.execute(select(now_ms())).scalar_one())
    if now - row.repairing_at < REPAIR_MS_MAX:
        raise RefusedError(f"somebody is repairing finding {number} just now", status=409)
    connection.execute(update(finding_table).where(finding_table.c.id == number).values(repairing_at=now))
    return row


def end_repair(connection: Connection, number: int, *, done: bool) -> None:
    """The finding is gone when the repair was done; else somebody may try again."""
    mine = finding_table.c.id == number
    if done:
        connection.execute(delete(finding_table).where(mine))
    else:
        connection.execute(update(finding_table).where(mine).values(repairing_at=0))


def _values(one: Finding) -> dict[str, Any]:
    body: dict[str, Any] = {"numbers": dict(one.numbers)}
    if one.repair is not None:
        repair = one.repair
        body["repair"] = {
            "action": repair.action,
            "arguments": dict(repair.arguments),
            "before": dict(repair.before),
        }
    return {
        "group_name": fitting(one.group, NAME_CHARS),
        "topic": fitting(one.topic, NAME_CHARS),
        "text": fitting(one.text, TEXT_CHARS),
        "body": json.dumps(body, sort_keys=True),
    }


def _row(found: Any) -> Row:
    body = json.loads(found["body"])
    proposed = body.get("repair")
    finding = Finding(
        found["kind"],
        found["object_key"],
        found["text"],
        found["group_name"],
        found["topic"],
        body["numbers"],
        Repair(**proposed) if proposed else None,
    )
    return Row(
        found["id"],
        found["service"],
        finding,
        found["first_at"],
        found["seen_at"],
        found["repairing_at"],
    )
