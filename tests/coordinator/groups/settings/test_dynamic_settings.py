"""Dynamic settings in the database. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import update
from tests.support import about

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import group_setting
from sparrowmq.coordinator.groups import dynamic_settings
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue
from sparrowmq.core.errors import InvalidExpressionError, InvalidNameError, RefusedError

ANN = Actor("ann", "why")
ALL = SettingPlace()
ORDERS = SettingPlace("Orders")


def put(
    database: Database, name: str, place: SettingPlace, value: object, **more: Any
) -> dynamic_settings.SettingRow:
    with database.write() as connection:
        return dynamic_settings.put(connection, "billing", name, place, value, more.pop("actor", ANN), **more)


def entries(database: Database) -> list[audit.AuditEntry]:
    with database.read() as connection:
        return audit.search(connection, audit.Search(kind="group", object="billing"))[::-1]


def rows(database: Database, **more: Any) -> list[dynamic_settings.SettingRow]:
    with database.read() as connection:
        return dynamic_settings.read(connection, **more)


def let_end(database: Database, name: str) -> None:
    with database.write() as connection:
        connection.execute(update(group_setting).where(group_setting.c.name == name).values(until=1))


def test_settings_are_set_changed_and_unset_with_audit_entries(database: Database) -> None:
    put(database, "threads", ALL, 4)
    put(database, "threads", ALL, 8)
    put(database, "delay", ORDERS, 1.5)
    found = rows(database, group="billing")
    assert [(one.setting, one.changed_by) for one in found] == [
        (SettingValue("delay", ORDERS, 1.5, reason="why"), "ann"),
        (SettingValue("threads", ALL, 8, reason="why"), "ann"),
    ]
    assert found[0].changed_at > 0
    with database.write() as connection:
        dynamic_settings.remove(connection, "billing", "threads", ALL, ANN)
    assert [one.setting.name for one in rows(database)] == ["delay"]
    first, second, third, last = entries(database)
    assert (first.action, first.before, first.after) == (
        "setting.set", None, {"knob": "threads", "place": "*", "value": 4},
    )  # fmt: skip
    assert (second.before, second.after) == (first.after, {"knob": "threads", "place": "*", "value": 8})
    assert third.after == {"knob": "delay", "place": "Orders", "value": 1.5}
    assert (last.action, last.before, last.after) == ("setting.unset", second.after, None)
    assert [one.generation for one in (first, second, third, last)] == [1, 2, 3, 4]
    assert {one.reason for one in (first, last)} == {"why"}
    with database.read() as connection:
        assert dynamic_settings.revision(connection, "billing") == 4
        assert dynamic_settings.revision(connection, "other") == 0


@pytest.mark.parametrize(
    ("name", "place", "value", "status", "limit"),
    [
        ("threads", ALL, 0, 422, "1 to 1000 handlers"),
        ("threads", ORDERS, 5, 422, "Orders"),
        ("thread", ALL, 5, 404, None),
        ("deny", ALL, ["x"], 422, ""),
        ("' OR 1=1 --", ALL, 5, 404, None),
    ],
)
def test_invalid_settings_are_refused_and_leave_nothing(
    database: Database, name: str, place: SettingPlace, value: object, status: int, limit: str | None
) -> None:
    with pytest.raises(RefusedError, check=about(status=status, what=name, limit=limit)):
        put(database, name, place, value)
    assert (rows(database), entries(database)) == ([], [])


def test_names_times_and_tags_are_checked(database: Database) -> None:
    with pytest.raises(InvalidExpressionError):
        put(database, "tags", ORDERS, "|| ||")
    with pytest.raises(RefusedError, check=about(status=422, what="duration", value=-1)):
        put(database, "delay", ALL, 1, for_ms=-1)
    with database.write() as connection, pytest.raises(InvalidNameError):
        dynamic_settings.put(connection, "no group", "threads", ALL, 1, ANN)
    with (
        database.write() as connection,
        pytest.raises(RefusedError, check=about(status=404, what="threads", value=str(ALL))),
    ):
        dynamic_settings.remove(connection, "billing", "threads", ALL, ANN)
    assert rows(database) == []


def test_temporary_setting_expires_and_is_removed_with_an_audit_entry(database: Database) -> None:
    made = put(database, "threads", ALL, 4, for_ms=60_000)
    assert made.setting.until == made.changed_at + 60_000
    put(database, "delay", ALL, 4)
    assert len(rows(database)) == 2
    let_end(database, "threads")
    assert [one.setting.name for one in rows(database)] == ["delay"]
    assert [one.is_over for one in rows(database, over=True)] == [False, True]
    service = Actor("service:rebalance", generation=7)
    with database.write() as connection:
        assert dynamic_settings.expire(connection, service) == 1
        assert dynamic_settings.expire(connection, service) == 0
    last = entries(database)[-1]
    assert (last.actor, last.action, last.after) == ("service:rebalance", "setting.expire", None)
    assert len(rows(database, over=True)) == 1


def test_expired_setting_that_is_not_removed_yet_does_not_apply(database: Database) -> None:
    put(database, "threads", ALL, 4, for_ms=60_000)
    let_end(database, "threads")
    with (
        database.write() as connection,
        pytest.raises(RefusedError, check=about(status=404, what="threads", value=str(ALL))),
    ):
        dynamic_settings.remove(connection, "billing", "threads", ALL, ANN)
    put(database, "threads", ALL, 8)
    first, ended, last = entries(database)
    assert (ended.action, ended.before, ended.after) == ("setting.expire", first.after | {"until": 1}, None)
    assert (last.action, last.before) == ("setting.set", None), "it was not set when this one came"
    assert [one.setting.value for one in rows(database)] == [8]


def test_concurrent_change_by_another_user_is_reported(database: Database) -> None:
    put(database, "threads", ALL, 4, expected=0)
    put(database, "threads", ALL, 5, expected=1, actor=Actor("bob"))
    with pytest.raises(RefusedError, check=about(status=409, what="revision", value=2)):
        put(database, "threads", ALL, 6, expected=1)
    assert [(one.setting.value, one.changed_by) for one in rows(database)] == [(5, "bob")]


def test_many_simultaneous_changes_are_applied_one_after_the_other(database: Database) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda number: put(database, "threads", ALL, number), range(1, 9)))
    found = entries(database)
    assert [one.generation for one in found] == list(range(1, 9))
    assert [one.before for one in found[1:]] == [one.after for one in found[:-1]]
    assert rows(database)[0].setting.value == found[-1].after["value"]


def test_number_of_settings_per_group_is_limited(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic_settings, "SETTINGS_MAX", 2)
    put(database, "pause", ALL, True)
    put(database, "pause", SettingPlace("Orders", 1), True)
    put(database, "pause", ALL, True)
    with pytest.raises(RefusedError, check=about(status=422, what="settings", limit=2)):
        put(database, "pause", SettingPlace("Orders", 2), True)


def test_rows_of_a_newer_release_are_ignored(database: Database) -> None:
    put(database, "threads", ALL, 4)
    put(database, "delay", ALL, 4)
    with database.write() as connection:
        mine = group_setting.c.name == "threads"
        connection.execute(update(group_setting).where(mine).values(name="thoughts"))
        connection.execute(update(group_setting).where(group_setting.c.name == "delay").values(value="-1"))
    assert rows(database) == []
