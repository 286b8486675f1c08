from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.running import Running
from tests.coordinator.services.watched import place
from tests.support import until_sync


def service(api: Running, name: str) -> Any:
    return api.get(f"/services/{name}")


def firing(api: Running, group: str) -> Any:
    """The alarm of a group that is far behind."""
    api.cluster.seen.places[group] = [place(10**7)]

    def found() -> Any:
        api.call("POST", "/services/lag-alarm/run", {})
        return api.get(f"/alarms?group={group}&state=firing")

    return until_sync(found)[0]


@pytest.mark.proves("pmq:2")
def test_services_are_shown_with_leader_runs_and_options(api: Running) -> None:
    found = {one["name"]: one for one in api.get("/services")}
    assert set(found) >= {"rebalance", "lag-alarm", "queue-alarm", "broker-check", "notices", "audit-cleanup"}
    shown = until_sync(lambda: (it := service(api, "notices"))["last_run"] and it)
    assert shown["leader"] == api.coordinator.owner.label
    assert shown["epoch"] >= 1
    assert shown["last_run"]["outcome"] == "done"
    assert shown["next_run_ms"] > shown["last_run"]["ended_at"]
    assert api.get("/services/notices/runs?count=1")[0]["service"] == "notices"
    options = {one["name"]: one for one in service(api, "audit-cleanup")["options"]}
    assert (options["keep_days"]["value"], options["keep_days"]["high"]) == (30, 3650)


@pytest.mark.proves("pmq:2", "pmq:T1")
def test_service_is_configured_paused_resumed_and_run(api: Running) -> None:
    name = "/services/audit-cleanup"
    until_sync(lambda: service(api, "audit-cleanup")["last_run"])
    assert (
        api.call("PATCH", name, {"interval_ms": 60_000, "options": {"keep_days": 9}, "reason": "r"})[0] == 200
    )
    found = service(api, "audit-cleanup")
    assert found["interval_ms"] == 60_000
    assert found["next_run_ms"] <= found["now_ms"] + 60_000
    assert api.call("POST", f"{name}/pause", {"reason": "quiet"})[1]["pause_reason"] == "quiet"
    assert api.call("POST", f"{name}/pause", {})[0] == 409
    before = service(api, "audit-cleanup")["last_run"]["id"]
    assert api.call("POST", f"{name}/run", {})[0] == 200
    until_sync(lambda: service(api, "audit-cleanup")["last_run"]["id"] > before)
    assert api.call("POST", f"{name}/resume", {})[1]["paused"] is False
    actions = {one["action"] for one in api.get("/audit?kind=service&object=audit-cleanup&actor=admin")}
    assert actions == {
        "service.interval", "service.options", "service.pause", "service.run", "service.resume",
    }  # fmt: skip


def test_service_is_handed_over_and_its_old_leader_blocked(api: Running) -> None:
    epoch = until_sync(lambda: (it := service(api, "queue-alarm"))["leader"] and it)["epoch"]
    assert api.call("POST", "/services/queue-alarm/hand-over", {"reason": "away"})[0] == 200
    found = service(api, "queue-alarm")
    assert (found["leader"], found["epoch"]) == (None, epoch + 1)
    assert api.call("POST", "/services/queue-alarm/hand-over", {})[0] == 409


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("GET", "/services/none", None, 404, "there is no service 'none'; there are rebalance, lag-alarm"),
        (
            "PATCH",
            "/services/lag-alarm",
            {"interval_ms": 5},
            422,
            "must be from 1 to 604800 seconds, not 0.005",
        ),
        ("PATCH", "/services/lag-alarm", {"options": {"x": 5}}, 422, "has no option 'x'"),
        ("PATCH", "/services/lag-alarm", {"options": {"checks": 0}}, 422, "from 1 to 100, not 0"),
        ("PATCH", "/services/lag-alarm", {"options": {"checks": "5"}}, 422, "options.checks"),
        ("POST", "/alarms/987654/acknowledge", {}, 404, "there is no alarm 987654"),
        ("PUT", "/limits/g", {"messages": -1, "age_ms": 0}, 422, "messages of g must be from 0"),
        ("PUT", "/limits/no%20group", {"messages": 1, "age_ms": 0}, 422, "the group"),
        ("DELETE", "/limits/nolimit", None, 404, "has no limit set"),
        ("GET", "/audit?count=0", None, 422, "count"),
        ("GET", "/alarms?state=odd", None, 422, "state"),
    ],
)
def test_invalid_requests_are_refused_with_a_message(
    api: Running, method: str, path: str, body: object, status: int, text: str
) -> None:
    found, answer = api.call(method, path, body)
    assert found == status
    assert text in answer["error"]


@pytest.mark.proves("pmq:P3", "pmq:8.1")
def test_changes_need_the_right_role(api: Running) -> None:
    viewer, operator = api.person("just-looks"), api.person("operates", "operator")
    for path in ("/services", "/alarms", "/limits", "/audit"):
        assert api.call("GET", path, token=viewer)[0] == 200
    for method, path, body in (
        ("PATCH", "/services/notices", {"interval_ms": 5_000}),
        ("POST", "/services/notices/pause", {}),
        ("POST", "/services/notices/resume", {}),
        ("POST", "/services/notices/run", {}),
        ("POST", "/services/notices/hand-over", {}),
        ("PUT", "/limits/group1", {"messages": 1, "age_ms": 1}),
        ("DELETE", "/limits/group1", None),
    ):
        assert api.call(method, path, body, token=viewer)[0] == 403, path
    assert api.call("PATCH", "/services/notices", {"interval_ms": 5_000}, token=operator)[0] == 200
    assert api.call("PUT", "/limits/group1", {"messages": 1, "age_ms": 1}, token=operator)[0] == 200


def test_owner_changes_only_its_own_group(api: Running) -> None:
    token = api.person("owns-one")
    grant = {"name": "owns-one", "kind": "group", "object": "mine", "role": "owner"}
    assert api.call("POST", "/grants", grant)[0] == 200
    limit = {"messages": 5, "age_ms": 0}
    assert api.call("PUT", "/limits/mine", limit, token=token)[0] == 200
    assert api.call("PUT", "/limits/theirs", limit, token=token)[0] == 403
    shown = {"group": "mine", "topic": "*", "messages": 5, "age_ms": 0, "enabled": True}
    assert shown in api.get("/limits")
    mine, theirs = firing(api, "mine"), firing(api, "theirs")
    assert api.call("POST", f"/alarms/{theirs['id']}/acknowledge", {}, token=token)[0] == 403
    status, answer = api.call("POST", f"/alarms/{mine['id']}/acknowledge", {"reason": "on it"}, token=token)
    assert (status, answer["state"], answer["changed_by"]) == (200, "acknowledged", "owns-one")
    assert api.call("DELETE", "/limits/mine", token=token)[0] == 200


@pytest.mark.proves("pmq:T3")
def test_alarm_is_silenced_woken_acknowledged_and_resolved(api: Running) -> None:
    number = firing(api, "behind")["id"]
    assert api.call("POST", f"/alarms/{number}/silence", {"minutes": 0})[0] == 422
    assert api.call("POST", f"/alarms/{number}/silence", {"minutes": 5})[1]["state"] == "silenced"
    assert api.call("POST", f"/alarms/{number}/wake", {})[1]["state"] == "firing"
    assert api.call("POST", f"/alarms/{number}/wake", {})[0] == 409
    assert api.call("POST", f"/alarms/{number}/acknowledge", {})[1]["state"] == "acknowledged"
    api.cluster.seen.places["behind"] = []
    api.call("PATCH", "/services/lag-alarm", {"options": {"calm_checks": 1}})
    api.call("POST", "/services/lag-alarm/run", {})
    until_sync(lambda: api.get("/alarms?group=behind&state=resolved"))
    assert api.get("/alarms?group=behind") == []


@pytest.mark.proves("pmq:P4")
def test_search_fields_are_values(api: Running) -> None:
    for field in ("actor", "action", "kind", "object"):
        assert api.get(f"/audit?{field}=%27%20OR%201%3D1%20--") == []
    assert api.get("/alarms?group=%27%20OR%201%3D1%20--") == []
