"""Names, ports and directories of several brokers on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.servers import BrokerSettings, Layer, load
from sparrowmq.runtime.broker_plan import BROKERS_MAX, PORT_STEP, REPLICAS_MAX, PlannedBroker, plan_brokers
from sparrowmq.runtime.configure import Sources, broker_texts


def planned(count: int, replicas: int = 1, **given: str) -> list[PlannedBroker]:
    settings, _ = load(BrokerSettings, [Layer("test", given)])
    return plan_brokers(given, settings, count, replicas)


def loaded(one: PlannedBroker) -> BrokerSettings:
    return load(BrokerSettings, [Layer("test", one.texts)])[0]


def test_one_broker_is_as_configured() -> None:
    (one,) = planned(1, brokerName="x", listenPort="5", storePathRootDir="/data/store", regionId="r")
    assert (one.name, one.store) == ("x", Path("/data/store"))
    assert loaded(one) == loaded(PlannedBroker("", Path(), {**one.texts, "brokerName": "x"}))
    assert (loaded(one).listen_port, loaded(one).region_id) == (5, "r")


def test_each_has_its_own_name_port_and_directories() -> None:
    found = planned(3, storePathRootDir="/data/store", storePathCommitLog="/fast/log", regionId="r")
    assert [one.name for one in found] == ["broker-a", "broker-b", "broker-c"]
    settings = [loaded(one) for one in found]
    assert [one.broker_name for one in settings] == ["broker-a", "broker-b", "broker-c"]
    first = BrokerSettings().listen_port
    assert [one.listen_port for one in settings] == [first, first + PORT_STEP, first + 2 * PORT_STEP]
    assert [str(one.store_path_root_dir) for one in settings] == [
        "/data/store",
        "/data/store-b",
        "/data/store-c",
    ]
    assert [str(one.store_path_commit_log) for one in settings] == ["/fast/log", "/fast/log-b", "/fast/log-c"]
    assert {one.region_id for one in settings} == {"r"}
    assert [one.store for one in found] == [one.store_path_root_dir for one in settings]


def test_no_two_share_a_port_or_the_neighbours_that_rocketmq_uses() -> None:
    ports = [loaded(one).listen_port for one in planned(BROKERS_MAX)]
    taken = [port + distance for port in ports for distance in (-2, 0, 1)]
    assert len(set(taken)) == len(taken)


def test_replicas_are_slaves_beside_their_master() -> None:
    found = planned(2, 3, storePathRootDir="/data/store", listenPort="7000", brokerRole="SYNC_MASTER")
    assert [one.name for one in found] == [
        *("broker-a", "broker-a#1", "broker-a#2"),
        *("broker-b", "broker-b#1", "broker-b#2"),
    ]
    settings = [loaded(one) for one in found]
    assert [one.broker_name for one in settings] == ["broker-a"] * 3 + ["broker-b"] * 3
    assert [one.broker_id for one in settings] == [0, 1, 2] * 2
    assert [one.broker_role for one in settings] == ["SYNC_MASTER", "SLAVE", "SLAVE"] * 2
    assert [one.listen_port for one in settings] == [7000, 8000, 9000, 7010, 8010, 9010]
    assert [one.store_path_root_dir.name for one in settings] == [
        *("store", "store-slave1", "store-slave2"),
        *("store-b", "store-b-slave1", "store-b-slave2"),
    ]
    assert [one.store for one in found] == [one.store_path_root_dir for one in settings]


def test_no_two_replicas_share_a_port() -> None:
    ports = [loaded(one).listen_port for one in planned(BROKERS_MAX, REPLICAS_MAX)]
    taken = [port + distance for port in ports for distance in (-2, 0, 1)]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize(
    ("replicas", "role", "other"),
    [(0, "ASYNC_MASTER", ""), (5, "ASYNC_MASTER", ""), (2, "SLAVE", "brokerRole")],
)
def test_replicas_that_are_refused(replicas: int, role: str, other: str) -> None:
    given = {"brokerRole": role, **({"brokerId": "1"} if role == "SLAVE" else {})}
    with pytest.raises(SettingsError, check=about(setting="--replicas", value=replicas, other=other)):
        planned(1, replicas, **given)


def test_other_names_get_an_ending() -> None:
    assert [one.name for one in planned(2, brokerName="x")] == ["x", "x-b"]


def test_any_free_port_stays_any_free_port() -> None:
    assert [loaded(one).listen_port for one in planned(2, listenPort="0")] == [0, 0]


@pytest.mark.parametrize(
    ("count", "port", "setting", "value", "limit"),
    [
        (0, "1", "--brokers", 0, 26),
        (27, "1", "--brokers", 27, 26),
        (3, "65520", "listenPort", 65540, 65535),
    ],
)
def test_what_is_refused(count: int, port: str, setting: str, value: int, limit: int) -> None:
    with pytest.raises(SettingsError, check=about(setting=setting, value=value, limit=limit)):
        planned(count, listenPort=port)


def test_the_texts_are_those_of_all_sources_and_later_ones_win(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text("regionId=file\nbrokerName=file\n")
    sources = Sources(
        defaults={"storePathRootDir": "/default"},
        file=conf,
        environment={"SPARROW_REGION_ID": "environment"},
        assignments=("brokerClusterName=c",),
        options={"listenPort": "7"},
    )
    assert broker_texts(sources) == {
        "storePathRootDir": "/default",
        "regionId": "environment",
        "brokerName": "file",
        "brokerClusterName": "c",
        "listenPort": "7",
    }
