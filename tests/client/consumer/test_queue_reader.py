from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.fake import FakeCluster, fake_cluster
from tests.support import about, run

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.broker_api import no_generation
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.queue_reader import PullParameters, QueueReader
from sparrowmq.core.errors import ClientError, InvalidStateError, SettingsError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.headers import BULK_BYTES_MAX
from sparrowmq.transport.server import Server

QUEUE = MessageQueue("T", "broker-a", 0)
PULL = int(RequestCode.PULL_MESSAGE)


def flow(
    test: Callable[[FakeCluster, QueueReader], Coroutine[Any, Any, None]], group: str | None = "g"
) -> None:
    """Run `test` with a cluster that has 50 messages in the queue, and a reader with its own client."""

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            for number in range(50):
                cluster.broker.store("T", 0, b"%d" % number)
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            instance.start()
            try:
                await test(cluster, QueueReader(lambda: instance, group, no_generation))
            finally:
                await instance.close()

    run(main())


async def end_of(reader: QueueReader, queue: MessageQueue = QUEUE) -> int:
    return await reader.ask(queue, lambda brokers, address: brokers.max_offset(address, queue))


def test_pull_has_the_requested_options() -> None:
    async def test(cluster: FakeCluster, reader: QueueReader) -> None:
        answer = await reader.pull(
            QUEUE, 3, PullParameters(max_bytes=9999, max_messages=5, expression="A || B")
        )
        assert (answer.status, answer.next_offset, answer.max_offset) == (PullStatus.FOUND, 8, 50)
        (asked,) = cluster.broker.requests(PULL)
        assert (asked.ext["queueOffset"], asked.ext["maxMsgNums"], asked.ext["subscription"]) == (
            "3",
            "5",
            "A || B",
        )
        assert (asked.ext["consumerGroup"], asked.ext["sysFlag"]) == ("g", "4")
        cluster.broker.release()
        await reader.pull(QUEUE, 50, PullParameters(wait=2.5))
        held = cluster.broker.requests(PULL)[1].ext
        assert (held["sysFlag"], held["suspendTimeoutMillis"]) == ("6", "2500")

    flow(test)


def test_without_a_group_a_common_one_is_used() -> None:
    async def test(cluster: FakeCluster, reader: QueueReader) -> None:
        await reader.pull(QUEUE, 0, PullParameters())
        assert cluster.broker.requests(PULL)[0].ext["consumerGroup"] == "TOOLS_CONSUMER"

    flow(test, None)


@pytest.mark.parametrize("what", ["pull", "ask"])
def test_broker_that_moved_is_found_again(what: str) -> None:
    async def test(cluster: FakeCluster, reader: QueueReader) -> None:
        async def call() -> int:
            return (
                await end_of(reader)
                if what == "ask"
                else (await reader.pull(QUEUE, 18, PullParameters())).next_offset
            )

        assert await call() == 50
        before = cluster.broker.server
        await before.close(0.1)
        cluster.broker.server = Server(before.handler)
        await cluster.broker.server.start()
        try:
            with pytest.raises(TransportError):
                await call()
            assert await call() == 50
        finally:
            await cluster.broker.server.close(1.0)

    flow(test)


def test_silent_name_server_does_not_prevent_reading_from_a_returned_broker() -> None:
    async def test(cluster: FakeCluster, reader: QueueReader) -> None:
        assert await end_of(reader) == 50
        cluster.broker.on[RequestCode.GET_MAX_OFFSET] = lambda conn, c: conn.close("restarts")
        with pytest.raises(TransportError):
            await end_of(reader)
        cluster.broker.on.clear()
        await cluster.name_server.close(0.1)
        assert await end_of(reader) == 50

    flow(test)


def test_pull_may_name_the_broker_to_read_from() -> None:
    async def test(cluster: FakeCluster, reader: QueueReader) -> None:
        asked = cluster.broker.requests
        slave = FakeCluster().broker
        await slave.server.start()
        try:
            assert (await reader.pull(QUEUE, 0, PullParameters(read_from="slave"))).next_offset == 32
            assert len(asked(PULL)) == 1, "there is no slave"
            routes = reader._running().routes
            broker = routes._brokers["broker-a"]
            broker |= {2: "127.0.0.1:1", 1: slave.server.address}
            slave.store("T", 0, b"of the slave")
            assert (await reader.pull(QUEUE, 0, PullParameters(read_from="slave"))).next_offset == 1
            assert (await reader.pull(QUEUE, 0, PullParameters(read_from="master"))).next_offset == 32
            assert (await reader.pull(QUEUE, 0, PullParameters())).next_offset == 32
            assert (len(asked(PULL)), len(slave.requests(PULL))) == (3, 1)
        finally:
            await slave.server.close(1.0)
        with pytest.raises(SettingsError, check=about(setting="read_from", value="both")):
            PullParameters(read_from="both").check()  # type: ignore[arg-type]

    flow(test)


def test_groups_offset_is_read_from_the_master() -> None:
    async def test(cluster: FakeCluster, reader: QueueReader) -> None:
        assert await reader.committed(QUEUE) is None
        cluster.broker.offsets["g", "T", 0] = 7
        cluster.broker.offsets["other", "T", 0] = 9
        assert await reader.committed(QUEUE) == 7

    flow(test)


def test_unknown_broker_is_named() -> None:
    async def test(cluster: FakeCluster, reader: QueueReader) -> None:
        with pytest.raises(ClientError, check=about(what="broker", value="broker-z")):
            await end_of(reader, MessageQueue("T", "broker-z", 0))
        with pytest.raises(ClientError, check=about(what="broker", value="broker-z")):
            await reader.pull(MessageQueue("T", "broker-z", 0), 0, PullParameters())

    flow(test)


def test_error_of_the_client_is_raised_when_it_is_not_running() -> None:
    def closed() -> ClientInstance:
        raise InvalidStateError("it is closed")

    async def main() -> None:
        reader = QueueReader(closed, "g", no_generation)
        with pytest.raises(InvalidStateError, check=about(args=("it is closed",))):
            await end_of(reader)
        with pytest.raises(InvalidStateError, check=about(args=("it is closed",))):
            await reader.pull(QUEUE, 0, PullParameters())

    run(main())


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_bytes", 0), ("max_bytes", BULK_BYTES_MAX + 1), ("max_messages", 0), ("max_messages", 2**31),
     ("wait", -0.1), ("wait", 3600.1)],
)  # fmt: skip
def test_options_out_of_range_are_refused(name: str, value: float) -> None:
    wish = PullParameters(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, check=about(setting=name, value=value)):
        wish.check()


def test_limits_can_be_requested() -> None:
    PullParameters(BULK_BYTES_MAX, 2**31 - 1, "*", 3600).check()
    PullParameters(1, 1, "*", 0).check()


@pytest.mark.parametrize(("wait", "timeout", "seconds"), [(0, None, 10), (5, None, 15), (5, 1.5, 1.5)])
def test_answer_may_take_slightly_longer_than_the_brokers_wait(
    wait: float, timeout: float | None, seconds: float
) -> None:
    assert PullParameters(wait=wait, timeout=timeout).seconds == seconds
