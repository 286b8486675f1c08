from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.support import about, run

from sparrowmq.client.admin.admin import Admin
from sparrowmq.core.errors import BrokerError, ClientError, NoRouteError, SettingsError
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.headers import CreateTopicRequest, from_ext


def flow(test: Callable[[FakeCluster, Admin], Coroutine[Any, Any, None]], brokers: int = 1) -> None:
    async def main() -> None:
        async with fake_cluster("T", brokers=brokers, queues=2) as cluster, Admin(cluster.namesrv) as admin:
            await test(cluster, admin)

    run(main())


def test_values_are_stored_listed_and_deleted() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        assert await admin.name_servers.value("space", "key") is None
        assert await admin.name_servers.values("space") == {}
        await admin.name_servers.set_value("space", "key", "1")
        await admin.name_servers.set_value("space", "other", "2")
        assert await admin.name_servers.value("space", "key") == "1"
        assert await admin.name_servers.values("space") == {"key": "1", "other": "2"}
        await admin.name_servers.delete_value("space", "key")
        await admin.name_servers.delete_value("space", "key")
        assert await admin.name_servers.values("space") == {"other": "2"}
        cluster.on[int(RequestCode.GET_KV_CONFIG)] = lambda conn, c: answer(1, remark="broken")
        with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
            await admin.name_servers.value("space", "other")

    flow(test)


def test_changes_are_made_at_every_name_server() -> None:
    async def main() -> None:
        async with (
            fake_cluster("T") as one,
            fake_cluster("T") as two,
            Admin(f"{one.namesrv};{two.namesrv}") as admin,
        ):
            await admin.name_servers.set_value("space", "key", "1")
            assert one.values == two.values == {("space", "key"): "1"}
            two.on[int(RequestCode.DELETE_KV_CONFIG)] = lambda conn, c: answer(1, remark="broken")
            with pytest.raises(BrokerError, check=about(code=1, remark="broken")):
                await admin.name_servers.delete_value("space", "key")
            assert one.values == {}, "the other was asked all the same"

    run(main())


def test_order_configurations_are_set() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        assert await admin.name_servers.order_conf("T") == {}
        await admin.name_servers.set_order_conf("T", {"broker-b": 2, "broker-a": 4})
        assert cluster.values["ORDER_TOPIC_CONFIG", "T"] == "broker-a:4;broker-b:2"
        assert await admin.name_servers.order_conf("T") == {"broker-a": 4, "broker-b": 2}
        await admin.name_servers.set_order_conf("T", {})
        assert cluster.values == {}
        with pytest.raises(SettingsError, check=about(setting="queues of broker-a", value=0, limit=1)):
            await admin.name_servers.set_order_conf("T", {"broker-a": 0})
        cluster.values["ORDER_TOPIC_CONFIG", "T"] = "broker-a:many"
        with pytest.raises(ClientError, check=about(value="broker-a:many")):
            await admin.name_servers.order_conf("T")

    flow(test)


def test_write_permission_of_a_broker_is_changed() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        assert await admin.name_servers.wipe_write_perm("broker-a") == 3
        assert await admin.name_servers.add_write_perm("broker-a") == 3
        asked = [c for c in cluster.seen if c.code in (205, 327)]
        assert [c.ext["brokerName"] for c in asked] == ["broker-a", "broker-a"]

    flow(test)


def test_changed_permission_of_a_topic_keeps_its_queues() -> None:
    async def test(cluster: FakeCluster, admin: Admin) -> None:
        assert await admin.topics.set_perm("T", 4, broker_name="broker-b") == ["broker-b"]
        (asked,) = cluster.brokers["broker-b"].requests(RequestCode.UPDATE_AND_CREATE_TOPIC)
        header = from_ext(CreateTopicRequest, asked.ext)
        assert (header.perm, header.read_queue_nums, header.write_queue_nums) == (4, 2, 2)
        assert not cluster.broker.requests(RequestCode.UPDATE_AND_CREATE_TOPIC)
        assert await admin.topics.set_perm("T", 6) == ["broker-a", "broker-b"]
        with pytest.raises(
            ClientError, check=about(what="broker", value="broker-z", limit="broker-a, broker-b")
        ):
            await admin.topics.set_perm("T", 6, broker_name="broker-z")
        with pytest.raises(SettingsError, check=about(setting="perm", value=8, limit=7)):
            await admin.topics.set_perm("T", 8)
        with pytest.raises(NoRouteError):
            await admin.topics.set_perm("Nowhere", 6)

    flow(test, brokers=2)
