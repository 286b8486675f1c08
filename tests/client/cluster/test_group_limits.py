"""How often a group may retry, as its brokers say."""

from __future__ import annotations

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import run

from sparrowmq.client.base.settings import ClientSettings
from sparrowmq.client.cluster import group_limits as module
from sparrowmq.client.cluster.group_limits import RETRIES_DEFAULT, GroupLimits
from sparrowmq.client.cluster.instance import ClientInstance
from sparrowmq.protocol.bodies import SubscriptionGroupConfig
from sparrowmq.protocol.codes import RequestCode, ResponseCode

CONFIG = int(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG)


def test_limit_is_asked_for_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(cluster: FakeCluster, instance: ClientInstance) -> None:
        broker, limits = cluster.broker, GroupLimits(instance, "g")
        at = broker.server.address
        broker.learn(CONFIG, lambda conn, c: conn.abort())
        assert await limits.retries_max(at) is None, "nothing is assumed without an answer"
        config = SubscriptionGroupConfig(group_name="g", retry_max_times=3)
        broker.on[CONFIG] = lambda conn, c: answer(body=config.encode())
        assert [await limits.retries_max(at) for _ in range(3)] == [3, 3, 3]
        assert len(broker.requests(CONFIG)) == 2
        monkeypatch.setattr(module, "FRESH_SECONDS", 0.0)
        broker.on[CONFIG] = lambda conn, c: answer(ResponseCode.NO_PERMISSION, remark="no right")
        assert await limits.retries_max(at) == RETRIES_DEFAULT == 16

    async def main() -> None:
        async with fake_cluster("T") as cluster:
            instance = ClientInstance(ClientSettings(namesrv=cluster.namesrv))
            try:
                await test(cluster, instance)
            finally:
                await instance.close()

    run(main())
