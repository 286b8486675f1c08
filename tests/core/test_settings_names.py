from __future__ import annotations

import re

import pytest

from sparrowmq.core.settings_names import BROKER_WITHOUT_EFFECT, LATER, NAMESERVER_WITHOUT_EFFECT, Later


@pytest.mark.parametrize(
    ("text", "off"), [("false", True), (" FALSE ", True), ("true", False), ("", False), ("no", False)]
)
def test_a_switch_may_only_be_off(text: str, off: bool) -> None:
    assert Later("false", "replication").allows(text) is off


@pytest.mark.parametrize(
    ("name", "off", "on"),
    [
        ("brokerRole", "async_master", "SLAVE"),
        ("haMasterAddress", " ", "1.2.3.4:10912"),
        ("inSyncReplicas", "1", "2"),
        ("metricsExporterType", "disable", "PROM"),
        ("storeType", "default", "defaultRocksDB"),
    ],
)
def test_the_value_that_leaves_a_feature_off(name: str, off: str, on: str) -> None:
    assert LATER[name].allows(off)
    assert not LATER[name].allows(on)


def test_names_are_rocketmqs_and_in_one_table_only() -> None:
    for name in (*LATER, *BROKER_WITHOUT_EFFECT, *NAMESERVER_WITHOUT_EFFECT):
        assert re.fullmatch(r"[a-z][A-Za-z0-9]+", name), name
    assert not set(LATER) & (BROKER_WITHOUT_EFFECT | NAMESERVER_WITHOUT_EFFECT)
    assert all(later.feature for later in LATER.values())


def test_both_servers_have_those_of_the_network() -> None:
    common = BROKER_WITHOUT_EFFECT & NAMESERVER_WITHOUT_EFFECT
    assert {"serverSelectorThreads", "useEpollNativeSelector", "rocketmqHome"} <= common
    assert "sendMessageThreadPoolNums" in BROKER_WITHOUT_EFFECT - NAMESERVER_WITHOUT_EFFECT
    assert "clusterTest" in NAMESERVER_WITHOUT_EFFECT - BROKER_WITHOUT_EFFECT
