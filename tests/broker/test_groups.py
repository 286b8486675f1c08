"""The group table: system groups, creation on demand, persistence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.broker.doubles import FakeClock

from sparrowmq.broker.groups import GroupTable
from sparrowmq.core.names import SYSTEM_GROUPS
from sparrowmq.protocol.bodies import SubscriptionGroupConfig
from sparrowmq.store.config_file import ConfigFile


def table(root: Path, *, auto_create: bool = True) -> GroupTable:
    return GroupTable(ConfigFile(root / "subscriptionGroup.json"), FakeClock(), auto_create=auto_create)


def test_system_groups_are_there_and_others_come_on_demand(tmp_path: Path) -> None:
    groups = table(tmp_path)
    assert set(groups.configs) == set(SYSTEM_GROUPS)
    made = groups.get("orders")
    assert made is not None and made.retry_max_times == 16 and made.retry_queue_nums == 1
    assert table(tmp_path).configs["orders"] == made


def test_without_auto_creation_only_known_and_system_groups_exist(tmp_path: Path) -> None:
    groups = table(tmp_path, auto_create=False)
    assert groups.get("orders") is None
    assert groups.get("CID_RMQ_SYS_ANY") is not None


def test_an_illegal_name_makes_no_group(tmp_path: Path) -> None:
    groups = table(tmp_path)
    for name in ("", "no good", "x" * 121, "DEFAULT_CONSUMER"):
        assert groups.get(name) is None


def test_changes_are_kept_and_counted(tmp_path: Path) -> None:
    groups = table(tmp_path)
    groups.put(SubscriptionGroupConfig(group_name="g", consume_enable=False))
    assert groups.version.counter == 1
    again = table(tmp_path)
    assert again.configs["g"].consume_enable is False and again.version == groups.version
    assert again.delete("g") and not again.delete("g")
    assert "g" not in table(tmp_path).configs


def test_forbidden_topics_of_a_stored_table_hold(tmp_path: Path) -> None:
    stored: dict[str, Any] = {"forbiddenTable": {"g": {"A": 1, "B": 0}}, "subscriptionGroupTable": {}}
    ConfigFile(tmp_path / "subscriptionGroup.json").save(stored)
    groups = table(tmp_path)
    assert groups.is_forbidden("g", "A")
    assert not groups.is_forbidden("g", "B") and not groups.is_forbidden("h", "A")
    groups.get("g")
    assert table(tmp_path).is_forbidden("g", "A")
