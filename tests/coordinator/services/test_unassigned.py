from __future__ import annotations

import pytest
from tests.coordinator.services.watched import MadeUp, members, place, queue, step

from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import State
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.services.unassigned import QueueAlarm, inactive, unassigned
from sparrowmq.core.errors import CoordinatorError

QUEUES = [queue(number=0), queue(number=1)]


@pytest.mark.proves("pmq:4")
def test_a_queue_that_no_member_has_is_named() -> None:
    (found,) = unassigned("g", members("a", "b", wanted=QUEUES, owned=QUEUES[:1]))
    assert (found.key, found.group, found.topic) == ("g t broker-a 1", "g", "t")
    assert found.text == (
        "nobody of the group g reads queue 1 of t on broker-a: 2 members are online, none does"
    )
    (alone,) = unassigned("g", members("a", wanted=QUEUES, owned=QUEUES[:1]))
    assert alone.text.endswith("1 member is online and does not")


@pytest.mark.parametrize(
    "of_group",
    [
        members("a", wanted=QUEUES, owned=QUEUES),
        members("a", wanted=QUEUES, silent=["a"]),
        members("a", broadcasting=True),
        members(),
    ],
)
def test_nothing_is_said_of_groups_that_are_well_or_not_known(of_group: object) -> None:
    assert unassigned("g", of_group) == []  # type: ignore[arg-type]


def test_a_group_nobody_is_online_of_is_named_when_messages_wait() -> None:
    (found,) = inactive("g", members(), [place(3), place(4, topic="u"), place(0, topic="v")])
    assert (found.key, found.text) == ("g", "nobody of the group g is online; 7 messages of t, u wait")
    assert inactive("g", members(), [place(0)]) == []
    assert inactive("g", members("a"), [place(5)]) == []


def test_both_rules_fire_and_resolve(database: Database) -> None:
    cluster = MadeUp()
    service = QueueAlarm(cluster, Channels())
    cluster.seen.members.update({"g": members("a", wanted=QUEUES, owned=QUEUES[:1]), "h": members()})
    cluster.seen.places.update({"g": [place(0)], "h": [place(5)]})
    assert step(database, service).counts["unassigned-queue fired"] == 0
    counts = step(database, service, hold_seconds=0).counts
    assert (counts["unassigned-queue fired"], counts["inactive-group fired"]) == (1, 1)
    cluster.seen.members.update({"g": members("a", wanted=QUEUES, silent=["a"]), "h": members("b")})
    counts = step(database, service, hold_seconds=0).counts
    assert (counts["unassigned-queue resolved"], counts["inactive-group resolved"]) == (0, 1)
    with database.read() as connection:
        assert [row.key for row in table.search(connection, [State.FIRING])] == ["g t broker-a 1"]
    cluster.seen.members["g"] = members("a", wanted=QUEUES, owned=QUEUES)
    assert step(database, service).counts["unassigned-queue resolved"] == 1


def test_a_cluster_that_cannot_be_looked_at_is_a_failure(database: Database) -> None:
    cluster = MadeUp()
    cluster.seen.failed["g"] = "gone"
    with pytest.raises(CoordinatorError, match="no group could be looked at: gone"):
        step(database, QueueAlarm(cluster, Channels()))
