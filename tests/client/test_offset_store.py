from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import run, until

from sparrowmq.client.instance import ClientInstance
from sparrowmq.client.offset_store import BrokerOffsetStore
from sparrowmq.client.settings import ClientSettings
from sparrowmq.core.errors import BrokerError, ClientError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import RequestCode

QUEUE = MessageQueue("T", "broker-a", 0)
UPDATE = int(RequestCode.UPDATE_CONSUMER_OFFSET)


def flow(test: Callable[[FakeCluster, BrokerOffsetStore], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            try:
                await test(cluster, BrokerOffsetStore(instance, "g"))
            finally:
                await instance.close()

    run(main())


@pytest.mark.proves("client:D-75")
def test_memory_only_grows_unless_set() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        assert store.get(QUEUE) is None
        store.advance(QUEUE, 0)
        assert store.get(QUEUE) == 0
        store.advance(QUEUE, 5)
        store.advance(QUEUE, 3)
        assert store.get(QUEUE) == 5
        store.set(QUEUE, 2)
        assert store.get(QUEUE) == 2
        store.forget(QUEUE)
        assert store.get(QUEUE) is None

    flow(test)


def test_reading_asks_the_broker_and_fills_the_memory() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        assert await store.read(QUEUE) is None
        assert store.get(QUEUE) is None
        cluster.broker.offsets["g", "T", 0] = 12
        assert await store.read(QUEUE) == 12
        assert store.get(QUEUE) == 12
        cluster.broker.on[RequestCode.QUERY_CONSUMER_OFFSET] = lambda conn, c: answer(1)
        with pytest.raises(BrokerError):
            await store.read(QUEUE)

    flow(test)


@pytest.mark.proves("client:D-77")
def test_persisting_sends_what_is_in_memory() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        other = MessageQueue("T", "broker-a", 1)
        store.advance(QUEUE, 5)
        assert await store.persist([QUEUE, other])
        await until(lambda: cluster.broker.offsets.get(("g", "T", 0)) == 5)
        assert [c.is_oneway for c in cluster.broker.requests(UPDATE)] == [True]
        store.advance(other, 1)
        assert await store.persist([QUEUE, other], confirmed=True)
        assert cluster.broker.offsets == {("g", "T", 0): 5, ("g", "T", 1): 1}
        assert await store.persist([QUEUE]), "again: the first may have been lost"
        await until(lambda: len(cluster.broker.requests(UPDATE)) == 4)

    flow(test)


def test_what_cannot_be_persisted_is_kept() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        store.advance(QUEUE, 5)
        cluster.broker.on[UPDATE] = lambda conn, c: answer(26, remark="no group")
        assert not await store.persist([QUEUE], confirmed=True)
        gone = MessageQueue("T", "broker-z", 0)
        store.advance(gone, 1)
        assert not await store.persist([gone])
        del cluster.broker.on[UPDATE]
        assert await store.persist([QUEUE], confirmed=True)
        assert cluster.broker.offsets["g", "T", 0] == 5

    flow(test)


def test_a_broker_that_is_nowhere_is_named() -> None:
    async def test(cluster: FakeCluster, store: BrokerOffsetStore) -> None:
        with pytest.raises(ClientError, match="broker-z"):
            await store.read(MessageQueue("T", "broker-z", 0))

    flow(test)
