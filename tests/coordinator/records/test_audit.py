"""The audit log. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.conftest import LONG

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import Actor, Search, record, search

BURST = 10_000 if LONG else 300


def add(database: Database, actor: Actor, action: str = "x", name: str = "s") -> None:
    with database.write() as connection:
        record(connection, actor, action, ("service", name), before={"a": 1}, after={"a": "ü\U0001f600"})


def find(database: Database, wanted: Search) -> list[audit.AuditEntry]:
    with database.read() as connection:
        return search(connection, wanted)


def test_entry_has_user_change_time_and_reason(database: Database) -> None:
    add(database, Actor("ann", "because", 7))
    (found,) = find(database, Search())
    assert (found.actor, found.action, found.kind, found.object) == ("ann", "x", "service", "s")
    assert (found.before, found.after, found.reason, found.generation) == (
        {"a": 1}, {"a": "ü\U0001f600"}, "because", 7,
    )  # fmt: skip
    with database.read() as connection:
        assert abs(database.now(connection) - found.at) < 60_000


@pytest.mark.proves("pmq:P3")
def test_rolled_back_change_leaves_no_entry(database: Database) -> None:
    with pytest.raises(ZeroDivisionError), database.write() as connection:
        record(connection, Actor("ann"), "x", ("service", "s"))
        raise ZeroDivisionError
    assert find(database, Search()) == []


@pytest.mark.proves("pmq:P4")
def test_search_fields_are_values_never_sql(database: Database) -> None:
    for name in ("ann", "bob"):
        add(database, Actor(name), f"did-{name}", name)
    assert [one.actor for one in find(database, Search(actor="ann"))] == ["ann"]
    assert [one.actor for one in find(database, Search(kind="service", object="bob"))] == ["bob"]
    for evil in ("' OR '1'='1", "ann' --", "%", "ann\\", '"; DROP TABLE audit; --'):
        for field in ("actor", "action", "kind", "object"):
            assert find(database, Search(**{field: evil})) == []
    assert len(find(database, Search())) == 2


def test_pages_go_backwards_and_are_bounded(database: Database) -> None:
    for number in range(5):
        add(database, Actor(str(number)))
    first = find(database, Search(count=2))
    assert [one.actor for one in first] == ["4", "3"]
    second = find(database, Search(count=2, before_id=first[-1].id))
    assert [one.actor for one in second] == ["2", "1"]
    assert len(find(database, Search(count=-5))) == 1
    assert len(find(database, Search(count=10**9))) == 5


def test_burst_is_stored_completely(database: Database) -> None:
    """Many users at once, one transaction per entry."""
    names = {str(number) for number in range(BURST)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: add(database, Actor("ann"), name=name), sorted(names)))
    found: list[audit.AuditEntry] = []
    while page := find(database, Search(count=500, before_id=found[-1].id if found else None)):
        found += page
    assert (len(found), {one.object for one in found}) == (BURST, names)


def test_too_long_texts_are_truncated(database: Database) -> None:
    add(database, Actor("a" * 500, "r" * 5000), name="n" * 5000)
    (found,) = find(database, Search())
    assert (len(found.actor), len(found.reason), len(found.object)) == (100, 500, 600)
