from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.coordinator.services.watched import MadeUp, member, place, queue, step
from tests.support import about

from sparrowmq.client.admin.types import MemberStatus
from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.services.groups.unassigned import (
    GroupMembers,
    QueueAlarm,
    inactive,
    members_of,
    unassigned,
)
from sparrowmq.core.errors import CoordinatorError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ProcessQueueInfo

QUEUES = [queue(number=0), queue(number=1)]


def members(
    *online: str, wanted: Sequence[MessageQueue] = (), owned: Sequence[MessageQueue] = (), **options: Any
) -> GroupMembers:
    return GroupMembers(list(online), frozenset(wanted), frozenset(owned), **options)


def having(name: str, *queues: MessageQueue, **more: Any) -> MemberStatus:
    """A member that subscribes to t and has these queues."""
    info = {"subscriptions": (SubscriptionData("t"),), "queues": dict.fromkeys(queues, ProcessQueueInfo())}
    return member(name, **(info | more))


@pytest.mark.proves("pmq:4")
def test_queue_without_a_member_is_named() -> None:
    (found,) = unassigned("g", members("a", "b", wanted=QUEUES, owned=QUEUES[:1]))
    assert (found.key, found.group, found.topic) == ("g t broker-a 1", "g", "t")
    assert found.text == ("no member of group g reads queue 1 of t on broker-a: 2 members are online")
    (alone,) = unassigned("g", members("a", wanted=QUEUES, owned=QUEUES[:1]))
    assert alone.text.endswith("1 member is online")


@pytest.mark.parametrize(
    "of_group",
    [
        members("a", wanted=QUEUES, owned=QUEUES),
        members("a", wanted=QUEUES, silent=["a"]),
        members("a", broadcasting=True),
        members(),
    ],
)
def test_healthy_and_unknown_groups_are_not_reported(of_group: object) -> None:
    assert unassigned("g", of_group) == []  # type: ignore[arg-type]


def test_offline_group_is_reported_when_messages_wait() -> None:
    (found,) = inactive("g", members(), [place(3), place(4, topic="u"), place(0, topic="v")])
    assert (found.key, found.text) == ("g", "no member of group g is online; 7 unread messages of t, u")
    assert inactive("g", members(), [place(0)]) == []
    assert inactive("g", members("a"), [place(5)]) == []


def test_both_rules_fire_and_resolve(database: Database) -> None:
    cluster = MadeUp()
    service = QueueAlarm(cluster, Channels())
    cluster.routes["t"] = QUEUES
    cluster.groups.update({"g": [having("a", QUEUES[0])], "h": []})
    cluster.seen.places.update({"g": [place(0)], "h": [place(5)]})
    assert step(database, service).counts["unassigned-queue fired"] == 0
    counts = step(database, service, hold_seconds=0).counts
    assert (counts["unassigned-queue fired"], counts["inactive-group fired"]) == (1, 1)
    cluster.groups.update({"g": [member("a", error="no answer")], "h": [having("b", *QUEUES)]})
    counts = step(database, service, hold_seconds=0).counts
    assert (counts["unassigned-queue resolved"], counts["inactive-group resolved"]) == (0, 1)
    with database.read() as connection:
        assert [row.key for row in table.search(connection, [AlarmState.FIRING])] == ["g t broker-a 1"]
    cluster.groups.update({"g": [having("a", *QUEUES)], "h": [having("b", *QUEUES)]})
    counts = step(database, service).counts
    assert (counts["unassigned-queue resolved"], counts["age_seconds"] >= 0) == (1, True)


def test_members_are_combined_from_all_reports() -> None:
    routes = {"t": frozenset(QUEUES)}
    of_group = [having("a", QUEUES[0]), having("b", QUEUES[1]), member("c", error="x")]
    assert members_of(of_group, routes, ()) == members(
        "a", "b", "c", wanted=QUEUES, owned=QUEUES, silent=["c"]
    )
    blind = members_of([having("a", QUEUES[0])], {}, {"t"})
    assert (blind.wanted, blind.silent) == (frozenset(), ["a"]), "nobody could look at a topic of theirs"
    assert members_of([having("a", QUEUES[0])], {}, ()).wanted == frozenset(), "a topic that is not made yet"
    java = having("a", properties={"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"})
    assert members_of([java], routes, ()).silent == ["a"], "Java's pull consumers do not say"
    alone = members_of([having("a", properties={"messageModel": "BROADCASTING"})], routes, ())
    assert alone == members("a", broadcasting=True)


def test_unreachable_cluster_is_a_failure(database: Database) -> None:
    cluster = MadeUp()
    cluster.groups_failed["g"] = "gone"
    with pytest.raises(CoordinatorError, check=about(what="group", value="gone")):
        step(database, QueueAlarm(cluster, Channels()))
