"""Accounts of 4.x brokers, as the audit log shows them."""

from __future__ import annotations

from typing import Any

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records.accounts import DELETE, FAILED, PUT, KnownAccount, entries, known
from sparrowmq.coordinator.records.audit import Actor, AuditEntry, record


def entry(number: int, action: str, account: str = "teamteam", **after: Any) -> AuditEntry:
    return AuditEntry(number, number * 10, "ann", action, "access", account, None, after or None, "", None)


def test_last_setting_counts_and_no_secret_is_stored() -> None:
    found = [
        entry(2, PUT, admin=True),
        entry(1, PUT, topic_perms=["T=PUB"], secret="changed"),
        entry(3, PUT, "other", admin=False),
        entry(4, DELETE, "other"),
    ]
    values = {"topic_perms": ["T=PUB"], "admin": True}
    assert known(found) == [KnownAccount("teamteam", values, 20, "ann")]


def test_failed_change_is_reverted() -> None:
    first, bad = entry(1, PUT, admin=False), entry(2, PUT, admin=True)
    failed = entry(3, PUT + FAILED, error="no")
    assert [one.values for one in known([first, bad, failed])] == [{"admin": False}]
    assert known([bad, failed]) == []
    kept = known([first, entry(2, DELETE), entry(3, DELETE + FAILED, error="no")])
    assert [one.account for one in kept] == ["teamteam"]
    assert known([failed]) == [], "an entry whose change was deleted with old entries"


def test_only_entries_about_accounts_are_read(database: Database) -> None:
    with database.write() as connection:
        for action in (PUT, DELETE, "access-user.create"):
            record(connection, Actor("ann"), action, ("access", "teamteam"), after={"a": 1})
    with database.read() as connection:
        assert {one.action for one in entries(connection)} == {PUT, DELETE}
