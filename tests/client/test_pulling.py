"""The pull loop: flow control, refusals, lost connections, offsets that are not stored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.consuming import (
    PULL,
    committed,
    consumer_of,
    flow,
    put,
)
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import run, until

from sparrowmq.client.handed import LazyMessage
from sparrowmq.client.lifecycle import State
from sparrowmq.client.process_queue import Limits, ProcessQueue
from sparrowmq.client.pulling import how_many
from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.connection import Connection


@pytest.mark.proves("client:D.7")
def test_tags_are_filtered_again_here() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", "A || C", got.append)
            await until(lambda: len(got) == 20)
            await until(
                lambda: committed(cluster) == {0: 20, 1: 10} or sum(committed(cluster).values()) >= 29
            )
        assert {m.tags for m in got} == {"A", "C"}

    flow(test, 30, tags=("A", "B", "C"))


@pytest.mark.proves("client:D.5", "client:D-16")
def test_flow_control_bounds_what_is_in_hand() -> None:
    async def test(cluster: FakeCluster) -> None:
        go = asyncio.Event()
        started = 0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal started
            started += 1
            await go.wait()

        async with consumer_of(cluster, queue_messages_max=40, threads=1000) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: started == 64)
            pulls = len(cluster.broker.requests(PULL))
            for number in range(5):
                put(cluster, 1000 + number, queues=1)
            await asyncio.sleep(0)
            assert len([c for c in cluster.broker.requests(PULL) if c.ext["topic"] == "T"]) == 2
            assert pulls >= 2
            go.set()
            await until(lambda: started == 205)

    flow(test, 200, queues=1)


@pytest.mark.proves("client:D.7", "client:D-27")
def test_an_offset_that_is_not_stored_is_repaired() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.first["T", 0] = 50
        cluster.broker.offsets["g", "T", 0] = 7
        for number in range(3):
            cluster.broker.store("T", 0, b"%d" % number)
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 3)
            await until(lambda: committed(cluster) == {0: 53})
        assert [m.queue_offset for m in got] == [50, 51, 52]

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            await test(cluster)

    run(main())


@pytest.mark.proves("client:D-29")
def test_a_failed_pull_is_seen_and_repeated() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        cluster.broker.on[PULL] = lambda conn, c: answer(16, remark="not now")
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            error = await until(lambda: consumer.last_error)
            assert "answer 16" in str(error)
            del cluster.broker.on[PULL]
            await until(lambda: len(got) == 10 and consumer.last_error is None)

    flow(test, 10)


@pytest.mark.proves("client:D-28")
def test_pulls_under_flow_control_are_repeated_soon() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        refusals = iter(range(4))

        def handle(conn: Connection, command: Command) -> Any:
            if next(refusals, None) is not None:
                return answer(215, remark="flow control")
            return cluster.broker.pull(conn, command)

        cluster.broker.on[PULL] = handle
        async with consumer_of(cluster, error_delay=60) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)

    flow(test, 10)


@pytest.mark.proves("client:D-30")
def test_a_broker_that_forgot_the_group_gets_a_heartbeat() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        forgot = asyncio.Event()

        def handle(conn: Connection, command: Command) -> Any:
            if not forgot.is_set():
                forgot.set()
                cluster.broker.heartbeats.clear()
                return answer(24, remark="no subscription")
            return cluster.broker.pull(conn, command)

        cluster.broker.on[PULL] = handle
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)
            assert cluster.broker.heartbeats

    flow(test, 10)


def test_it_comes_back_after_the_connection_is_lost() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 10)
            for conn in list(cluster.broker.server.connections):
                conn.abort()
            put(cluster, 10)
            await until(lambda: len(got) == 11)

    flow(test, 10)


@pytest.mark.proves("client:D.5-11")
def test_pulls_commit_on_the_way() -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster, persist_interval=3600) as consumer:
            consumer.subscribe("T", handler=lambda m: None)
            await until(lambda: consumer.lag and sum(consumer.lag.values()) == 0)
            for number in range(10, 20):
                put(cluster, number)
                await asyncio.sleep(0.005)
            await until(lambda: sum(committed(cluster).values()) >= 10)

    flow(test, 10)


def test_a_broken_record_stops_neither_consumer_nor_other_queues() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        cluster.broker.queues["T", 0][0] = b"not a record"
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(got) == 5)
            error = await until(lambda: consumer.last_error)
            assert "record" in str(error)
            assert consumer.state is State.RUNNING

    flow(test, 10)


@pytest.mark.parametrize(
    ("behind", "in_hand", "expected"),
    [(0, 0, 32), (32, 0, 32), (33, 0, 33), (5000, 0, 512), (5000, 700, 300), (5000, 1000, 32)],
)
def test_more_is_asked_for_while_a_queue_is_behind_and_has_room(
    behind: int, in_hand: int, expected: int
) -> None:
    queue = MessageQueue("T", "b", 0)
    held = ProcessQueue(queue, in_hand, Limits())
    held.put(
        [LazyMessage(queue, n, 0, "T", b"", {}, 0, 0, 0, "", 0, "", 0, 0, 0, "") for n in range(in_hand)]
    )
    held.broker_max_offset = in_hand + behind
    assert how_many(held, ConsumerSettings()) == expected
