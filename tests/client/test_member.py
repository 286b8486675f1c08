"""Membership: sharing queues, heartbeats, start positions, commits."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.client.consuming import (
    consumer_of,
    flow,
    numbers,
    put,
)
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import run, until

from sparrowmq.client.push_consumer import PushConsumer
from sparrowmq.core.errors import InvalidExpressionError
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.subscription import Sql
from sparrowmq.protocol.codes import RequestCode, ResponseCode


@pytest.mark.proves("client:C-11", "client:C-23", "client:C.6-1", "client:D-109")
def test_two_members_share_the_queues_and_hand_them_over() -> None:
    async def test(cluster: FakeCluster) -> None:
        one_got: list[ReceivedMessage] = []
        two_got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as one:
            one.subscribe("T", handler=one_got.append)
            await until(lambda: len(_of_t(one)) == 4)
            async with consumer_of(cluster) as two:
                two.subscribe("T", handler=two_got.append)
                await until(lambda: len(_of_t(one)) == len(_of_t(two)) == 2)
                assert not set(one.assignment) & set(two.assignment)
                for number in range(40):
                    put(cluster, number, queues=4)
                await until(lambda: len(one_got) + len(two_got) == 40)
                assert len(one_got) == len(two_got) == 20
            await until(lambda: len(_of_t(one)) == 4)
            put(cluster, 41, queues=4)
            await until(lambda: len(one_got) == 21)
        assert numbers([*one_got, *two_got]) == [*range(40), 41]

    def _of_t(consumer: PushConsumer) -> list[MessageQueue]:
        return [queue for queue in consumer.assignment if queue.topic == "T"]

    flow(test, 0, queues=4)


@pytest.mark.proves("client:C.6-2")
@pytest.mark.parametrize(
    ("start", "expected"),
    [("first", [0, 2, 4, 6, 8, 10]), ("last", [10]), (datetime(2024, 1, 1, tzinfo=UTC), [4, 6, 8, 10])],
)
def test_where_a_new_group_starts(start: Any, expected: list[int]) -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, consume_from=start) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: [q for q in consumer.assignment if q.topic == "T"])
            cluster.broker.store("T", 0, b"10")
            await until(lambda: any(m.body == b"10" for m in got))
            await until(lambda: len(got) == len(expected))
        assert numbers(got) == expected

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            for number in range(0, 10, 2):
                cluster.broker.store("T", 0, b"%d" % number)
            await test(cluster)

    run(main())


def test_what_a_new_group_has_in_hand_is_not_skipped_by_the_next_owner() -> None:
    async def test(cluster: FakeCluster) -> None:
        put(cluster, 0, queues=1)  # from before the group began

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(3600)

        one = consumer_of(cluster, consume_from="last", close_timeout=0.05, persist_interval=3600)
        one.subscribe("T", handler=handle)
        await one.start()
        await until(lambda: [q for q in one.assignment if q.topic == "T"])
        for number in (1, 2):
            put(cluster, number, queues=1)
        await until(lambda: sum(one.lag.values()) == 2)
        await one.close()
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, consume_from="last") as two:
            two.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 2)
        assert numbers(got) == [1, 2]

    flow(test, 0, queues=1)


@pytest.mark.proves("client:D.2-15", "client:D-05")
def test_heartbeats_carry_group_subscription_and_start() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster, consume_from="last") as consumer:
            consumer.subscribe("T", "A || B", print)
            heartbeat = await until(
                lambda: [h for h in cluster.broker.heartbeats if len(h.consumers[0].subscriptions) == 2]
            )
            (data,) = heartbeat[0].consumers
            assert heartbeat[0].client_id == consumer.client_id
            assert data.group == "g"
            assert data.consume_from_where == "CONSUME_FROM_LAST_OFFSET"
            assert {s.topic: s.tags for s in data.subscriptions} == {
                "T": {"A", "B"},
                "%RETRY%g": frozenset(),
            }
        goodbye = cluster.broker.requests(RequestCode.UNREGISTER_CLIENT)[-1]
        assert goodbye.ext["consumerGroup"] == "g"

    flow(test)


@pytest.mark.proves("client:D.2-14", "broker:14.2")
def test_filters_are_checked_at_the_start_and_a_refusal_is_raised() -> None:
    async def test(cluster: FakeCluster) -> None:
        code = RequestCode.CHECK_CLIENT_CONFIG
        consumer = consumer_of(cluster)
        consumer.subscribe("T", Sql("a > 1"), print)
        async with consumer:
            codes = [command.code for command in cluster.broker.seen]
            assert codes.count(code) == 1
        refused = int(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        cluster.broker.on[code] = lambda conn, command: answer(refused, remark="too new for me")
        consumer = consumer_of(cluster)
        consumer.subscribe("T", Sql("a > 1"), print)
        with pytest.raises(InvalidExpressionError, match="too new for me"):
            await consumer.start()

    flow(test)


@pytest.mark.proves("client:D-07")
def test_a_wrong_filter_is_refused_when_it_is_subscribed() -> None:
    async def test(cluster: FakeCluster) -> None:
        consumer = consumer_of(cluster)
        with pytest.raises(InvalidExpressionError) as caught:
            consumer.subscribe("T", Sql("a > 1 AN b"), print)
        assert (caught.value.position, caught.value.token) == (6, "AN")

    flow(test)
