"""Tables that several pages show: their columns, and their rows made from the API's answers. Pure."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from sparrowmq.console.tables import Column
from sparrowmq.console.texts import Words
from sparrowmq.console.visits import at
from sparrowmq.coordinator.api.shared import Answer

Rows = list[dict[str, Any]]
HOUR_MS: Final = 3_600_000
NOT_IN_SIGHT: Final = "none"
"""Shown for a disk that grows too slowly for a forecast."""

ALARMS: Final = (
    Column("state", "state", filtered=True),
    Column("rule", filtered=True),
    Column("text", link=lambda row: at("alarms", row["id"])),
    Column("group", link=lambda row: at("groups", row["group"]) if row["group"] else ""),
    Column("topic", link=lambda row: at("topics", row["topic"]) if row["topic"] else ""),
    Column("since_ms", "time"),
    Column("changed_by"),
)
LAGS: Final = (
    Column("group", link=lambda row: at("groups", row["group"])),
    Column("messages", "number"),
    Column("age_ms", "span"),
    Column("queues", "number"),
    Column("topics", "list"),
    Column("error"),
)
BROKERS: Final = (
    Column("broker", link=lambda row: at("brokers", row["address"])),
    Column("state", "state"),
    Column("role", "state", filtered=True),
    Column("stored_per_second", "rate"),
    Column("delivered_per_second", "rate"),
    Column("version"),
)
DISKS: Final = (
    Column("broker"),
    Column("used", "meter"),
    Column("free_bytes", "bytes"),
    Column("full_in", "full"),
)
SERVICES: Final = (
    Column("name", link=lambda row: at("services", row["name"])),
    Column("state", "state", filtered=True),
    Column("leader"),
    Column("last_ms", "time"),
    Column("outcome", "state", filtered=True),
    Column("title"),
)
CHANGES: Final = (
    Column("at", "time"),
    Column("actor", link=lambda row: f"/audit?audit.is.actor={_field(row['actor'])}"),
    Column("action"),
    Column("object"),
    Column("reason"),
)


def alarm_rows(found: Sequence[Answer]) -> Rows:
    """Alarms."""
    return [dict(one) for one in found]


def lag_rows(found: Answer) -> Rows:
    """Groups with the age of their oldest waiting message; None if unknown."""
    now = time.time_ns() // 1_000_000
    return [one | {"age_ms": _age(one["messages"], one["oldest_ms"], now)} for one in found["groups"]]


def broker_rows(found: Answer) -> Rows:
    """Brokers with the words for state and role; only slaves are behind somebody."""
    return [
        one
        | {
            "state": "silent" if one["error"] else "answers",
            "role": role_of(one["broker_id"]),
            "behind_bytes": one["behind_bytes"] if one["broker_id"] else "–",
            "error": one["error"] or "–",
        }
        for one in found["brokers"]
    ]


def role_of(broker_id: int) -> str:
    """The role of a broker by its id, as a word of the catalogue."""
    return "slave" if broker_id else "master"


def disk_rows(found: Answer, forecasts: Sequence[Answer]) -> Rows:
    """Disks, and the time until they are full according to the last forecast of the service `capacity`."""
    full: dict[str, str | float] = {}
    for one in forecasts:
        hours = one["numbers"].get("first_in")
        for broker in one["numbers"].get("brokers", ()):
            full[broker] = NOT_IN_SIGHT if hours is None else hours * HOUR_MS
    rows: Rows = []
    for disk in found["disks"]:
        total, free = disk["total_bytes"], disk["free_bytes"]
        used = round(100 * (total - free) / total) if total else None
        rows.append(disk | {"used": used, "free_bytes": free if total else None,
                            "full_in": full.get(disk["broker"])})  # fmt: skip
    silent = ({"broker": name, "error": why} for name, why in found["failed"].items())
    return [*rows, *({**one, "used": None, "free_bytes": None, "full_in": None} for one in silent)]


def service_rows(found: Sequence[Answer], words: Words) -> Rows:
    """Services with what they are for, the word for their state, and their last run."""
    return [
        one
        | {"title": words.named("purpose", one["name"]), "state": service_state(one)}
        | _last(one["last_run"])
        for one in found
    ]


def service_state(one: Mapping[str, Any]) -> str:
    """State of a service: paused, led, or without leader."""
    return "paused" if one["paused"] else "leads" if one["leader"] is not None else "leaderless"


def audit_rows(found: Sequence[Answer]) -> Rows:
    """Entries with the values before and after as text."""
    return [
        one
        | {
            "object": f"{one['kind']} {one['object']}".strip(),
            "before": _json(one["before"]),
            "after": _json(one["after"]),
        }
        for one in found
    ]


def _age(messages: int | None, oldest_ms: int | None, now_ms: int) -> int | None:
    if messages == 0:
        return 0
    return None if oldest_ms is None or messages is None else max(0, now_ms - oldest_ms)


def _last(run: Mapping[str, Any] | None) -> dict[str, Any]:
    if run is None:
        return {"last_ms": 0, "outcome": "never"}
    return {"last_ms": run["ended_at"], "outcome": run["outcome"]}


def _json(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _field(text: str) -> str:
    return quote(text, safe="")
