"""The clients of one broker, and the content of one name server."""

from __future__ import annotations

import pytest
from tests.client.fake import answer, fake_cluster
from tests.support import about, run, until_sync

import sparrowmq as mq
from sparrowmq.client.admin import brokers, clients
from sparrowmq.client.admin.admin import Admin
from sparrowmq.client.admin.types import BrokerClient, GroupMemberInfo
from sparrowmq.core.errors import BrokerError, TransportError
from sparrowmq.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupTable
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.testing import LocalCluster


def test_client_is_listed_once_with_all_its_groups() -> None:
    one, other = GroupMemberInfo("c", "1:1", "JAVA", 5), GroupMemberInfo("c", "1:2", "PYTHON", 6)
    found = clients.joined({"b": [one], "a": [one, other]}, {"p": [one]})
    assert found == [
        BrokerClient("c", "1:1", "JAVA", 5, ("a", "b"), ("p",)),
        BrokerClient("c", "1:2", "PYTHON", 6, ("a",), ()),
    ]


def test_consumers_and_producers_of_a_broker_are_listed() -> None:
    with (
        LocalCluster() as cluster,
        mq.Admin(namesrv=cluster.namesrv) as admin,
        mq.Producer("makers", namesrv=cluster.namesrv) as producer,
        mq.PushConsumer("readers", namesrv=cluster.namesrv) as consumer,
    ):
        admin.topics.create("T", queues=1)
        consumer.subscribe("T", handler=lambda message: None)
        producer.send(mq.Message("T", b"x"))

        def both() -> bool:
            found = admin.brokers.clients("broker-a").clients
            groups = {group for one in found for group in (*one.consumes, *one.produces)}
            return {"makers", "readers"} <= groups

        until_sync(both)
        found = admin.brokers.clients(cluster.broker_address)
        assert found.producers_known and found.groups_left == 0
        assert all(one.address.startswith("127.0.0.1:") and one.client_id for one in found.clients)
        status = admin.name_servers.status(cluster.namesrv)
        assert "T" in status.topics and status.brokers["broker-a"] == {0: cluster.broker_address}
        assert status.settings is not None and status.settings
        with pytest.raises(TransportError):
            admin.name_servers.status("127.0.0.1:1")


def test_number_of_groups_is_limited_and_old_brokers_list_no_producers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(brokers, "GROUPS_MAX", 2)

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster, Admin(cluster.namesrv) as admin:
            names = [f"g{number}" for number in range(5)]
            table = SubscriptionGroupTable(
                subscription_group_table={name: SubscriptionGroupConfig(group_name=name) for name in names}
            )
            broker = cluster.broker
            broker.on[int(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)] = lambda conn, c: answer(
                0, body=table.encode()
            )
            offline = int(ResponseCode.CONSUMER_NOT_ONLINE)
            broker.on[int(RequestCode.GET_CONSUMER_CONNECTION_LIST)] = lambda conn, c: answer(offline)
            broker.on[int(RequestCode.GET_ALL_PRODUCER_INFO)] = lambda conn, c: answer(
                int(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
            )
            found = await admin.brokers.clients("broker-a")
            assert (list(found.clients), found.producers_known, found.groups_left) == ([], False, 3)
            assert len(broker.requests(RequestCode.GET_CONSUMER_CONNECTION_LIST)) == 2
            broker.on[int(RequestCode.GET_CONSUMER_CONNECTION_LIST)] = lambda conn, c: answer(1, remark="no")
            with pytest.raises(BrokerError, check=about(code=1, remark="no")):
                await admin.brokers.clients("broker-a")

    run(main())
