from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.coordinator.running import Running
from tests.support import until_sync

from sparrowmq.coordinator.cluster.fleet import Backlog, FleetBroker


@pytest.fixture
def fleet(api: Running) -> Iterator[Running]:
    """The brokers a and b, and a check that has seen them."""
    api.cluster.there = [FleetBroker("c", "a", 0, "h:1"), FleetBroker("c", "b", 0, "h:2")]
    api.cluster.left = Backlog({"g": 2})
    api.call("POST", "/services/broker-check/run", {})
    until_sync(lambda: {one["broker"] for one in api.get("/brokers")} >= {"a", "b"})
    yield api
    api.cluster.there, api.cluster.permissions, api.cluster.left = [], {}, Backlog()


def state(api: Running, name: str) -> str | None:
    (found,) = api.get(f"/brokers/{name}")
    return found["drain"]["state"] if found["drain"] else None


def test_broker_is_drained_and_put_back(fleet: Running) -> None:
    status, answer = fleet.call("POST", "/brokers/a/drain", {"reason": "new disks"})
    assert (status, answer[0]["drain"]["state"]) == (200, "asked")
    until_sync(lambda: state(fleet, "a") == "draining")
    # The broker is asked what is left after the state was kept.
    until_sync(lambda: fleet.get("/brokers/a")[0]["drain"]["left"]["groups"])
    (shown,) = fleet.get("/brokers/a")
    assert shown["drain"]["left"] == {"messages": 2, "delayed": 0, "unknown": "", "groups": {"g": 2}}
    listed = {one["broker"]: one["drain"] for one in fleet.get("/brokers")}
    assert listed["b"] is None
    assert "groups" not in listed["a"]["left"]
    status, answer = fleet.call("POST", "/brokers/a/remove", {})
    assert (status, answer["error"]) == (
        409,
        "the broker a is draining, not drained: 2 messages that 1 group has not yet read",
    )
    assert fleet.call("POST", "/brokers/a/cancel", {"reason": "later"})[0] == 200
    until_sync(lambda: state(fleet, "a") == "cancelled")
    assert fleet.cluster.permissions["a"] == 6
    entries = fleet.get("/audit?kind=broker&object=a")
    assert [one["action"] for one in reversed(entries)][-4:] == [
        "broker.drain",
        "broker.draining",
        "broker.cancel",
        "broker.cancelled",
    ]
    assert entries[-1]["reason"] == "new disks"


@pytest.mark.proves("pmq:P3")
def test_only_operators_change_brokers_and_everybody_sees_them(fleet: Running) -> None:
    viewer, operator = fleet.person("broker-viewer"), fleet.person("broker-operator", "operator")
    for what in ("drain", "cancel", "remove", "forget"):
        status, answer = fleet.call("POST", f"/brokers/b/{what}", {}, token=viewer)
        assert (status, "requires the role operator" in answer["error"]) == (403, True)
    assert fleet.call("GET", "/brokers/b", token=viewer)[0] == 200
    assert fleet.call("POST", "/brokers/b/drain", {"forced": True}, token=operator)[0] == 200
    assert fleet.call("POST", "/brokers/b/cancel", {}, token=operator)[0] == 200


def test_invalid_input_is_refused(fleet: Running) -> None:
    status, answer = fleet.call("GET", "/brokers/none")
    assert (status, answer["error"]) == (404, "there is no broker 'none'; list all to see them")
    assert fleet.call("POST", "/brokers/none/drain", {})[0] == 404
    assert fleet.call("POST", "/brokers/a/drain", {"forced": "yes"})[0] == 422
    assert fleet.call("POST", "/brokers/a/drain", {"force": True})[0] == 422
    assert fleet.call("POST", "/brokers/a/forget", {})[0] == 409
