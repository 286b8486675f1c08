"""Routes of managed groups."""

from __future__ import annotations

import pytest
from tests.coordinator.groups.storage.test_table import FIRST, PLAN
from tests.coordinator.running import Running

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups import table as managed_groups
from sparrowmq.coordinator.groups.group_metadata import KeptGroup, SeenMember


@pytest.fixture(scope="module")
def shown(api: Running) -> Running:
    """The same coordinator with a managed group `g`."""
    database = Database(api.coordinator.settings.database_url)
    with database.write() as connection:
        managed_groups.save(connection, "g", 3, KeptGroup(), FIRST, PLAN)
        managed_groups.see(
            connection, {"g": ({"p#1": SeenMember(250, 7_750, 1, 3, 0, {"batch": "single"})}, "b is down")}
        )
    database.close()
    return api


def test_managed_groups_are_shown_with_owners_members_and_plans(shown: Running) -> None:
    (group,) = [one for one in shown.get("/groups") if one["group"] == "g"]
    assert (group["members"], group["queue_count"], group["late"], group["problem"]) == (2, 2, 4, "b is down")
    assert (group["released"], group["lease_over"], group["drained_too_long"]) == (1, 2, 3)
    found = shown.get("/groups/g")
    first, second = found["queues"]
    assert (first["owner"], first["client_id"], first["phase"], first["target"]) == (
        "p#1",
        "p",
        "granted",
        None,
    )
    assert (first["why"], second["owner"]) == ("had no owner", None)
    assert first["since_ms"] > 0
    p, q = shown.get("/groups/g/members")
    assert (p["member"], p["knows"], p["late"], p["standing"], p["queues"]) == ("p#1", 1, 3, "active", 1)
    assert p["lease_ends_ms"] - p["heard_ms"] == 8_000
    assert (q["standing"], q["heard_ms"], q["topics"]) == ("standby", None, ["T", "U"])
    assert q["reason"] == "1 members that joined earlier have the queues"
    assert (p["knobs"], q["knobs"], q["unable"]) == ("newest", None, {})
    assert p["unable"] == {"batch": "its handlers take single messages (its own batch is 1)"}
    (plan,) = shown.get("/groups/g/plans")
    assert (plan["cause"], plan["moved"], plan["epoch"]) == ("joined: p#1", 1, 3)
    assert plan["moves"] == [
        {"topic": "T", "broker": "a", "queue": 0, "before": None, "after": "p#1", "why": "new"}
    ]
    assert shown.get(f"/groups/g/plans?before_id={plan['id']}") == []


def test_next_plan_is_previewed_with_the_current_rules(shown: Running) -> None:
    now = shown.get("/groups/g/preview")
    assert [one["standing"] for one in now["members"]] == ["active", "active"]
    assert (now["moves"], now["given"]) == (0, 1)
    shown.call("PUT", "/groups/g/settings/deny", {"value": ["10.0.0.2"]})
    denied = shown.get("/groups/g/preview")
    assert [one["standing"] for one in denied["members"]] == ["active", "rejected"]
    assert [one["standing"] for one in shown.get("/groups/g/preview?deny=10.9.9.9")["members"]] == [
        "active"
    ] * 2
    shown.call("DELETE", "/groups/g/settings/deny")
    assert shown.get("/groups/g/preview?maximum=1&join=1&without=p")["members"][1] == {
        "client": "new-1",
        "standing": "standby",
        "reason": "1 members that joined earlier have the queues",
    }
    assert len(shown.get("/groups/g/members")) == 2, "nothing changed"
    for query in ("deny=x", "without=nobody", "join=1001", "maximum=-1"):
        assert shown.call("GET", f"/groups/g/preview?{query}")[0] == 422, query


@pytest.mark.parametrize("path", ["", "/members", "/plans", "/preview"])
def test_unmanaged_group_is_reported(shown: Running, path: str) -> None:
    status, answer = shown.call("GET", f"/groups/nobody{path}")
    assert status == 404
    assert answer["error"].startswith("group nobody is not managed: its members divide its queues themselves")


def test_numbers_out_of_range_are_refused(shown: Running) -> None:
    for query in ("count=0", "count=501", "before_id=0", "before_id=9223372036854775808"):
        assert shown.call("GET", f"/groups/g/plans?{query}")[0] == 422
