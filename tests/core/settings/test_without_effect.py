from __future__ import annotations

import re

import pytest

from sparrowmq.core.settings.without_effect import (
    BROKER_WITHOUT_EFFECT,
    LATER,
    NAMESERVER_WITHOUT_EFFECT,
    LaterSetting,
)


@pytest.mark.parametrize(
    ("text", "off"), [("false", True), (" FALSE ", True), ("true", False), ("", False), ("no", False)]
)
def test_feature_of_a_later_release_accepts_only_false(text: str, off: bool) -> None:
    assert LaterSetting("false", "replication").allows(text) is off


@pytest.mark.parametrize(
    ("name", "off", "on"),
    [
        ("totalReplicas", "1", "2"),
        ("storeType", "default", "defaultRocksDB"),
    ],
)
def test_feature_of_a_later_release_accepts_only_its_default(name: str, off: str, on: str) -> None:
    assert LATER[name].allows(off)
    assert not LATER[name].allows(on)


def test_names_look_like_rocketmqs_and_are_in_one_table_only() -> None:
    for name in (*LATER, *BROKER_WITHOUT_EFFECT, *NAMESERVER_WITHOUT_EFFECT):
        assert re.fullmatch(r"[a-z][A-Za-z0-9]+", name), name
    assert not set(LATER) & (BROKER_WITHOUT_EFFECT | NAMESERVER_WITHOUT_EFFECT)
    assert all(later.feature for later in LATER.values())


def test_network_settings_without_effect_are_known_to_both_servers() -> None:
    common = BROKER_WITHOUT_EFFECT & NAMESERVER_WITHOUT_EFFECT
    assert {"serverSelectorThreads", "useEpollNativeSelector", "rocketmqHome"} <= common
    assert "sendMessageThreadPoolNums" in BROKER_WITHOUT_EFFECT - NAMESERVER_WITHOUT_EFFECT
    assert "clusterTest" in NAMESERVER_WITHOUT_EFFECT - BROKER_WITHOUT_EFFECT
