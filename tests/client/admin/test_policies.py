"""Policies through the admin client: enforced on the wire, also after a restart and for stock consumers."""

from __future__ import annotations

import pytest
from tests.support import about, until_sync

import sparrowmq as mq
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing import LocalCluster

FENCED = ResponseCode.GENERATION_FENCED


def grants(cluster: LocalCluster, owner: str, generation: int, *, fenced: bool = True) -> list[mq.QueueGrant]:
    return [mq.QueueGrant("Guarded", "broker-a", number, generation, owner, fenced) for number in range(2)]


@pytest.mark.proves("MUST-72")
def test_fence_applies_before_and_after_a_restart() -> None:
    with LocalCluster() as cluster, mq.Admin(cluster.namesrv) as admin:
        cluster.create_topic("Guarded", queues=2)
        admin.groups.create("guarded")
        policy = mq.GroupPolicy("guarded", queues=grants(cluster, "somebody", 4))
        admin.policies.set(policy)
        admin.policies.set(policy)
        quiet = mq.PullSettings(announce=False)
        with mq.PullConsumer("guarded", namesrv=cluster.namesrv, settings=quiet) as stranger:
            (queue, _) = stranger.queues("Guarded")

            def refused() -> None:
                with pytest.raises(mq.BrokerError, check=about(code=90011)) as caught:
                    stranger.pull(queue, 0)
                assert caught.value.code == FENCED
                with pytest.raises(mq.BrokerError, check=about(code=90011)) as caught:
                    admin.groups.clone_offsets("other", "guarded")
                assert caught.value.code == FENCED

            with mq.PullConsumer("other", namesrv=cluster.namesrv) as other:
                other.commit(queue, 0)
                until_sync(lambda: other.committed(queue) == 0)
            refused()
            cluster.restart_broker()
            refused()
            assert admin.policies.list("guarded")["broker-a"].policies == [policy]
            with pytest.raises(mq.BrokerError, check=about(code=90012)) as caught:
                admin.policies.set(mq.GroupPolicy("guarded", maximum=1))
            assert caught.value.code == ResponseCode.POLICY_OUTDATED
            admin.policies.delete("guarded")
            assert stranger.pull(queue, 0).status is mq.PullStatus.NO_NEW_MESSAGE
            found = admin.policies.list()["broker-a"]
            assert (found.policies, found.retired) == ([], {"guarded": 4})


def test_members_without_generations_are_controlled_by_lists_and_pauses() -> None:
    with LocalCluster() as cluster, mq.Admin(cluster.namesrv) as admin:
        cluster.create_topic("Guarded", queues=2)
        seen: list[str] = []
        settings = mq.ConsumerSettings(consume_from="first", rebalance_interval_min=0.05)

        def member(name: str) -> mq.PushConsumer:
            consumer = mq.PushConsumer("steered", namesrv=cluster.namesrv, settings=settings)
            consumer.subscribe("Guarded", handler=lambda message: seen.append(name))
            return consumer

        def queues(consumer: mq.PushConsumer) -> int:
            return sum(queue.topic == "Guarded" for queue in consumer.assignment)

        with member("one") as one, member("two") as two:
            until_sync(lambda: (queues(one), queues(two)) == (1, 1))
            admin.policies.set(mq.GroupPolicy("steered", members=[two.client_id, one.client_id], maximum=1))
            until_sync(lambda: (queues(one), queues(two)) == (0, 2))
            rest = mq.PauseRule("Guarded", reason="repair")
            admin.policies.set(mq.GroupPolicy("steered", revision=2, members=[one.client_id], pauses=[rest]))
            until_sync(lambda: (queues(one), queues(two)) == (2, 0))
            with mq.Producer("senders", namesrv=cluster.namesrv) as producer:
                for number in range(4):
                    producer.send(mq.Message("Guarded", b"%d" % number))
            until_sync(lambda: sum(place.lag for place in admin.groups.progress("steered", "Guarded")) == 4)
            assert seen == []
            admin.policies.set(mq.GroupPolicy("steered", revision=3, members=[one.client_id]))
            until_sync(lambda: seen == ["one"] * 4)
            admin.policies.set(mq.GroupPolicy("steered", revision=4, members=[]))
            until_sync(lambda: (queues(one), queues(two)) == (0, 0))


def test_member_that_queries_its_broker_gets_the_policys_answer() -> None:
    with LocalCluster() as cluster, mq.Admin(cluster.namesrv) as admin:
        cluster.create_topic("Guarded", queues=2)
        settings = mq.ConsumerSettings(server_assignment=True, rebalance_interval_min=0.05)
        with mq.PushConsumer("asking", namesrv=cluster.namesrv, settings=settings) as consumer:
            consumer.subscribe("Guarded", handler=lambda message: None)
            until_sync(lambda: admin.groups.connections("asking") is not None)
            mine = grants(cluster, consumer.client_id, 1, fenced=False)
            admin.policies.set(mq.GroupPolicy("asking", queues=mine[:1]))
            until_sync(lambda: consumer.assignment == [mq.MessageQueue("Guarded", "broker-a", 0)])
            gone = grants(cluster, "somebody else", 2)[:1]
            admin.policies.set(mq.GroupPolicy("asking", revision=2, queues=[*gone, mine[1]]))
            until_sync(lambda: consumer.assignment == [mq.MessageQueue("Guarded", "broker-a", 1)])
