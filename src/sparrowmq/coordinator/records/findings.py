"""The services' latest findings, for users to read and to repair.

Each check replaces its service's findings: repeated findings keep their number and first time, others are
deleted. Users may have a finding repaired by `services.housekeeping.repairs`.
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
"""Maximum number of findings of one service that are kept; the service counts the others."""
TEXT_CHARS: Final = 1000
REPAIR_MS_MAX: Final = 120_000
"""Time limit of a repair: after that its coordinator is considered dead."""


@dataclass(frozen=True, slots=True)
class Repair:
    """A named action that would fix a finding, and the state for which it was proposed."""

    action: str
    arguments: Mapping[str, Any]
    before: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a service: `kind` and `key` identify it, `text` describes it for people."""

    kind: str
    key: str
    text: str
    group: str = ""
    topic: str = ""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    repair: Repair | None = None


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A stored finding. Times are the database's."""

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
    """Save the result of a check. Findings of `unknown` groups stay unchanged, because these could not be
    checked; if the check was `partial`, all stay. Returns how many were seen, are new and have disappeared.
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


def search(
    connection: Connection, *, service: str = "", kind: str = "", repairs: bool = False
) -> list[FindingRow]:
    """Findings by number; optionally of one service, of one kind, or only those with a repair."""
    query = select(finding_table).order_by(finding_table.c.id).limit(FINDINGS_MAX)
    if service:
        query = query.where(finding_table.c.service == service)
    if kind:
        query = query.where(finding_table.c.kind == kind)
    rows = (_row(found) for found in connection.execute(query).mappings())
    return [row for row in rows if not repairs or row.finding.repair is not None]


def one(connection: Connection, number: int, *, lock: bool = False) -> FindingRow:
    """A finding. Raises `RefusedError` (404): it may have been deleted."""
    query = select(finding_table).where(finding_table.c.id == number)
    found = connection.execute(query.with_for_update() if lock else query).mappings().first()
    if found is None:
        raise RefusedError(
            f"there is no finding {number}, or it no longer exists; see sparrow repair list",
            status=404,
            what="finding",
            value=number,
        )
    return _row(found)


def begin_repair(connection: Connection, number: int) -> FindingRow:
    """Mark a finding as being repaired. Raises `RefusedError`: 404, and 409 during another repair."""
    row = one(connection, number, lock=True)
    now = int(connection.execute(select(now_ms())).scalar_one())
    if now - row.repairing_at < REPAIR_MS_MAX:
        text = f"finding {number} is already being repaired"
        raise RefusedError(text, status=409, what="finding", value=number)
    connection.execute(update(finding_table).where(finding_table.c.id == number).values(repairing_at=now))
    return row


def end_repair(connection: Connection, number: int, *, done: bool) -> None:
    """Delete the finding if the repair succeeded; else allow another attempt."""
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


def _row(found: Any) -> FindingRow:
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
    return FindingRow(
        found["id"],
        found["service"],
        finding,
        found["first_at"],
        found["seen_at"],
        found["repairing_at"],
    )
