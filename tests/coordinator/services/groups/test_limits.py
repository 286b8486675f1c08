"""Limits in the database. `tests/databases` runs the same tests on PostgreSQL and MariaDB."""

from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.records import audit
from sparrowmq.coordinator.records.audit import Actor
from sparrowmq.coordinator.services.groups import limits
from sparrowmq.coordinator.services.groups.limits import ALL_TOPICS, Limit
from sparrowmq.core.errors import InvalidNameError, RefusedError

ANN = Actor("ann", "why")


def test_limits_are_set_changed_and_deleted_with_audit_entries(database: Database) -> None:
    with database.write() as connection:
        limits.put(connection, "g", ALL_TOPICS, Limit(5, 0), ANN)
        limits.put(connection, "g", ALL_TOPICS, Limit(7, 1000, False), ANN)
        limits.put(connection, "g", "t", Limit(1, 2), ANN)
        assert limits.read(connection) == {("g", "*"): Limit(7, 1000, False), ("g", "t"): Limit(1, 2)}
        limits.remove(connection, "g", ALL_TOPICS, ANN)
        assert list(limits.read(connection)) == [("g", "t")]
        last, _, second, first = audit.search(connection, audit.Search(object="g"))
    assert (first.before, second.before and second.before["messages"], last.after) == (None, 5, None)
    assert second.after == {"messages": 7, "age_ms": 1000, "enabled": False, "topic": "*"}


@pytest.mark.parametrize(
    ("limit", "what"),
    [(Limit(-1, 0), "messages"), (Limit(0, -1), "age_ms"), (Limit(limits.MESSAGES_MAX + 1, 0), "messages")],
)
def test_values_out_of_range_are_refused_with_the_range(database: Database, limit: Limit, what: str) -> None:
    with pytest.raises(RefusedError, check=about(status=422, what=what)), database.write() as connection:
        limits.put(connection, "g", ALL_TOPICS, limit, ANN)


def test_invalid_names_are_refused(database: Database) -> None:
    for group, topic in (("no group!", "*"), ("g", "no topic!")):
        with pytest.raises(InvalidNameError), database.write() as connection:
            limits.put(connection, group, topic, Limit(1, 1), ANN)
    with (
        pytest.raises(RefusedError, check=about(status=404, what="limit", value=("g", "t"))),
        database.write() as connection,
    ):
        limits.remove(connection, "g", "t", ANN)
