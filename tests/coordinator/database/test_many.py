"""Steps with thousands of rows take few statements, on all databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import event, select

from sparrowmq.aio import GroupMemberInfo
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.database.tables import member_seen, object_use
from sparrowmq.coordinator.records import findings
from sparrowmq.coordinator.records.findings import Finding
from sparrowmq.coordinator.services.groups import growth, roster
from sparrowmq.coordinator.services.housekeeping import governance
from sparrowmq.coordinator.upkeep.governance_rules import Measures, Memory
from sparrowmq.coordinator.upkeep.landscape import Ends, Use
from sparrowmq.core.message import MessageQueue

COUNT = 300


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    found: list[str] = []

    def note(connection: object, cursor: object, text: str, *more: object) -> None:
        found.append(text)

    event.listen(database._engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(database._engine, "before_cursor_execute", note)


def test_topic_memory_takes_few_statements(database: Database) -> None:
    def look(sent: int, count: int) -> int:
        use = Use({f"t{number}": [Ends(MessageQueue("t", "b", 0), 0, sent)] for number in range(count)})
        with statements(database) as found, database.write() as connection:
            governance._judged(connection, use, Measures(1, 1, 1, 2))
        return len(found)

    assert max(look(5, COUNT), look(6, COUNT), look(7, COUNT - 100)) < 15
    with database.read() as connection:
        rows = list(connection.execute(select(object_use)).mappings())
        assert {row["sent"] for row in rows} == {7}
        assert (len(rows), governance._read(connection)["topic", "t0"].sent) == (COUNT - 100, 7)
        assert isinstance(governance._read(connection)["topic", "t0"], Memory)


def test_new_members_and_changed_addresses_take_few_statements(database: Database) -> None:
    def look(address: str) -> int:
        online = {"g": [GroupMemberInfo(f"m{number}", address, "JAVA", 1) for number in range(COUNT)]}
        with statements(database) as found, database.write() as connection:
            roster.note(connection, online, 5)
        return len(found)

    assert max(look("h:1"), look("h:2")) < 15
    with database.read() as connection:
        assert set(connection.execute(select(member_seen.c.address)).scalars()) == {"h:2"}
        assert len(roster.read(connection, "g")) == COUNT


def test_growing_and_deleted_counters_take_few_statements(database: Database) -> None:
    def look(value: int, count: int) -> dict[str, int]:
        values = {f"g{number}": value for number in range(count)}
        with statements(database) as found, database.write() as connection:
            grown = growth.look(connection, "retries", values, 60_000)
        assert len(found) < 15
        return grown

    look(1, COUNT)
    assert set(look(4, COUNT).values()) == {3}
    assert len(look(4, 5)) == 5
    assert look(5, COUNT)["g9"] == 0, "it was forgotten"


def test_new_kept_and_resolved_findings_take_few_statements(database: Database) -> None:
    def look(count: int) -> dict[str, int]:
        all_ = [Finding("k", f"q{number}", "text") for number in range(count)]
        with statements(database) as found, database.write() as connection:
            counts = findings.replace(connection, "consistency", all_)
        assert len(found) < 15
        return counts

    assert look(COUNT) == {"seen": COUNT, "new": COUNT, "gone": 0}
    assert look(COUNT) == {"seen": COUNT, "new": 0, "gone": 0}
    assert look(1) == {"seen": 1, "new": 0, "gone": COUNT - 1}
