from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import run, until

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.rebalance import Rebalancer, plan_change
from sparrowmq.core.allocation import Averagely
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol import bodies
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command

MEMBERS = int(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
queue_sets = st.sets(
    st.builds(MessageQueue, st.sampled_from("TU"), st.sampled_from("ab"), st.integers(0, 3)), max_size=10
)


@pytest.mark.proves("client:C.6-1")
@given(queue_sets, queue_sets)
def test_plan_lists_changes_from_owned_to_wanted_queues(
    owned: set[MessageQueue], wanted: set[MessageQueue]
) -> None:
    target = {queue for queue in wanted if queue.topic == "T"}
    change = plan_change("T", owned, target)
    result = (owned - set(change.leaving)) | set(change.joining)
    assert {queue for queue in result if queue.topic == "T"} == target
    assert {queue for queue in result if queue.topic != "T"} == {q for q in owned if q.topic != "T"}
    assert not set(change.joining) & owned


@pytest.mark.proves("client:C.5.3")
def test_queues_of_other_topics_named_by_a_strategy_are_taken_once() -> None:
    here, there, new = MessageQueue("T", "a", 0), MessageQueue("U", "a", 0), MessageQueue("U", "a", 1)
    change = plan_change("T", [here, there], [there, new])
    assert (change.leaving, change.joining) == ((here,), (new,))


class Owner:
    """A consumer that only records its queues."""

    def __init__(self, *topics: str) -> None:
        self.subscribed = list(topics)
        self.queues: set[MessageQueue] = set()
        self.refused: set[int] = set()
        self.announced = 0
        self.given_up: list[MessageQueue] = []

    def topics(self) -> Iterable[str]:
        return self.subscribed

    def owned(self) -> Collection[MessageQueue]:
        return set(self.queues)

    async def announce(self) -> None:
        self.announced += 1

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        self.given_up += queues
        self.queues -= set(queues)

    async def take(self, queue: MessageQueue) -> bool:
        if queue.queue_id in self.refused:
            return False
        self.queues.add(queue)
        return True


def flow(
    test: Callable[[FakeCluster, ClientInstance, Rebalancer, Owner], Coroutine[Any, Any, None]],
    *topics: str,
    how: Mapping[str, Any] = MappingProxyType({}),
    **values: Any,
) -> None:
    async def main() -> None:
        async with fake_cluster("T", queues=8) as cluster:
            settings = ConsumerSettings(namesrv=cluster.namesrv, rebalance_interval_min=0.01, **values)
            instance = ClientInstance(settings)
            owner = Owner(*topics)
            rebalancer = Rebalancer("g", settings, instance, Averagely(), owner, **how)
            set_members(cluster, instance.client_id)
            try:
                await test(cluster, instance, rebalancer, owner)
            finally:
                await instance.close()

    run(main())


def set_members(cluster: FakeCluster, *ids: str) -> None:
    cluster.broker.on[MEMBERS] = lambda conn, c: answer(body=bodies.ConsumerList(list(ids)).encode())


@pytest.mark.proves("client:C.3", "client:C-11", "client:C-12")
def test_single_member_gets_all_queues_and_shares_them_with_a_second() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        assert await rebalancer.round()
        assert {q.queue_id for q in owner.queues} == set(range(8))
        assert owner.announced == 1
        set_members(cluster, instance.client_id, "zzz")
        assert await rebalancer.round()
        assert {q.queue_id for q in owner.queues} == {0, 1, 2, 3}
        set_members(cluster, instance.client_id, "!before")
        assert await rebalancer.round()
        assert {q.queue_id for q in owner.queues} == {4, 5, 6, 7}

    flow(test, "T")


def test_member_unknown_to_the_broker_releases_everything() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        assert await rebalancer.round()
        set_members(cluster, "other")
        assert not await rebalancer.round()
        assert not owner.queues

    flow(test, "T")


@pytest.mark.proves("client:C.3", "client:C.2")
def test_failed_query_changes_nothing() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        assert await rebalancer.round()
        cluster.broker.on[MEMBERS] = lambda conn, c: answer(1, remark="no consumer for this group")
        assert not await rebalancer.round()
        assert len(owner.queues) == 8
        set_members(cluster)
        assert not await rebalancer.round()
        assert len(owner.queues) == 8

    flow(test, "T")


@pytest.mark.proves("client:C-33", "client:C-21")
def test_queue_that_cannot_be_taken_is_tried_again() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        owner.refused = {3}
        assert not await rebalancer.round()
        assert len(owner.queues) == 7
        owner.refused = set()
        assert await rebalancer.round()
        assert len(owner.queues) == 8

    flow(test, "T")


@pytest.mark.proves("client:C-32")
def test_queues_of_topics_no_longer_subscribed_are_released() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        assert await rebalancer.round()
        owner.subscribed = []
        assert await rebalancer.round()
        assert not owner.queues

    flow(test, "T")


@pytest.mark.proves("client:C.2")
def test_one_topic_without_a_route_does_not_block_the_others() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        assert not await rebalancer.round()
        assert len(owner.queues) == 8
        cluster.add_topic("Missing", 1)
        assert await rebalancer.round()
        assert len(owner.queues) == 9

    flow(test, "Missing", "T")


def test_missing_retry_topic_finally_counts_as_settled() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        rounds = [await rebalancer.round() for _ in range(12)]
        assert rounds == [False] * 10 + [True] * 2

    flow(test, "%RETRY%g")


def test_topic_without_readable_queues_is_not_settled() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        cluster.add_topic("W", perm=2)
        assert not await rebalancer.round()

    flow(test, "W")


@pytest.mark.proves("client:C-02", "client:C-06", "client:C-07", "client:C-09", "client:A-96")
def test_loop_runs_when_woken_and_until_it_is_settled() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        running = asyncio.create_task(rebalancer.run())
        await asyncio.sleep(0)
        assert not owner.announced
        owner.refused = {0}
        rebalancer.wake()
        await until(lambda: owner.announced > 2)
        assert not rebalancer.balanced
        owner.refused = set()
        await until(lambda: rebalancer.balanced and len(owner.queues) == 8)
        rounds = owner.announced
        set_members(cluster, instance.client_id, "zzz")
        rebalancer.wake()
        rebalancer.wake()
        await until(lambda: len(owner.queues) == 4)
        assert owner.announced == rounds + 1
        running.cancel()

    flow(test, "T")


@pytest.mark.proves("client:C-01")
def test_loop_runs_periodically_too() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        running = asyncio.create_task(rebalancer.run())
        await until(lambda: owner.announced >= 3)
        running.cancel()

    flow(test, "T", rebalance_interval=0.01)


@pytest.mark.proves("client:A-96")
def test_wake_up_does_not_keep_the_loop_from_ending() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        for turns in range(6):
            running = asyncio.create_task(rebalancer.run())
            await asyncio.sleep(0)  # it begins to wait
            rebalancer.wake()
            for _ in range(turns):
                await asyncio.sleep(0)
            running.cancel()
            done, _ = await asyncio.wait({running}, timeout=5)
            assert done, f"cancelled {turns} turns after the wake-up"

    flow(test, "T")


def test_member_with_two_connections_counts_twice_as_in_java() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        ids = ["0-java", "0-java", instance.client_id]
        cluster.broker.on[MEMBERS] = lambda conn, c: answer(body=bodies.ConsumerList(ids).encode())
        assert await rebalancer.round()
        queues = [MessageQueue("T", "broker-a", number) for number in range(8)]
        assert sorted(owner.queues) == Averagely().allocate("g", instance.client_id, queues, ids)
        assert not owner.queues & set(Averagely().allocate("g", "0-java", queues, ids))

    flow(test, "T")


# Brokers that divide

ASK = int(RequestCode.QUERY_ASSIGNMENT)


def divided(*ids: int, mode: str = "PULL") -> Callable[[object, object], Command]:
    """A broker's answer to code 400: these queues of T, to be read in this mode."""
    whole = bodies.Assignments.of(MessageQueue("T", "broker-a", number) for number in ids).encode()
    body = whole.replace(b'"PULL"', f'"{mode}"'.encode())
    return lambda connection, command: answer(body=body)


@pytest.mark.proves("client:C-43", "client:C-44")
def test_broker_allocates_on_request() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        cluster.broker.learn(ASK, divided(1, 5))
        assert await rebalancer.round()
        assert {queue.queue_id for queue in owner.queues} == {1, 5}
        (asked,) = cluster.broker.requests(ASK)
        request = bodies.AssignmentRequest.decode(asked.body)
        assert (request.topic, request.consumer_group, request.strategy_name) == ("T", "g", "AVG")
        assert (request.client_id, request.message_model) == (instance.client_id, "CLUSTERING")
        assert not cluster.broker.requests(MEMBERS)
        cluster.broker.learn(ASK, divided(5))
        assert await rebalancer.round()
        assert {queue.queue_id for queue in owner.queues} == {5}

    flow(test, "T", how={"asks_broker": True})


@pytest.mark.proves("client:C-44")
@pytest.mark.parametrize("nothing", [{"body": b"{}"}, {"code": 1, "remark": "not now"}])
def test_broker_without_an_answer_changes_nothing(nothing: dict[str, Any]) -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        cluster.broker.learn(ASK, divided(1, 5))
        assert await rebalancer.round()
        cluster.broker.learn(ASK, lambda connection, command: answer(**nothing))
        assert not await rebalancer.round()
        assert {queue.queue_id for queue in owner.queues} == {1, 5}

    flow(test, "T", how={"asks_broker": True})


def test_members_allocate_where_brokers_do_not() -> None:
    """Java's members allocate themselves, too, once a broker did not understand the query."""

    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        set_members(cluster, instance.client_id, "zzz")
        cluster.broker.learn(ASK, lambda connection, command: answer(3, remark="not supported"))
        assert await rebalancer.round()
        assert {queue.queue_id for queue in owner.queues} == {0, 1, 2, 3}
        cluster.broker.learn(ASK, divided(7))
        assert await rebalancer.round()
        assert {queue.queue_id for queue in owner.queues} == {7}

    flow(test, "T", how={"asks_broker": True})


def test_queues_in_pop_mode_are_refused_by_name(caplog: pytest.LogCaptureFixture) -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        cluster.broker.learn(ASK, divided(3, mode="POP"))
        assert not await rebalancer.round()
        assert not owner.queues
        assert "requires POP for T/broker-a/3" in caplog.text and "setConsumeMode" in caplog.text

    flow(test, "T", how={"asks_broker": True})


@pytest.mark.proves("client:C-43")
def test_no_broker_is_queried_in_broadcasting() -> None:
    async def test(
        cluster: FakeCluster, instance: ClientInstance, rebalancer: Rebalancer, owner: Owner
    ) -> None:
        assert await rebalancer.round()
        assert len(owner.queues) == 8
        assert not cluster.broker.requests(ASK)

    flow(test, "T", how={"asks_broker": True, "is_broadcasting": True})
