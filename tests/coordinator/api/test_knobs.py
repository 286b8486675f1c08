from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.groups.test_table import FIRST
from tests.coordinator.running import Running

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.groups import followers
from sparrowmq.coordinator.groups import table as managed_groups
from sparrowmq.coordinator.groups.ledger import Kept, SeenMember


def entries(api: Running, group: str) -> list[Any]:
    found: list[Any] = api.get(f"/audit?kind=group&object={group}")
    return found


def test_the_table_of_knobs_is_told(api: Running) -> None:
    found = {one["name"]: one for one in api.get("/knobs")}
    assert found["threads"]["range"] == "1 to 1000 handlers"
    assert found["threads"]["pull_consumers"] == "nothing: its application decides"
    assert (found["pause"]["places"], found["pause"]["obeyed_by"]) == (["group", "topic", "queue"], "brokers")


def test_a_knob_is_set_shown_and_unset(api: Running) -> None:
    status, made = api.call("PUT", "/groups/k1/knobs/threads", {"value": 8, "reason": "slow day"})
    assert (status, made["value"], made["changed_by"], made["until_ms"]) == (200, 8, "admin", None)
    assert made["note"] == "nobody is known to be in group k1 now: threads counts for those who come"
    status, made = api.call(
        "PUT", "/groups/k1/knobs/pause", {"value": True, "place": "Orders/3", "seconds": 60}
    )
    assert made["until_ms"] == made["changed_ms"] + 60_000
    shown = api.get("/groups/k1/knobs")
    assert (shown["revision"], [one["knob"] for one in shown["knobs"]]) == (2, ["pause", "threads"])
    everywhere = [(one["group"], one["knob"], one["place"]) for one in api.get("/knobs/set")]
    assert {("k1", "pause", "Orders/3"), ("k1", "threads", "*")} <= set(everywhere)
    assert api.call("DELETE", "/groups/k1/knobs/pause?place=Orders/3&reason=mended")[0] == 200
    assert api.call("DELETE", "/groups/k1/knobs/pause?place=Orders/3")[0] == 404
    assert [one["knob"] for one in api.get("/groups/k1/knobs")["knobs"]] == ["threads"]
    last, _, first = entries(api, "k1")
    assert (first["action"], first["reason"], first["generation"]) == ("knob.set", "slow day", 1)
    assert (last["action"], last["reason"], last["before"]["place"]) == ("knob.unset", "mended", "Orders/3")


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("threads", {"value": 0}, 422, "it takes a whole number, 1 to 1000 handlers"),
        ("threads", {"value": 10**400}, 422, "1 to 1000 handlers"),
        ("threads", {"value": "4"}, 422, "1 to 1000 handlers"),
        ("threads", {"value": {}}, 422, "value"),
        ("threads", {}, 422, "value"),
        ("threads", {"value": 4, "place": "Orders/x"}, 422, "is no place of a group"),
        ("threads", {"value": 4, "place": "Orders"}, 422, "cannot be set for Orders"),
        ("threads", {"value": 4, "place": "no topic"}, 422, "the topic 'no topic'"),
        ("threads", {"value": 4, "seconds": -1}, 422, "seconds"),
        ("threads", {"value": 4, "seconds": 10**9}, 422, "seconds"),
        ("deny", {"value": ["nobody"]}, 422, "neither an address nor a network"),
        ("tags", {"value": "|| ||", "place": "Orders"}, 422, "has no tag"),
        ("thread", {"value": 4}, 404, "there is no knob 'thread'"),
        ("threads", {"value": 4, "odd": 1}, 422, "odd"),
        ("threads", {"value": 4, "revision": 9}, 409, "was changed meanwhile: it is at revision 0"),
    ],
)
def test_what_cannot_be_is_refused_with_the_range(
    api: Running, path: str, body: object, status: int, text: str
) -> None:
    found, answer = api.call("PUT", f"/groups/k2/knobs/{path}", body)
    assert found == status
    assert text in answer["error"]
    nothing = {"revision": 0, "members": 0, "newest": 0, "older": [], "knobs": []}
    assert api.get("/groups/k2/knobs") == {"group": "k2", **nothing}
    assert entries(api, "k2") == []


def test_offsets_are_asked_for_and_listed(api: Running) -> None:
    status, made = api.call(
        "POST", "/groups/k3/resets", {"place": "Orders", "to": "first", "reason": "again"}
    )
    assert status == 202
    (found,) = api.get("/groups/k3/resets")
    assert (found["id"], found["to"], found["asked_by"]) == (made["id"], "first", "admin")
    for body, text in (
        ({"place": "*", "to": "first"}, "name the topic or queue"),
        ({"place": "Orders"}, "give one of to"),
        ({"place": "Orders", "offset": -1}, "offset must be from 0"),
        ({"place": "Orders", "to": "middle"}, "give one of to"),
    ):
        found, answer = api.call("POST", "/groups/k3/resets", body)
        assert found == 422
        assert text in answer["error"]
    assert len(entries(api, "k3")) >= 1


@pytest.mark.proves("pmq:P3")
def test_only_owners_and_operators_change_knobs_of_a_group(api: Running) -> None:
    owner, viewer, operator = api.person("k-owns"), api.person("k-looks"), api.person("k-runs", "operator")
    grant = {"name": "k-owns", "kind": "group", "object": "k4", "role": "owner"}
    assert api.call("POST", "/grants", grant)[0] == 200
    calls = (
        ("PUT", "knobs/threads", {"value": 4}),
        ("DELETE", "knobs/threads", None),
        ("POST", "resets", {"place": "Orders", "to": "last"}),
    )
    for method, path, body in calls:
        assert api.call(method, f"/groups/k4/{path}", body, token=viewer)[0] == 403
        assert api.call(method, f"/groups/k5/{path}", body, token=owner)[0] == 403
        assert api.call(method, f"/groups/k4/{path}", body, token=owner)[0] in (200, 202)
    for method, path, body in calls:
        assert api.call(method, f"/groups/k5/{path}", body, token=operator)[0] in (200, 202)
    for path in ("/knobs", "/knobs/set", "/groups/k4/knobs", "/groups/k4/resets"):
        assert api.call("GET", path, token=viewer)[0] == 200
    assert {one["actor"] for one in entries(api, "k5")} == {"k-runs"}


def test_who_goes_by_a_group_s_knobs_is_shown(api: Running) -> None:
    for name, value in (("threads", 4), ("batch", 9)):
        assert api.call("PUT", f"/groups/k6/knobs/{name}", {"value": value})[0] == 200
    database = Database(api.coordinator.settings.database_url)
    with database.write() as connection:
        number = followers.number(connection, "k6")
        said = {"p#1": SeenMember(0, 9, 1, 0, number, {"batch": "single"}), "q#1": SeenMember(0, 9, 1, 0, 1)}
        managed_groups.save(connection, "k6", 3, Kept(), FIRST, None)
        managed_groups.see(connection, {"k6": (said, "")})
    database.close()
    shown = api.get("/groups/k6/knobs")
    assert (shown["members"], shown["newest"], shown["older"]) == (2, 1, ["q#1"])
    batch, threads = shown["knobs"]
    assert batch["unable"] == {"p#1": "its handlers take single messages (its own batch is 1)"}
    assert threads["unable"] == {}
    assert [one["knobs"] for one in api.get("/groups/k6/members")] == ["newest", "older"]
    assert api.call("PUT", "/groups/k6/knobs/threads", {"value": 5})[1]["note"] == ""
    assert api.get("/groups/k6/knobs")["newest"] == 0
