from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.coordinator.running import Running
from tests.support import until_sync
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.client.admin.types import GroupMemberInfo


@pytest.fixture
def seen(api: Running) -> Iterator[Running]:
    one = GroupMemberInfo("a@1", "h:1", "JAVA", 513)
    api.cluster.connected = {"roster-g": {"b:1": [one]}, "roster-h": {"b:1": [one]}}
    api.call("POST", "/services/inactive-sweep/run", {})
    until_sync(lambda: len(api.get("/roster")) == 2)
    yield api
    api.cluster.connected = {}


def test_known_members_are_listed(seen: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = seen.get("/roster?group=roster-g")
    assert (found["client_id"], found["language"], found["fenced"]) == ("a@1", "JAVA", False)
    assert 0 < found["first_seen"] <= found["last_seen"]
    assert seen.get("/roster?group=%27%20OR%201%3D1") == []
    viewer = seen.person("roster-viewer")
    assert seen.call("GET", "/roster", token=viewer)[0] == 200
    assert seen.call("GET", "/roster", token="")[0] == 401
    monkeypatch.setenv("SPARROW_COORDINATOR_URL", seen.url)
    monkeypatch.setenv("SPARROW_TOKEN", seen.token)
    shown = CliRunner().invoke(app, ["group", "roster", "roster-g"], env={"COLUMNS": "200"})
    assert "a@1" in shown.stdout
    assert "not fenced" in shown.stdout, "it divides queues by itself"
    assert "roster-h" not in shown.stdout
    listed = CliRunner().invoke(app, ["group", "roster", "--json"])
    assert len(listed.stdout.splitlines()) == 2
