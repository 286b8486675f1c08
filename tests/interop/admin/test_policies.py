"""Policies of groups over stock Java members: lists, maximum, assignments, pauses, and the fence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.coordinator.groups.serving import serve_members
from tests.interop.driver import JavaConsumer, JavaDriver
from tests.support import run, until, until_sync

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.coordinator.cluster.clients import ClusterCalls
from sparrowmq.coordinator.groups.initial_state import Terms
from sparrowmq.coordinator.groups.plan import AdmissionRules
from sparrowmq.coordinator.groups.unfenced import UnfencedGroups
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop

SECONDS = 60.0


@pytest.fixture
def admin(ours: LocalCluster) -> Iterator[mq.Admin]:
    with mq.Admin(ours.namesrv) as made:
        yield made


def ids(admin: mq.Admin, group: str) -> list[str]:
    found = admin.groups.connections(group)
    return [] if found is None else sorted(one.client_id for one in found.members)


def stored(admin: mq.Admin, group: str, topic: str) -> int:
    return sum(place.broker_offset for place in admin.groups.progress(group, topic))


def holds(consumer: JavaConsumer) -> int:
    return len(consumer.assigned())


@pytest.mark.proves("MUST-72")
def test_two_java_members_are_steered_by_lists_pauses_and_maximum(
    ours: LocalCluster, admin: mq.Admin, driver: JavaDriver, name: str
) -> None:
    ours.create_topic(name, queues=4)
    group, subscriptions = f"{name}_c", {name: "*"}
    with driver.consumer(ours.namesrv, group, subscriptions) as one:
        until_sync(lambda: len(ids(admin, group)) == 1)
        (first,) = ids(admin, group)
        with driver.consumer(ours.namesrv, group, subscriptions) as two:
            until_sync(lambda: (holds(one), holds(two)) == (2, 2), SECONDS)
            (second,) = set(ids(admin, group)) - {first}
            admin.policies.set(mq.GroupPolicy(group, members=[second, first], maximum=1))
            until_sync(lambda: (holds(one), holds(two)) == (0, 4), SECONDS)
            pause = mq.PauseRule(name, reason="repair")
            admin.policies.set(mq.GroupPolicy(group, revision=2, members=[first], pauses=[pause]))
            until_sync(lambda: (holds(one), holds(two)) == (4, 0), SECONDS)
            with mq.Producer(f"{name}_p", namesrv=ours.namesrv) as producer:
                for number in range(8):
                    producer.send(mq.Message(name, b"%d" % number))
            until_sync(lambda: stored(admin, group, name) == 8, SECONDS)
            assert one.received() == two.received() == []
            admin.policies.set(mq.GroupPolicy(group, revision=3, members=[first]))
            assert len(one.wait(8)) == 8
            admin.policies.set(mq.GroupPolicy(group, revision=4, members=[]))
            until_sync(lambda: (holds(one), holds(two)) == (0, 0), SECONDS)


def test_java_members_that_ask_get_the_plan_and_are_kept_from_fenced_queues(
    ours: LocalCluster, admin: mq.Admin, driver: JavaDriver, name: str
) -> None:
    ours.create_topic(name, queues=3)
    group, subscriptions = f"{name}_c", {name: "*"}

    def grants(generation: int, *owners: str) -> list[mq.QueueGrant]:
        return [
            mq.QueueGrant(name, "broker-a", number, generation, owner, owner == "ours")
            for number, owner in enumerate(owners)
        ]

    # A member whose broker has no answer in its first moments divides queues itself for ever.
    admin.policies.set(mq.GroupPolicy(group, queues=grants(1, "", "", "")))
    with driver.consumer(ours.namesrv, group, subscriptions, asks_broker=True) as one:
        until_sync(lambda: len(ids(admin, group)) == 1)
        (first,) = ids(admin, group)
        admin.policies.set(mq.GroupPolicy(group, revision=2, queues=grants(2, first, "ours", first)))
        with driver.consumer(ours.namesrv, group, subscriptions, asks_broker=True) as two:
            until_sync(lambda: [queue.queue_id for queue in one.assigned()] == [0, 2], SECONDS)
            until_sync(lambda: len(ids(admin, group)) == 2)
            (second,) = set(ids(admin, group)) - {first}
            moved = grants(3, first, "ours", second)
            moved[0] = grants(2, first)[0]
            admin.policies.set(mq.GroupPolicy(group, revision=3, queues=moved))
            until_sync(lambda: [queue.queue_id for queue in two.assigned()] == [2], SECONDS)
            until_sync(lambda: [queue.queue_id for queue in one.assigned()] == [0], SECONDS)
            with mq.Producer(f"{name}_p", namesrv=ours.namesrv) as producer:
                for number in range(3):
                    producer.send(
                        mq.Message(name, b"%d" % number), queue=mq.MessageQueue(name, "broker-a", number)
                    )
            assert [message.body for message in one.wait(1)] == [b"0"]
            assert [message.body for message in two.wait(1)] == [b"2"]
        admin.policies.delete(group)


def test_java_members_follow_the_rules_of_their_group_and_keep_off_managed_ones(
    ours: LocalCluster, admin: mq.Admin, driver: JavaDriver, name: str
) -> None:
    """Rules reach a group of Java's by its list. A managed member has the group for itself until the policy
    is deleted.
    """
    topic, group = f"{name[:60]}_t", f"{name[:60]}_g"
    ours.create_topic(topic, queues=4)
    with driver.consumer(ours.namesrv, group, {topic: "*"}) as one:
        until_sync(lambda: holds(one) == 4, SECONDS)

        async def main() -> None:
            async with aio.Admin(namesrv=ours.namesrv) as asked:
                unfenced = UnfencedGroups(ClusterCalls(asked), 1, lambda group: False)

                async def rule(rules: AdmissionRules) -> list[str]:
                    return await unfenced.look({group: Terms(rules=rules)})

                assert await rule(AdmissionRules.parse(deny=["0.0.0.0/0"])) == [group]
                await until(lambda: holds(one) == 0, SECONDS)
                assert await rule(AdmissionRules(maximum=1)) == [group]
                await until(lambda: holds(one) == 4, SECONDS)
                async with serve_members(ClusterCalls(asked), host="127.0.0.1", port=0):
                    settings = mq.ConsumerSettings(managed=True)
                    ours_member = aio.PushConsumer(group, namesrv=ours.namesrv, settings=settings)
                    ours_member.subscribe(topic, handler=print)
                    async with ours_member:
                        await until(lambda: len(ours_member.assignment) >= 4, SECONDS)
                        await until(lambda: holds(one) == 0, SECONDS)
                        assert await rule(AdmissionRules(maximum=2)) == [], "it is managed"
                await asked.policies.delete(group)
                await until(lambda: holds(one) == 4, SECONDS)

        run(main())
