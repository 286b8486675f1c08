"""Locks at several brokers."""

from __future__ import annotations

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import run, until

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster.broker_api import no_generation
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.client.consumer.queue_locks import QueueLocks
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import RequestCode

A0, A1, B0 = (
    MessageQueue("T", name, number) for name, number in (("broker-a", 0), ("broker-a", 1), ("broker-b", 0))
)


@pytest.mark.proves("client:C-26", "client:C-28", "client:C-29", "client:C-31")
def test_each_master_gets_one_request_and_silent_ones_change_nothing() -> None:
    async def main() -> None:
        async with fake_cluster("T", brokers=2) as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            await instance.update_route("T")
            try:
                await check(cluster, QueueLocks(instance, "g", no_generation))
            finally:
                await instance.close()

    async def check(cluster: FakeCluster, locks: QueueLocks) -> None:
        first, second = cluster.brokers.values()
        first.locks["g", A1] = "somebody"
        assert await locks.lock([A0, A1, B0]) == ({A0, B0}, {A1})
        assert len(first.requests(RequestCode.LOCK_BATCH_MQ)) == 1
        second.on[RequestCode.LOCK_BATCH_MQ] = lambda conn, c: answer(1, remark="no")
        assert await locks.lock([A0, B0]) == ({A0}, set())
        nowhere = MessageQueue("T", "broker-z", 0)
        assert await locks.lock([nowhere]) == (set(), set())

        await locks.unlock([A0], confirmed=True)
        assert ("g", A0) not in first.locks
        await locks.unlock([B0])
        await until(lambda: ("g", B0) not in second.locks)
        assert second.requests(RequestCode.UNLOCK_BATCH_MQ)[0].is_oneway
        await locks.unlock([nowhere], confirmed=True)

    run(main())
