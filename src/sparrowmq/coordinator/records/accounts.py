"""Accounts of 4.x brokers as the audit log knows them: brokers do not list their accounts.

An account that was made in a broker's file, or by another program, is not known here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection

from sparrowmq.coordinator.records.audit import PAGE_MAX, AuditEntry, Search, search

PUT: Final = "access-account.put"
DELETE: Final = "access-account.delete"
FAILED: Final = ".failed"


@dataclass(frozen=True, slots=True)
class KnownAccount:
    """An account as it was last set: only the values that were given, and never a secret."""

    account: str
    values: Mapping[str, Any]
    changed_ms: int
    changed_by: str


def entries(connection: Connection) -> list[AuditEntry]:
    """The newest entries about accounts, at most `PAGE_MAX` of each action."""
    actions = (PUT, DELETE, f"{PUT}{FAILED}", f"{DELETE}{FAILED}")
    return [one for action in actions for one in search(connection, Search(action=action, count=PAGE_MAX))]


def known(found: Iterable[AuditEntry]) -> list[KnownAccount]:
    """The accounts that these changes leave, by name. Pure.

    A change is recorded before the brokers get it; the entry that it failed takes it back.
    """
    states: defaultdict[str, list[KnownAccount | None]] = defaultdict(list)
    for entry in sorted(found, key=lambda one: one.id):
        history = states[entry.object]
        if entry.action.endswith(FAILED):
            del history[-1:]
            continue
        last = history[-1] if history else None
        if entry.action == DELETE:
            history.append(None)
            continue
        values = {**(last.values if last is not None else {}), **(entry.after or {})}
        values.pop("secret", None)
        history.append(KnownAccount(entry.object, values, entry.at, entry.actor))
    left = (history[-1] for history in states.values() if history)
    return sorted((one for one in left if one is not None), key=lambda one: one.account)
