"""The right to silence alarms: an alarm about a group belongs to the group's owners, whatever its topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.coordinator.api.furnished import House, furnished

from sparrowmq.coordinator.alarms import table as alarms
from sparrowmq.coordinator.alarms.machine import AlarmPolicy, AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.alarms.table import AlarmCheck, Condition
from sparrowmq.coordinator.api.shared import PREFIX
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.users import people


@pytest.fixture
def house(migrated: Path, tmp_path: Path) -> Iterator[House]:
    with furnished(migrated, tmp_path) as found:
        yield found


CONDITIONS = (
    Condition("both", "of a group on a topic", "billing", "Orders"),
    Condition("group", "of a group", "billing", ""),
    Condition("topic", "of a topic", "", "Orders"),
    Condition("neither", "of neither", "", ""),
)


@pytest.mark.parametrize("call", ["acknowledge", "silence", "wake"])
@pytest.mark.parametrize(
    ("kind", "name", "may"),
    [("topic", "Orders", {"topic"}), ("group", "billing", {"both", "group"}), ("group", "other", set())],
)
def test_rights_on_alarms_depend_on_the_group(
    house: House,
    call: str,
    kind: str,
    name: str,
    may: set[str],
) -> None:
    database = house.app.state.context.database
    with database.write() as connection:
        people.grant(connection, "viewer", (kind, name), "owner", Actor("admin"))
        alarms.observe(connection, AlarmCheck("lag", AlarmPolicy(), CONDITIONS), Actor("check"), Channels())
        found = {row.key: row for row in alarms.search(connection, [AlarmState.FIRING], rule="lag")}
    assert set(found) >= {one.key for one in CONDITIONS}
    allowed = set()
    for one in CONDITIONS:
        body = {"minutes": 5} if call == "silence" else {}
        asked = house.ask("POST", f"{PREFIX}/alarms/{found[one.key].id}/{call}", body, house.tokens["viewer"])
        if asked.status == 403:
            assert "may not edit " in asked.answer["error"]
        else:
            assert asked.status == (409 if call == "wake" else 200), asked
            allowed.add(one.key)
    assert allowed == may
