from __future__ import annotations

import pytest
from tests.coordinator.services.watched import MadeUp, step
from tests.support import about

from sparrowmq.client.admin.types import GroupMemberInfo
from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records.audit import Search, search
from sparrowmq.coordinator.services.groups import roster
from sparrowmq.coordinator.services.groups.inactive import InactiveSweep, half, lost, missed, stale
from sparrowmq.coordinator.services.groups.roster import RosterEntry
from sparrowmq.core.errors import CoordinatorError
from sparrowmq.protocol.managed import QueueGrant


def one(name: str) -> GroupMemberInfo:
    return GroupMemberInfo(name, "h:1", "JAVA", 513)


def seen(name: str, last: int) -> RosterEntry:
    return RosterEntry("g", name, "h:1", "JAVA", 513, 0, last)


def later(database: Database, seconds: int) -> None:
    """Advance the time since everybody was seen."""
    with database.write() as connection:
        connection.exec_driver_sql(f"UPDATE member_seen SET last_seen = last_seen - {seconds * 1000}")


def names(database: Database) -> list[str]:
    with database.read() as connection:
        return [row.client_id for row in roster.read(connection)]


def firing(database: Database) -> dict[str, str]:
    with database.read() as connection:
        return {f"{row.rule} {row.key}": row.text for row in table.search(connection, [AlarmState.FIRING])}


def test_members_are_lost_at_the_limit() -> None:
    members = [seen("a", 1000), seen("b", 1001)]
    assert lost(members, 60, 1059) == ([], False)
    assert lost(members, 60, 1060) == (members[:1], False)
    assert lost(members, 60, 1061) == (members, True)
    assert lost([], 60, 1061) == ([], False)
    assert missed("g", members, 61_001).text == (
        "all 2 members of group g are gone; the last was b at h:1, 60 s ago"
    )
    assert missed("g", members[:1], 61_000).text.startswith(
        "the only member of group g is gone; the last was a"
    )


def test_members_known_to_only_some_brokers_are_found() -> None:
    connected = {"b:1": [one("a"), one("b")], "b:2": [one("a")], "b:3": []}
    found = {condition.key: condition.text for condition in half("g", connected)}
    assert found == {
        "g a": "the member a of group g is connected to b:1, b:2, but not to b:3",
        "g b": "the member b of group g is connected to b:1, but not to b:2, b:3",
    }
    assert half("g", {"b:1": [one("a")], "b:2": [one("a")]}) == half("g", {"b:1": [], "b:2": []}) == []


def test_stale_fences_are_found() -> None:
    def grant(number: int, owner: str, *, fenced: bool = True) -> QueueGrant:
        return QueueGrant("t", "b", number, 3, owner, fenced)

    grants = [grant(0, "a#1"), grant(1, "a#1"), grant(2, "b#1"), grant(3, ""), grant(4, "java", fenced=False)]
    assert stale("g", grants, {"a"}, {"b#1"}) == []
    (found,) = stale("g", grants, {"b"}, ())
    assert found.text.startswith("queues of group g are fenced for members that no longer exist: a#1 (2); ")
    assert found.text.endswith("sparrow group policy g --delete")


@pytest.mark.proves("pmq:4", "pmq:R5")
def test_silent_member_is_removed_with_an_audit_entry(database: Database) -> None:
    cluster = MadeUp()
    service = InactiveSweep(cluster, Channels())
    cluster.connected["g"] = {"b:1": [one("a"), one("b")], "b:2": [one("a"), one("b")]}
    assert step(database, service).counts["online"] == 2
    cluster.connected["g"] = {"b:1": [one("a")], "b:2": [one("a")]}
    assert step(database, service).counts["gone"] == 0
    later(database, 60)
    counts = step(database, service).counts
    assert (counts["online"], counts["gone"], names(database)) == (1, 1, ["a"])
    with database.read() as connection:
        (entry,) = search(connection, Search(action="members.gone"))
    assert (entry.actor, entry.object, entry.before["named"]) == ("service:inactive-sweep", "g", ["b at h:1"])
    assert firing(database) == {}


def test_group_that_lost_all_members_fires_until_one_returns_or_it_is_forgotten(
    database: Database,
) -> None:
    cluster = MadeUp()
    service = InactiveSweep(cluster, Channels())
    cluster.connected = {"g": {"b:1": [one("a")]}, "h": {"b:1": [one("c")]}}
    step(database, service)
    cluster.connected = {"g": {"b:1": []}, "h": {"b:1": []}}
    later(database, 299)
    assert step(database, service).counts["members-gone fired"] == 0
    later(database, 1)
    assert step(database, service).counts["members-gone fired"] == 2
    assert names(database) == ["a", "c"]
    cluster.connected["h"] = {"b:1": [one("d")]}
    counts = step(database, service).counts
    assert (counts["members-gone resolved"], names(database)) == (1, ["a", "d"])
    later(database, 24 * 3600)
    cluster.connected["h"] = {"b:1": [one("d")]}
    counts = step(database, service).counts
    assert (counts["members-gone resolved"], names(database)) == (1, ["d"])
    cluster.connected = {"x": {"b:1": []}}
    later(database, 300)
    counts = step(database, service).counts  # h was deleted
    assert (counts["members-gone fired"], names(database)) == (0, [])


def test_zero_seconds_disable_the_check_of_groups(database: Database) -> None:
    cluster = MadeUp()
    service = InactiveSweep(cluster, Channels())
    cluster.connected["g"] = {"b:1": [one("a")]}
    step(database, service)
    cluster.connected["g"] = {"b:1": []}
    later(database, 500)
    assert step(database, service, gone_seconds=0).counts["gone"] == 1
    assert firing(database) == {}


def test_half_connections_and_stale_fences_fire_and_resolve(database: Database) -> None:
    cluster = MadeUp()
    service = InactiveSweep(cluster, Channels())
    cluster.connected["g"] = {"b:1": [one("a")], "b:2": []}
    cluster.granted = {"g": [QueueGrant("t", "b", 0, 3, "gone#1.2.3")]}
    assert step(database, service).counts["stale-fence fired"] == 0
    counts = step(database, service, hold_seconds=0).counts
    assert (counts["half-connected-member fired"], counts["stale-fence fired"]) == (1, 1)
    cluster.groups_failed, cluster.connected = {"g": "timed out"}, {"x": {}}
    report = step(database, service)
    assert (report.counts["half-connected-member resolved"], report.message) == (0, "timed out")
    with database.write() as connection:
        connection.exec_driver_sql(
            "INSERT INTO managed_member (group_name, member, topics) VALUES ('g', 'gone#1.2.3', '[]')"
        )
    cluster.groups_failed, cluster.connected = {}, {"g": {"b:1": [one("a")], "b:2": [one("a")]}}
    counts = step(database, service).counts
    assert (counts["half-connected-member resolved"], counts["stale-fence resolved"]) == (1, 1)


def test_members_of_groups_without_a_retry_topic_need_not_be_at_every_broker(database: Database) -> None:
    cluster = MadeUp()
    cluster.connected["g"] = {"b:1": [one("a")], "b:2": []}
    cluster.loose = {"g"}
    counts = step(database, InactiveSweep(cluster, Channels()), hold_seconds=0).counts
    assert counts["half-connected-member seen"] == 0


def test_old_resolved_alarms_are_deleted(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.coordinator.services.groups.inactive.BATCH", 2)
    with database.write() as connection:
        for number in range(5):
            state, changed = ("firing", 1) if number == 0 else ("resolved", 1)
            connection.exec_driver_sql(
                "INSERT INTO alarm (rule, object_key, state, text, changed_at) "
                f"VALUES ('r', '{number}', '{state}', '', {changed})"
            )
    cluster = MadeUp()
    cluster.connected["g"] = {}
    assert step(database, InactiveSweep(cluster, Channels())).counts["alarms deleted"] == 4
    assert firing(database) == {"r 0": ""}


def test_unreachable_cluster_removes_no_member(database: Database) -> None:
    cluster = MadeUp()
    service = InactiveSweep(cluster, Channels())
    cluster.connected["g"] = {"b:1": [one("a")]}
    step(database, service)
    later(database, 900)
    cluster.groups_failed, cluster.connected = {"g": "gone"}, {}
    with pytest.raises(CoordinatorError, check=about(what="group", value="gone")):
        step(database, service)
    cluster.connected = {"x": {}}
    assert step(database, service).counts["gone"] == 0
    assert names(database) == ["a"]
