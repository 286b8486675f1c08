"""The group table: system groups, creation on demand, persistence."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.broker.doubles import FakeClock
from tests.support import run

from sparrowmq.broker.tables.groups import GroupTable
from sparrowmq.core.errors import StoreCorruptError, StoreFullError
from sparrowmq.core.names import SYSTEM_GROUPS
from sparrowmq.files import disk
from sparrowmq.protocol.bodies import SubscriptionGroupConfig
from sparrowmq.store.tables.config_file import ConfigFile


def table(root: Path, *, auto_create: bool = True) -> GroupTable:
    return GroupTable(ConfigFile(root / "subscriptionGroup.json"), FakeClock(), auto_create=auto_create)


def test_system_groups_exist_and_others_are_created_on_demand(tmp_path: Path) -> None:
    groups = table(tmp_path)
    assert set(groups.configs) == set(SYSTEM_GROUPS)
    made = groups.get("orders")
    assert made is not None and made.retry_max_times == 16 and made.retry_queue_nums == 1
    assert "orders" not in table(tmp_path).configs
    groups.save()
    assert table(tmp_path).configs["orders"] == made


def test_new_group_does_not_copy_the_table(tmp_path: Path) -> None:
    """The data being saved does not change with it."""
    groups = table(tmp_path)
    configs, before = groups.configs, groups._snapshot()
    groups.get("orders")
    assert groups.configs is configs
    assert "orders" in configs and "orders" not in before.configs
    run(groups.put([SubscriptionGroupConfig(group_name="g")]))
    run(groups.delete("g"))
    run(groups.forbid("orders", "T", forbidden=True))
    assert groups.configs is configs
    assert before.forbidden == {}


def test_without_auto_creation_only_known_and_system_groups_exist(tmp_path: Path) -> None:
    groups = table(tmp_path, auto_create=False)
    assert groups.get("orders") is None
    assert groups.get("CID_RMQ_SYS_ANY") is not None


def test_illegal_name_creates_no_group(tmp_path: Path) -> None:
    groups = table(tmp_path)
    for name in ("", "no good", "x" * 121, "DEFAULT_CONSUMER"):
        assert groups.get(name) is None


def test_changes_are_stored_and_counted(tmp_path: Path) -> None:
    groups = table(tmp_path)
    run(groups.put([SubscriptionGroupConfig(group_name="g", consume_enable=False)]))
    assert groups.version.counter == 1
    again = table(tmp_path)
    assert again.configs["g"].consume_enable is False and again.version == groups.version
    assert run(again.delete("g")) and not run(again.delete("g"))
    assert "g" not in table(tmp_path).configs


def test_pull_bans_are_deleted_with_the_group_unless_that_cannot_be_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    groups = table(tmp_path)
    run(groups.put([SubscriptionGroupConfig(group_name="g")]))
    run(groups.forbid("g", "A", forbidden=True))
    with monkeypatch.context() as patch, pytest.raises(StoreFullError):
        patch.setattr(disk, "replace", full)
        run(groups.delete("g"))
    assert groups.is_forbidden("g", "A") and "g" in groups.configs
    assert run(groups.delete("g"))
    run(groups.put([SubscriptionGroupConfig(group_name="g")]))
    assert not groups.is_forbidden("g", "A"), "it is another group of that name"
    assert not table(tmp_path).is_forbidden("g", "A")


def test_forbidden_topics_of_a_stored_table_apply(tmp_path: Path) -> None:
    stored: dict[str, Any] = {"forbiddenTable": {"g": {"A": 4, "B": 2}}, "subscriptionGroupTable": {}}
    ConfigFile(tmp_path / "subscriptionGroup.json").save(stored)
    groups = table(tmp_path)
    assert groups.is_forbidden("g", "A")
    assert not groups.is_forbidden("g", "B") and not groups.is_forbidden("h", "A")
    groups.get("g")
    groups.save()
    assert table(tmp_path).is_forbidden("g", "A")


def test_full_disk_keeps_new_groups_in_memory_and_refuses_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new group may be used while the disk is full; a requested change must not be applied partly."""
    groups = table(tmp_path)
    run(groups.put([SubscriptionGroupConfig(group_name="kept")]))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "replace", full)
        assert groups.get("new") == groups.get("new") == SubscriptionGroupConfig(group_name="new")
        assert groups.get("newer") is not None
        off = SubscriptionGroupConfig(group_name="kept", consume_enable=False)
        with pytest.raises(StoreFullError, match="No space left on device; free space"):
            run(groups.put([off, SubscriptionGroupConfig(group_name="never")]))
        for change in (groups.delete("kept"), groups.forbid("kept", "A", forbidden=True)):
            with pytest.raises(StoreFullError):
                run(change)
        with pytest.raises(StoreFullError):
            groups.save()
        assert groups.configs["kept"].consume_enable and "never" not in groups.configs
        assert not groups.is_forbidden("kept", "A")
    assert "new" not in table(tmp_path).configs
    run(groups.put([SubscriptionGroupConfig(group_name="later")]))
    assert {"kept", "new", "newer", "later"} <= set(table(tmp_path).configs)


def test_simultaneous_bans_and_deletions_share_a_save(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = table(tmp_path)
    run(groups.put(SubscriptionGroupConfig(group_name=f"g{number}") for number in range(20)))
    saves = []
    replace = disk.replace
    monkeypatch.setattr(disk, "replace", lambda *args, **named: (saves.append(1), replace(*args, **named)))

    async def main() -> None:
        bans = [groups.forbid("g0", f"T{number}", forbidden=True) for number in range(20)]
        await asyncio.gather(*bans, *(groups.delete(f"g{number}") for number in range(1, 20)))

    run(main())
    again = table(tmp_path)
    assert len(saves) <= 2
    assert set(again.configs) == {*SYSTEM_GROUPS, "g0"} and again.version == groups.version
    assert all(again.is_forbidden("g0", f"T{number}") for number in range(20))
    run(groups.forbid("g0", "T0", forbidden=False))
    assert not table(tmp_path).is_forbidden("g0", "T0") and table(tmp_path).is_forbidden("g0", "T1")


@pytest.mark.parametrize(
    "text", ['{"subscriptionGroupTable":5}', '{"subscriptionGroupTable":{"A":{"retryMaxTimes":"x"}}}']
)
def test_error_for_an_invalid_group_table_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "subscriptionGroup.json"
    path.write_text(text)
    with pytest.raises(StoreCorruptError) as caught:
        table(tmp_path)
    assert str(caught.value).startswith(f"{path} is not a table of groups (")


def test_unchanged_table_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups = table(tmp_path)
    groups.get("g")
    groups.save()
    monkeypatch.setattr(disk, "replace", lambda *_, **__: pytest.fail("nothing changed"))
    groups.save()
