from __future__ import annotations

import pytest
from sqlalchemy import insert

from sparrowmq.client.admin.types import GroupMemberInfo
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import managed_member
from sparrowmq.coordinator.records.audit import Actor, Search, search
from sparrowmq.coordinator.services.groups import roster

SERVICE = Actor("service:inactive-sweep", generation=4)


def one(name: str, address: str = "h:1") -> GroupMemberInfo:
    return GroupMemberInfo(name, address, "JAVA", 513)


def note(
    database: Database, now: int, **online: list[GroupMemberInfo]
) -> dict[str, dict[str, tuple[int, int]]]:
    with database.write() as connection:
        found = roster.note(connection, online, now)
    return {
        group: {one.client_id: (one.first_seen, one.last_seen) for one in members}
        for group, members in found.items()
    }


def test_online_members_are_recorded_with_first_and_last_time(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "AT_ONCE", 2)
    names = [f"m{number}" for number in range(5)]
    assert note(database, 10, g=[one(name) for name in names]) == {"g": dict.fromkeys(names, (10, 10))}
    note(database, 20, g=[one(name) for name in names[:4]], h=[one("m0")])
    found = note(database, 30, g=[one("m0", "h:9")])
    assert found["g"] == {
        "m0": (10, 30),
        **dict.fromkeys(names[1:4], (10, 20)),
        "m4": (10, 10),
    }
    assert found["h"] == {"m0": (20, 20)}
    with database.read() as connection:
        rows = roster.read(connection, "g")
        assert len(roster.read(connection)) == 6
    assert {row.client_id: (row.first_seen, row.last_seen) for row in rows} == found["g"]
    assert (rows[0].address, rows[0].language, rows[0].version) == ("h:9", "JAVA", 513)


@pytest.mark.proves("pmq:R5")
def test_lost_members_are_removed_with_one_audit_entry(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roster, "AT_ONCE", 2)
    monkeypatch.setattr(roster, "NAMED", 2)
    note(database, 10, g=[one(f"m{number}") for number in range(5)], h=[one("m0")])
    with database.write() as connection:
        gone = [row for row in roster.read(connection, "g") if row.client_id != "m1"]
        roster.sweep(connection, "g", gone, SERVICE)
    with database.read() as connection:
        assert [(row.group, row.client_id) for row in roster.read(connection)] == [("g", "m1"), ("h", "m0")]
        (entry,) = search(connection, Search())
    assert (entry.actor, entry.action, entry.kind, entry.object, entry.generation) == (
        "service:inactive-sweep",
        "members.gone",
        "group",
        "g",
        4,
    )
    assert entry.before == {"members": 4, "named": ["m0 at h:1", "m2 at h:1"], "last_seen": 10}


def test_removed_members_are_fenced_and_others_are_not(database: Database) -> None:
    with database.write() as connection:
        for group, client in (("g", "p@1"), ("h", "q@1")):
            row = {"group_name": group, "member": f"{client}#1.1.1", "client_id": client, "topics": "[]"}
            connection.execute(insert(managed_member).values(joined_at=1, **row))
        assert roster.fenced(connection) == {("g", "p@1"), ("h", "q@1")}
        assert roster.fenced(connection, "h") == {("h", "q@1")}
        assert roster.fenced(connection, "x") == set()
