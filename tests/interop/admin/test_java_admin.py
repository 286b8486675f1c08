"""What `mqadmin` is made of, Java's admin client, against Apache's servers and against ours."""

from __future__ import annotations

import time

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaAdmin, JavaDriver, JavaError
from tests.support import until_sync

from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop


@pytest.fixture(params=["apache", "ours"])
def cluster(request: pytest.FixtureRequest) -> ApacheCluster | LocalCluster:
    """Both kinds of servers: Apache's show that the expectations are its own."""
    found: ApacheCluster | LocalCluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def admin(driver: JavaDriver, cluster: ApacheCluster | LocalCluster) -> JavaAdmin:
    """Java's admin client for that cluster."""
    return driver.admin(cluster.namesrv)


@pytest.mark.proves("client:F-01", "client:F-02")
def test_cluster_and_route(admin: JavaAdmin, cluster: ApacheCluster | LocalCluster, name: str) -> None:
    info = admin.call("cluster")
    assert info["clusterAddrTable"] == {"DefaultCluster": ["broker-a"]}
    broker = info["brokerAddrTable"]["broker-a"]
    assert broker["brokerAddrs"] == {"0": cluster.broker_address}

    admin.create_topic(cluster.broker_address, name, 5)
    route = admin.call("topic_route", topic=name)
    assert route["brokerDatas"] == [broker]
    (queues,) = route["queueDatas"]
    assert queues["brokerName"] == "broker-a"
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (5, 5, 6)
    assert {name, "DefaultCluster", "broker-a", "TBW102"} <= set(admin.call("topic_list"))


@pytest.mark.proves("client:E-47", "client:E-48", "client:E-49", "broker:16.3")
def test_status_and_offsets(
    admin: JavaAdmin, driver: JavaDriver, cluster: ApacheCluster | LocalCluster, name: str
) -> None:
    admin.create_topic(cluster.broker_address, name, 2)
    queues = [MessageQueue(name, "broker-a", queue_id) for queue_id in (0, 1)]
    where = {"topic": name, "broker": "broker-a", "id": 1}
    before = int(time.time() * 1000)
    empty = admin.call("offsets", queue=where, timestamp=before)
    assert (empty["min"], empty["max"], empty["at"]) == (0, 0, 0)
    with driver.producer(cluster.namesrv, f"{name}_p") as producer:
        producer.send([Message(name, b"%d" % number) for number in range(5)], queue=queues[1])
        middle = int(time.time() * 1000)
        until_sync(lambda: time.time() * 1000 > middle + 5)
        producer.send([Message(name, b"%d" % number) for number in range(3)], queue=queues[1])
    assert admin.topic_status(name) == {queues[0]: (0, 0), queues[1]: (0, 8)}
    offsets = admin.call("offsets", queue=where, timestamp=middle + 1)
    assert (offsets["min"], offsets["max"], offsets["at"]) == (0, 8, 5)
    assert before <= offsets["earliest"] <= middle


def test_groups_and_connections(
    admin: JavaAdmin, driver: JavaDriver, cluster: ApacheCluster | LocalCluster, name: str
) -> None:
    admin.create_topic(cluster.broker_address, name, 2)
    group, producers = f"{name}_c", f"{name}_p"
    queues = {MessageQueue(name, "broker-a", 0), MessageQueue(name, "broker-a", 1)}

    def committed() -> bool:
        """Whether all is committed, which a member tells now and then."""
        try:
            progress = admin.group_progress(group)
        except JavaError:  # nothing is known of the group before its first commit
            return False
        return progress.keys() == queues and sum(progress.values(), ()) == (4, 4, 4, 4)

    with driver.producer(cluster.namesrv, producers) as producer:
        producer.send([Message(name, b"%d" % number) for number in range(8)])
        with driver.consumer(cluster.namesrv, group, {name: "*"}) as consumer:
            consumer.wait(8)
            until_sync(committed)
            seen = admin.call("consumers", group=group)
            assert [one["language"] for one in seen["connectionSet"]] == ["JAVA"]
            assert seen["subscriptionTable"][name]["subString"] == "*"
            assert (seen["consumeType"], seen["messageModel"]) == ("CONSUME_PASSIVELY", "CLUSTERING")
        (known,) = admin.call("producers", group=producers, topic=name)["connectionSet"]
        assert known["language"] == "JAVA"
    assert admin.call("groups_of_topic", topic=name) == [group]
    with pytest.raises(JavaError) as offline:
        admin.call("consumers", group=group)
    assert offline.value.code == ResponseCode.CONSUMER_NOT_ONLINE


def test_a_deleted_topic_is_gone(
    admin: JavaAdmin, driver: JavaDriver, cluster: ApacheCluster | LocalCluster, name: str
) -> None:
    admin.create_topic(cluster.broker_address, name, 2)
    with driver.producer(cluster.namesrv, f"{name}_p") as producer:
        producer.send([Message(name, b"gone")])
    arguments = {"namesrv": cluster.namesrv, "broker_addr": cluster.broker_address}
    driver.call("Tools.deleteTopic", topic=name, **arguments)
    until_sync(lambda: admin.queues(name) == 0)
    admin.create_topic(cluster.broker_address, name, 2)
    until_sync(lambda: set(admin.topic_status(name).values()) == {(0, 0)})
