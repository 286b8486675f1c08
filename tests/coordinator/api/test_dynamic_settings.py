from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.groups.storage.test_table import FIRST
from tests.coordinator.running import Running

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups import followers
from sparrowmq.coordinator.groups import table as managed_groups
from sparrowmq.coordinator.groups.group_metadata import KeptGroup, SeenMember


def entries(api: Running, group: str) -> list[Any]:
    found: list[Any] = api.get(f"/audit?kind=group&object={group}")
    return found


def test_table_of_dynamic_settings_is_returned(api: Running) -> None:
    found = {one["name"]: one for one in api.get("/settings")}
    assert found["threads"]["range"] == "1 to 1000 handlers"
    assert found["threads"]["pull_consumers"] == "no effect: its application decides"
    assert (found["pause"]["places"], found["pause"]["obeyed_by"]) == (["group", "topic", "queue"], "brokers")


def test_old_paths_and_fields_still_work(api: Running) -> None:
    assert api.get("/knobs") == api.get("/settings")
    status, made = api.call("PUT", "/groups/before/knobs/threads", {"value": 8, "reason": "slow day"})
    assert (status, made["knob"], made["setting"]) == (200, "threads", "threads")
    shown = api.get("/groups/before/settings")
    assert shown == api.get("/groups/before/knobs")
    assert [one["value"] for one in shown["settings"]] == [8] and shown["knobs"] == shown["settings"]
    assert api.call("DELETE", "/groups/before/knobs/threads?reason=done")[0] == 200
    assert api.get("/groups/before/settings")["settings"] == []


def test_setting_is_set_shown_and_unset(api: Running) -> None:
    status, made = api.call("PUT", "/groups/k1/settings/threads", {"value": 8, "reason": "slow day"})
    assert (status, made["value"], made["changed_by"], made["until_ms"]) == (200, 8, "admin", None)
    assert made["note"] == "group k1 has no known members now; threads applies to members that join later"
    status, made = api.call(
        "PUT", "/groups/k1/settings/pause", {"value": True, "place": "Orders/3", "seconds": 60}
    )
    assert made["until_ms"] == made["changed_ms"] + 60_000
    shown = api.get("/groups/k1/settings")
    assert (shown["revision"], [one["setting"] for one in shown["settings"]]) == (2, ["pause", "threads"])
    everywhere = [(one["group"], one["setting"], one["place"]) for one in api.get("/settings/set")]
    assert {("k1", "pause", "Orders/3"), ("k1", "threads", "*")} <= set(everywhere)
    assert api.call("DELETE", "/groups/k1/settings/pause?place=Orders/3&reason=mended")[0] == 200
    assert api.call("DELETE", "/groups/k1/settings/pause?place=Orders/3")[0] == 404
    assert [one["setting"] for one in api.get("/groups/k1/settings")["settings"]] == ["threads"]
    last, _, first = entries(api, "k1")
    assert (first["action"], first["reason"], first["generation"]) == ("setting.set", "slow day", 1)
    assert (last["action"], last["reason"], last["before"]["place"]) == (
        "setting.unset",
        "mended",
        "Orders/3",
    )


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("threads", {"value": 0}, 422, "must be a whole number, 1 to 1000 handlers"),
        ("threads", {"value": 10**400}, 422, "1 to 1000 handlers"),
        ("threads", {"value": "4"}, 422, "1 to 1000 handlers"),
        ("threads", {"value": {}}, 422, "value"),
        ("threads", {}, 422, "value"),
        ("threads", {"value": 4, "place": "Orders/x"}, 422, "is not a valid scope"),
        ("threads", {"value": 4, "place": "Orders"}, 422, "cannot be set for Orders"),
        ("threads", {"value": 4, "place": "no topic"}, 422, "the topic 'no topic'"),
        ("threads", {"value": 4, "seconds": -1}, 422, "seconds"),
        ("threads", {"value": 4, "seconds": 10**9}, 422, "seconds"),
        ("deny", {"value": ["nobody"]}, 422, "neither an IP address nor a network"),
        ("tags", {"value": "|| ||", "place": "Orders"}, 422, "has no tag"),
        ("thread", {"value": 4}, 404, "there is no dynamic setting 'thread'"),
        ("threads", {"value": 4, "odd": 1}, 422, "odd"),
        ("threads", {"value": 4, "revision": 9}, 409, "has changed in the meantime: it is at revision 0"),
    ],
)
def test_invalid_setting_is_refused_with_the_range(
    api: Running, path: str, body: object, status: int, text: str
) -> None:
    found, answer = api.call("PUT", f"/groups/k2/settings/{path}", body)
    assert found == status
    assert text in answer["error"]
    nothing = {"revision": 0, "members": 0, "newest": 0, "older": [], "settings": [], "knobs": []}
    assert api.get("/groups/k2/settings") == {"group": "k2", **nothing}
    assert entries(api, "k2") == []


def test_offsets_are_requested_and_listed(api: Running) -> None:
    status, made = api.call(
        "POST", "/groups/k3/resets", {"place": "Orders", "to": "first", "reason": "again"}
    )
    assert status == 202
    (found,) = api.get("/groups/k3/resets")
    assert (found["id"], found["to"], found["asked_by"]) == (made["id"], "first", "admin")
    for body, text in (
        ({"place": "*", "to": "first"}, "name the topic or queue"),
        ({"place": "Orders"}, "give exactly one of"),
        ({"place": "Orders", "offset": -1}, "offset must be from 0"),
        ({"place": "Orders", "to": "middle"}, "give exactly one of"),
    ):
        found, answer = api.call("POST", "/groups/k3/resets", body)
        assert found == 422
        assert text in answer["error"]
    assert len(entries(api, "k3")) >= 1


@pytest.mark.proves("pmq:P3")
def test_only_owners_and_operators_change_settings_of_a_group(api: Running) -> None:
    owner, viewer, operator = api.person("k-owns"), api.person("k-looks"), api.person("k-runs", "operator")
    grant = {"name": "k-owns", "kind": "group", "object": "k4", "role": "owner"}
    assert api.call("POST", "/grants", grant)[0] == 200
    calls = (
        ("PUT", "settings/threads", {"value": 4}),
        ("DELETE", "settings/threads", None),
        ("POST", "resets", {"place": "Orders", "to": "last"}),
    )
    for method, path, body in calls:
        assert api.call(method, f"/groups/k4/{path}", body, token=viewer)[0] == 403
        assert api.call(method, f"/groups/k5/{path}", body, token=owner)[0] == 403
        assert api.call(method, f"/groups/k4/{path}", body, token=owner)[0] in (200, 202)
    for method, path, body in calls:
        assert api.call(method, f"/groups/k5/{path}", body, token=operator)[0] in (200, 202)
    for path in ("/settings", "/settings/set", "/groups/k4/settings", "/groups/k4/resets"):
        assert api.call("GET", path, token=viewer)[0] == 200
    assert {one["actor"] for one in entries(api, "k5")} == {"k-runs"}


def test_members_that_apply_the_settings_of_a_group_are_shown(api: Running) -> None:
    for name, value in (("threads", 4), ("batch", 9)):
        assert api.call("PUT", f"/groups/k6/settings/{name}", {"value": value})[0] == 200
    database = Database(api.coordinator.settings.database_url)
    with database.write() as connection:
        number = followers.number(connection, "k6")
        said = {"p#1": SeenMember(0, 9, 1, 0, number, {"batch": "single"}), "q#1": SeenMember(0, 9, 1, 0, 1)}
        managed_groups.save(connection, "k6", 3, KeptGroup(), FIRST, None)
        managed_groups.see(connection, {"k6": (said, "")})
    database.close()
    shown = api.get("/groups/k6/settings")
    assert (shown["members"], shown["newest"], shown["older"]) == (2, 1, ["q#1"])
    batch, threads = shown["settings"]
    assert batch["unable"] == {"p#1": "its handlers take single messages (its own batch is 1)"}
    assert threads["unable"] == {}
    assert [one["settings"] for one in api.get("/groups/k6/members")] == ["newest", "older"]
    assert api.call("PUT", "/groups/k6/settings/threads", {"value": 5})[1]["note"] == ""
    assert api.get("/groups/k6/settings")["newest"] == 0
