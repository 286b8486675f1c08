from __future__ import annotations

import pytest
from tests.coordinator.services.watched import MadeUp, member, queue, step
from tests.support import about

from sparrowmq.client.admin.types import MemberStatus
from sparrowmq.coordinator.alarms import table
from sparrowmq.coordinator.alarms.machine import AlarmPolicy, AlarmState
from sparrowmq.coordinator.alarms.outbox import Channels
from sparrowmq.coordinator.cluster.member_reports import MemberAnswers
from sparrowmq.coordinator.database.connect import Database
from sparrowmq.coordinator.services.groups.plans import (
    PlanCheck,
    checks,
    client_of,
    different,
    double,
    unlike,
)
from sparrowmq.core.errors import CoordinatorError
from sparrowmq.core.subscription import SubscriptionData
from sparrowmq.protocol.bodies import ProcessQueueInfo
from sparrowmq.protocol.managed import GENERATIONS_PROPERTY, QueueGrant, generations_text

IN_HAND = ProcessQueueInfo()


def having(name: str, *numbers: int, generation: int = 0) -> MemberStatus:
    queues = {queue(number=number): IN_HAND for number in numbers}
    text = generations_text(dict.fromkeys(queues, generation))
    return member(name, queues=queues, properties={GENERATIONS_PROPERTY: text} if generation else {})


def grant(number: int, owner: str, generation: int = 3, *, fenced: bool = True) -> QueueGrant:
    return QueueGrant("t", "broker-a", number, generation, owner, fenced)


def wanting(name: str, *subscriptions: SubscriptionData) -> MemberStatus:
    return member(name, subscriptions=subscriptions)


@pytest.mark.proves("pmq:4")
def test_queue_owned_by_two_members_is_named() -> None:
    (found,) = double("g", [having("b", 0, 1), having("a", 1), member("c", error="x")])
    assert (found.key, found.topic) == ("g t broker-a 1", "t")
    assert found.text == "2 members of group g have queue 1 of t on broker-a: a, b"
    dropped = member("a", queues={queue(): ProcessQueueInfo(dropped=True)})
    assert double("g", [having("b", 0), dropped]) == []


def test_owners_with_generations_are_numbered() -> None:
    assert client_of("1.2.3.4@7#99#2.1700.1", fenced=True) == "1.2.3.4@7#99"
    assert client_of("1.2.3.4@7#99", fenced=False) == "1.2.3.4@7#99"
    assert client_of("ours", fenced=True) == "ours"


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([having("a", 0, generation=3), having("b", 1, generation=3)], {}),
        ([having("a", 0), having("b", 1)], {}),
        ([having("a", 0)], {"b": "queue 1 of t on broker-a: it is granted that queue but is not online"}),
        (
            [having("a"), having("b", 1)],
            {"a": "queue 0 of t on broker-a: it is granted that queue but does not have it"},
        ),
        (
            [having("a", 0, 1), having("b", 1)],
            {"a": "queue 1 of t on broker-a: it has that queue, which is granted to b#1.2.3"},
        ),
        (
            [having("a", 0, 2), having("b", 1)],
            {"a": "queue 2 of t on broker-a: it has that queue, which is granted to nobody"},
        ),
        (
            [having("a", 0, generation=2), having("b", 1, generation=3)],
            {"a": "queue 0 of t on broker-a: it has that queue under generation 2; the grant has 3"},
        ),
        ([member("a", error="x"), having("b", 1)], {}),
        (
            [having("a", 1), having("b", 0)],
            {
                "a": "queue 0 of t on broker-a: it is granted that queue but does not have it",
                "b": "queue 0 of t on broker-a: it has that queue, which is granted to a#1.2.3",
            },
        ),
    ],
)
def test_first_difference_of_a_member_from_the_plan_is_shown(
    members: list[MemberStatus], words: dict[str, str]
) -> None:
    grants = [grant(0, "a#1.2.3"), grant(1, "b#1.2.3"), grant(2, "")]
    found = different("g", members, grants)
    assert {one.key: one.text for one in found} == {
        f"g {name}": f"the member {name} of group g differs from the plan at {text}"
        for name, text in words.items()
    }


def test_invalid_property_is_not_a_difference() -> None:
    odd = member("a", queues={queue(): IN_HAND}, properties={GENERATIONS_PROPERTY: "nonsense"})
    assert different("g", [odd], [grant(0, "a#1")]) == []


def test_pull_consumers_that_report_no_queues_are_not_judged() -> None:
    java = member("a", properties={"PROP_CONSUME_TYPE": "CONSUME_ACTIVELY"})
    assert different("g", [java], [grant(0, "a#1.2.3")]) == []


def test_members_with_different_subscriptions_are_named() -> None:
    retry = SubscriptionData("%RETRY%g")
    same = [
        wanting("a", SubscriptionData("T", "A || B", frozenset("AB")), retry),
        wanting("b", SubscriptionData("T", "B||A", frozenset("AB"))),
    ]
    assert unlike("g", same) == unlike("g", [*same, member("c", error="x")]) == []
    (found,) = unlike("g", [*same, wanting("c", SubscriptionData("T", "A", frozenset("A")))])
    assert found.text == (
        "members of group g have 2 different subscriptions; c asks for T TAG A, a for T TAG A || B"
    )


def test_broadcasting_groups_have_no_plan() -> None:
    members = [
        member(name, queues={queue(): IN_HAND}, properties={"messageModel": "BROADCASTING"}) for name in "ab"
    ]
    grants = {"g": [grant(0, "c#1")]}
    assert [check.conditions for check in checks(MemberAnswers({"g": members}), grants, AlarmPolicy())] == [
        (),
        (),
        (),
    ]
    assert checks(MemberAnswers({"g": []}), grants, AlarmPolicy())[1].conditions == ()


def test_lasting_difference_fires_and_resolves(database: Database) -> None:
    cluster = MadeUp()
    service = PlanCheck(cluster, Channels())
    cluster.granted["g"] = [grant(0, "a#1.2.3")]
    cluster.groups["g"] = [having("a", 0), having("b", 0)]
    assert step(database, service).counts["double-queue fired"] == 0
    counts = step(database, service, hold_seconds=0).counts
    assert (counts["double-queue fired"], counts["plan-difference fired"], counts["managed"]) == (1, 1, 1)
    cluster.groups["g"] = [having("a", 0), member("b", error="no answer")]
    counts = step(database, service).counts
    assert (counts["double-queue resolved"], counts["plan-difference resolved"]) == (0, 0)
    cluster.groups["g"] = [having("a", 0), having("b")]
    counts = step(database, service).counts
    assert (counts["double-queue resolved"], counts["plan-difference resolved"]) == (1, 1)
    cluster.groups, cluster.groups_failed = {}, {"g": "gone"}
    with pytest.raises(CoordinatorError, check=about(what="group", value="gone")):
        step(database, service)
    with database.read() as connection:
        assert table.search(connection, [AlarmState.FIRING]) == []
