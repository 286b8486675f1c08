"""Access control of brokers through the coordinator: only for admins, with audit entries that contain no
secrets."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.console.access.guarded import with_access_control
from tests.console.site import Reader, Site

SECRET = "secret-of-alice-42"


@pytest.fixture(scope="module")
def guarded(empty_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    path = tmp_path_factory.mktemp("guarded") / "coordinator.db"
    path.write_bytes(empty_database.read_bytes())
    with with_access_control(path) as found:
        yield found


def call(found: Site, method: str, path: str, **body: object) -> object:
    answer = found.call(method, f"/cluster/access{path}", json.dumps(body).encode() if body else None)
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def test_users_and_policies_are_created_changed_and_deleted(guarded: Site) -> None:
    call(guarded, "PUT", "/users/alice", password=SECRET, reason="a new team")
    users = call(guarded, "GET", "/users")
    assert {"name": "alice", "super_user": False, "enabled": True} in users  # type: ignore[operator]
    call(guarded, "PUT", "/users/alice", enabled=False)
    call(guarded, "POST", "/policies/alice", resources=["Topic:Orders"], actions=["Pub", "Sub"])
    policies: Any = call(guarded, "GET", "/policies?user=alice")
    (policy,) = policies
    assert policy["resource"] == "Topic:Orders" and policy["allow"] and policy["actions"] == ["Pub", "Sub"]
    call(guarded, "DELETE", "/policies/alice?resource=Topic%3AOrders&reason=over")
    assert call(guarded, "GET", "/policies?user=alice") == []
    call(guarded, "DELETE", "/users/alice?reason=left")
    assert "alice" not in str(call(guarded, "GET", "/users"))
    entries = guarded.call("GET", "/audit?kind=access&object=alice").text
    actions = [one["action"] for one in json.loads(entries)]
    assert actions == [
        "access-user.delete",
        "access-policy.delete",
        "access-policy.set",
        "access-user.change",
        "access-user.create",
    ]
    assert SECRET not in entries and '"password":"changed"' in entries.replace(" ", "")


def test_broker_refusal_is_shown_and_audited(guarded: Site) -> None:
    body = json.dumps({"resources": ["Nothing:x"], "actions": ["Pub"]}).encode()
    answer = guarded.call("POST", "/cluster/access/policies/root", body)
    assert answer.status == 502, answer.text
    noted = json.loads(guarded.call("GET", "/audit?action=access-policy.set.failed").text)
    assert len(noted) == 1


def test_only_admins_see_and_change_access(guarded: Site) -> None:
    made = guarded.call("POST", "/people", json.dumps({"name": "olaf", "role": "operator"}).encode())
    token = guarded.reader("olaf", json.loads(made.text)["password"]).cookies["sparrow_session"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    for method, path, body in (
        ("GET", "/users", None),
        ("GET", "/policies", None),
        ("PUT", "/users/eve", b'{"password": "x"}'),
        ("DELETE", "/users/root", None),
        ("POST", "/policies/olaf", b'{"resources": ["*"], "actions": ["All"]}'),
        ("DELETE", "/policies/root", None),
    ):
        answer = Reader(guarded.address).ask(method, f"/api/v1/cluster/access{path}", body, headers)
        assert answer.status == 403, (method, path, answer.text)
