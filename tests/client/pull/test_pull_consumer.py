from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster, never
from tests.support import about, run, until

from sparrowmq.client.base.lifecycle import State
from sparrowmq.client.base.settings import ClientSettings, PullSettings
from sparrowmq.client.pull.pull_consumer import PullConsumer
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    GroupTakenError,
    InvalidExpressionError,
    InvalidStateError,
    NoNameServerError,
    RequestTimeoutError,
    SettingsError,
)
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus
from sparrowmq.protocol import headers, properties
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.record import decode_records

QUEUE = MessageQueue("T", "broker-a", 0)
PULL = int(RequestCode.PULL_MESSAGE)


def flow(
    test: Callable[[FakeCluster, PullConsumer], Coroutine[Any, Any, None]], group: str | None = "g"
) -> None:
    async def main() -> None:
        async with (
            fake_cluster("T", queues=2) as cluster,
            PullConsumer(group, namesrv=cluster.namesrv) as consumer,
        ):
            for number in range(50):
                tag = properties.encode({"TAGS": "AB"[number % 2]})
                cluster.broker.store("T", 0, b"%d" % number, tag)
            await test(cluster, consumer)

    run(main())


def test_raw_batches_are_the_records_as_sent() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        batch = await consumer.fetch_raw(QUEUE, 3)
        assert (batch.status, batch.count, batch.next_offset) == (PullStatus.FOUND, 32, 35)
        assert (batch.min_offset, batch.max_offset) == (0, 50)
        assert batch.buffer == b"".join(cluster.broker.queues["T", 0][3:35])
        assert len(decode_records(batch.buffer)) == batch.count
        header = headers.from_ext(headers.PullMessageRequest, cluster.broker.requests(PULL)[0].ext)
        assert (header.bulk_bytes, header.max_msg_bytes) == (8 * 1024 * 1024, 8 * 1024 * 1024)
        assert (header.sys_flag, header.subscription, header.consumer_group) == (4, "*", "g")
        small = await consumer.fetch_raw(QUEUE, 0, max_bytes=1000, max_messages=5, expression="A")
        assert small.count == 5
        header = headers.from_ext(headers.PullMessageRequest, cluster.broker.requests(PULL)[1].ext)
        assert (header.bulk_bytes, header.max_msg_nums, header.subscription) == (1000, 5, "A")

    flow(test)


def test_pulls_at_the_end_and_beyond_return_no_messages() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        end = await consumer.fetch_raw(QUEUE, 50)
        assert (end.status, end.count, end.buffer, end.next_offset) == (
            PullStatus.NO_NEW_MESSAGE,
            0,
            b"",
            50,
        )
        beyond = await consumer.fetch_raw(QUEUE, 99)
        assert (beyond.status, beyond.next_offset) == (PullStatus.OFFSET_ILLEGAL, 50)

    flow(test)


@pytest.mark.proves("client:E-04")
def test_broker_holds_waiting_pulls() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        waiting = asyncio.create_task(consumer.fetch_raw(QUEUE, 50, wait=20))
        await until(lambda: cluster.broker.requests(PULL))
        cluster.broker.store("T", 0, b"new")
        batch = await waiting
        assert (batch.count, batch.next_offset) == (1, 51)
        header = headers.from_ext(headers.PullMessageRequest, cluster.broker.requests(PULL)[0].ext)
        assert (header.sys_flag, header.suspend_timeout_millis) == (6, 20000)

    flow(test)


def test_one_connection_carries_many_pulls_in_flight() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        batches = await asyncio.gather(*(consumer.fetch_raw(QUEUE, offset) for offset in range(50)))
        assert [b.count for b in batches] == [min(32, 50 - offset) for offset in range(50)]
        assert len(cluster.broker.server.connections) == 1

    flow(test)


def test_pulled_messages_are_decoded_and_filtered() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        result = await consumer.pull(QUEUE, 0, max_messages=10, expression="B")
        assert [m.body for m in result.messages] == [b"1", b"3", b"5", b"7", b"9"]
        assert (result.status, result.next_offset, result.max_offset) == (PullStatus.FOUND, 10, 50)
        assert (await consumer.pull(QUEUE, 50)).messages == []

    flow(test)


def test_offsets_of_a_group_are_committed_and_read() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        assert await consumer.committed(QUEUE) is None
        await consumer.commit(QUEUE, 17)
        assert await consumer.committed(QUEUE) == 17
        assert cluster.broker.offsets == {("g", "T", 0): 17}

    flow(test)


def test_without_a_group_nothing_is_committed() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        assert (await consumer.fetch_raw(QUEUE, 0)).count == 32
        assert cluster.broker.requests(PULL)[0].ext["consumerGroup"] == "TOOLS_CONSUMER"
        for call in (consumer.committed(QUEUE), consumer.commit(QUEUE, 1)):
            with pytest.raises(ClientError, check=about(what="group")):
                await call
        with pytest.raises(ClientError, check=about(what="group")) as refused:
            consumer.assign([QUEUE])
        assert "by offset, with pull(queue, offset)" in str(refused.value)

    flow(test, group=None)


@pytest.mark.proves("client:E-05")
def test_invalid_arguments_and_answers_are_refused() -> None:
    async def test(cluster: FakeCluster, consumer: PullConsumer) -> None:
        invalid: list[dict[str, Any]] = [{"max_bytes": 0}, {"max_bytes": 9 * 1024 * 1024}]
        for bad in [*invalid, {"max_messages": 0}, {"wait": -1}]:
            with pytest.raises(SettingsError, check=about(setting=next(iter(bad)))):
                await consumer.fetch_raw(QUEUE, 0, **bad)
        with pytest.raises(SettingsError, check=about(setting="offset", value=-1, limit=0)):
            await consumer.fetch_raw(QUEUE, -1)
        with pytest.raises(InvalidExpressionError):
            await consumer.fetch_raw(QUEUE, 0, expression="||")
        with pytest.raises(ClientError, check=about(what="broker", value="broker-z")):
            await consumer.fetch_raw(MessageQueue("T", "broker-z", 0), 0)
        cluster.broker.on[PULL] = lambda conn, c: answer(17, remark="no topic")
        with pytest.raises(BrokerError, check=about(code=17, remark="no topic")):
            await consumer.fetch_raw(QUEUE, 0)
        cluster.broker.on[PULL] = never
        with pytest.raises(RequestTimeoutError):
            await consumer.fetch_raw(QUEUE, 0, timeout=0.01)

    flow(test)


def test_pull_consumer_starts_and_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARROW_NAMESRV", raising=False)
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def main() -> None:
        consumer = PullConsumer()
        with pytest.raises(InvalidStateError, check=about(what="running", value="created")):
            await consumer.queues("T")
        with pytest.raises(NoNameServerError):
            await consumer.start()
        await consumer.close()
        await consumer.close()
        assert consumer.state is State.CLOSED
        assert "closed" in repr(consumer)

    run(main())


def test_closing_waits_for_a_running_start_or_close() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            consumer = PullConsumer("g", namesrv=cluster.namesrv)
            consumer.subscribe("T")
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(0)
            assert consumer.state is State.STARTING
            await consumer.close()
            assert consumer.state is State.CLOSED
            await starting
            assert "g" not in cluster.broker.members or not cluster.broker.members["g"]

            consumer = PullConsumer("g", namesrv=cluster.namesrv)
            await consumer.start()
            instance = consumer._running()
            await consumer.queues("T")
            first = asyncio.create_task(consumer.close())
            await asyncio.sleep(0)
            assert consumer.state is State.CLOSING
            await consumer.close()
            assert (consumer.state, first.done()) == (State.CLOSED, True)
            assert not instance.remoting._connections

    run(main())


def test_closing_during_a_failing_start_leaves_nothing() -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            cluster.on[int(RequestCode.GET_ROUTEINFO_BY_TOPIC)] = never
            consumer = PullConsumer(
                "g", settings=ClientSettings(namesrv=cluster.namesrv, request_timeout=0.1)
            )
            consumer.subscribe("T")
            starting = asyncio.create_task(consumer.start())
            await asyncio.sleep(0)
            await consumer.close()
            assert consumer.state is State.CLOSED
            with pytest.raises(RequestTimeoutError):
                await starting
            assert consumer.state is State.CLOSED

    run(main())


@pytest.mark.parametrize("hangs", [False, True])
def test_failed_consumer_leaves_the_shared_client(hangs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise heartbeats of the others would still include it, and its group could not be used here
    again."""

    async def main() -> None:
        async with fake_cluster("T") as cluster:
            shared = PullSettings(namesrv=cluster.namesrv, instance_name="shared", close_timeout=0.1)
            async with PullConsumer("other", settings=shared):
                consumer = PullConsumer("g", settings=shared)
                consumer.subscribe("T")
                await consumer.start()
                await until(lambda: cluster.broker.members["g"])
                if hangs:
                    assert consumer._member is not None
                    monkeypatch.setattr(consumer._member, "close", asyncio.Event().wait)
                else:
                    consumer._task_died("pull", ValueError("a fault"))
                await consumer.close()
                assert not cluster.broker.members["g"]
                async with PullConsumer("g", settings=shared):
                    """The name is free again."""

    run(main())


@pytest.mark.parametrize("announce", [True, False])
def test_a_consumer_whose_group_was_taken_polls_once_it_is_free(announce: bool) -> None:
    """Refused at the start, or at the subscription of a consumer that joins only then."""

    async def main() -> None:
        async with fake_cluster("T") as cluster:
            cluster.broker.store("T", 0, b"waiting")
            shared = PullSettings(
                namesrv=cluster.namesrv, instance_name="shared", announce=announce, consume_from="first"
            )
            first, second = PullConsumer("g", settings=shared), PullConsumer("g", settings=shared)
            first.subscribe("T")
            await first.start()
            try:
                if announce:
                    second.subscribe("T")
                    with pytest.raises(GroupTakenError):
                        await second.start()
                else:
                    await second.start()
                    with pytest.raises(GroupTakenError):
                        second.subscribe("T")
                await first.close()
                if announce:
                    await second.start()
                else:
                    second.subscribe("T")
                assert [message.body for message in await second.poll(10)] == [b"waiting"]
            finally:
                await first.close()
                await second.close()

    run(main())
