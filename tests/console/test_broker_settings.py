"""Settings of a broker that change while it runs: their range, the permission, the audit entry."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from tests.console.site import Reader, Site

import sparrowmq as mq
from sparrowmq.testing import LocalCluster


@pytest.fixture
def base(cluster: LocalCluster) -> str:
    return f"/brokers/{quote(cluster.broker_address, safe='')}"


def test_setting_is_changed_while_the_broker_runs(
    console: Site, admin: Reader, cluster: LocalCluster, base: str
) -> None:
    page = admin.page(base)
    assert "fileReservedTime" in page.part("changeable") and "a whole number from" in page.part("changeable")
    with mq.Admin(namesrv=cluster.namesrv) as brokers:
        before = brokers.brokers.settings("broker-a")["fileReservedTime"]
        path, fields = f"{base}/settings", {"fileReservedTime": "48"}
        seen = admin.post(path, fields | {"csrf": admin.page(path).hidden("csrf"), "step": "look"})
        assert f"fileReservedTime: {before} → 48" in seen.words
        assert admin.change(path, fields).status == 303
        assert brokers.brokers.settings("broker-a")["fileReservedTime"] == "48"
        late = {"csrf": seen.hidden("csrf"), "stamp": seen.hidden("stamp"), "step": "do", "reason": "late"}
        assert admin.post(path, {"fileReservedTime": "50"} | late).status == 409
        assert admin.change(path, {"fileReservedTime": before}).status == 303
    (_, entry) = json.loads(console.call("GET", "/audit?action=broker.settings").text)[:2]
    assert entry["after"] == {"fileReservedTime": "48"} and entry["object"] == "broker-a"


@pytest.mark.parametrize("value", ["-1", "many", "", "48\n49", "9" * 30])
def test_value_out_of_range_is_refused_with_the_range(admin: Reader, base: str, value: str) -> None:
    answer = admin.change(f"{base}/settings", {"fileReservedTime": value})
    assert answer.status == 422 and "must be a whole number from" in answer.words


def test_only_operators_change_only_dynamic_settings(
    console: Site, viewer: Reader, cluster: LocalCluster, base: str
) -> None:
    path = f"/cluster/servers/{quote(cluster.broker_address, safe='')}/settings"
    for changes in ({"listenPort": "1"}, {"nothing": "1"}, {}):
        answer = console.call("PATCH", path, json.dumps({"changes": changes}).encode())
        assert answer.status == 422, changes
    old = {"changes": {"fileReservedTime": "48"}, "expected": {"fileReservedTime": "1"}}
    assert console.call("PATCH", path, json.dumps(old).encode()).status == 409
    assert viewer.get(f"{base}/settings").status == 403
    token = viewer.cookies["sparrow_session"]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = json.dumps({"changes": {"fileReservedTime": "48"}}).encode()
    answer = Reader(console.address).ask("PATCH", f"/api/v1{path}", body, headers)
    assert answer.status == 403
