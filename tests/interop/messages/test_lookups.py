"""Messages by key and by id, and mqadmin's commands for brokers: both clients, both kinds of servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver, JavaError, Sent
from tests.interop.ours import OurClients
from tests.support import until_sync

from sparrowmq import aio
from sparrowmq.core.message import Message, ReceivedMessage
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
Cluster = ApacheCluster | LocalCluster


@pytest.fixture(params=["apache", "ours"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Both kinds of servers."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


def send(driver: JavaDriver, cluster: Cluster, topic: str) -> list[Sent]:
    """Six messages with a key of their own and a common one."""
    driver.admin(cluster.namesrv).create_topic(cluster.broker_address, topic, 2)
    messages = [
        Message(topic, b"body %d" % number, tags="t", keys=[f"own{number}", "both"]) for number in range(6)
    ]
    with driver.producer(cluster.namesrv, f"{topic}_p") as producer:
        return producer.send(messages)


class JavaLookups:
    """Java's admin client."""

    def __init__(self, driver: JavaDriver, namesrv: str) -> None:
        self._call: Callable[..., Any] = lambda op, **fields: driver.call(op, namesrv=namesrv, **fields)

    def by_key(self, topic: str, key: str) -> list[tuple[int, int, str]]:
        try:
            found = self._call("Lookups.byKey", topic=topic, key=key, count=32)
        except JavaError:
            return []
        return sorted((value["queue_id"], value["queue_offset"], value["msg_id"]) for value in found)

    def by_id(self, topic: str, message_id: str) -> tuple[int, int, str]:
        value = self._call("Lookups.byId", topic=topic, message_id=message_id)
        return value["queue_id"], value["queue_offset"], value["msg_id"]


class OurLookups:
    """Our admin client."""

    def __init__(self, clients: OurClients, namesrv: str) -> None:
        self._clients = clients
        self._namesrv = namesrv

    def by_key(self, topic: str, key: str) -> list[tuple[int, int, str]]:
        async def work() -> list[ReceivedMessage]:
            async with aio.Admin(namesrv=self._namesrv) as admin:
                return await admin.messages.query(topic, key)

        return sorted(_place(message) for message in self._clients.run(work()))

    def by_id(self, topic: str, message_id: str) -> tuple[int, int, str]:
        async def work() -> ReceivedMessage | None:
            async with aio.Admin(namesrv=self._namesrv) as admin:
                return await admin.messages.get(topic, message_id)

        message = self._clients.run(work())
        assert message is not None
        return _place(message)


def _place(message: ReceivedMessage) -> tuple[int, int, str]:
    return message.queue.queue_id, message.queue_offset, message.message_id


@pytest.fixture(params=["java", "ours"])
def lookups(
    request: pytest.FixtureRequest, driver: JavaDriver, our_clients: OurClients, cluster: Cluster
) -> JavaLookups | OurLookups:
    """Both kinds of clients."""
    if request.param == "java":
        return JavaLookups(driver, cluster.namesrv)
    return OurLookups(our_clients, cluster.namesrv)


@pytest.mark.proves("client:E-50", "client:E-51", "client:E-52", "broker:4.3")
def test_messages_by_key_and_by_both_ids(
    lookups: JavaLookups | OurLookups, driver: JavaDriver, cluster: Cluster, name: str
) -> None:
    sent = send(driver, cluster, name)
    places = [(one.queue.queue_id, one.queue_offset, one.msg_id) for one in sent]
    until_sync(lambda: len(lookups.by_key(name, "both")) == len(sent))  # Apache's index follows its log
    assert lookups.by_key(name, "both") == sorted(places)
    for number, one in enumerate(sent):
        assert lookups.by_key(name, f"own{number}") == [places[number]]
        assert lookups.by_id(name, one.msg_id) == places[number]
        assert lookups.by_id(name, one.offset_msg_id)[:2] == places[number][:2]
    assert lookups.by_key(name, "nothing") == []


def mqadmin(driver: JavaDriver, *arguments: str) -> str:
    """What a command of mqadmin prints."""
    printed: str = driver.call("Lookups.mqadmin", arguments=list(arguments))
    return printed


@pytest.mark.proves("broker:16.1", "client:F-02")
def test_mqadmin_shows_clusters_and_brokers(driver: JavaDriver, cluster: Cluster) -> None:
    table = mqadmin(driver, "clusterList", "-n", cluster.namesrv)
    (row,) = [line.split() for line in table.splitlines() if cluster.broker_address in line]
    assert row[:4] == ["DefaultCluster", "broker-a", "0", cluster.broker_address]
    assert row[4].startswith("V5_")
    more = mqadmin(driver, "clusterList", "-m", "-n", cluster.namesrv)
    assert "#InTotalToday" in more
    status = mqadmin(driver, "brokerStatus", "-b", cluster.broker_address, "-n", cluster.namesrv)
    keys = {line.split(":")[0].strip() for line in status.splitlines() if ":" in line}
    assert {"putTps", "bootTimestamp", "commitLogMaxOffset", "msgPutTotalTodayNow", "runtime"} <= keys


@pytest.mark.proves("client:F-02")
def test_mqadmin_changes_settings_and_cleans(driver: JavaDriver, cluster: Cluster) -> None:
    where = ("-b", cluster.broker_address, "-n", cluster.namesrv)
    done = mqadmin(driver, "updateBrokerConfig", *where, "-k", "fileReservedTime", "-v", "49")
    assert "success" in done
    shown = mqadmin(driver, "getBrokerConfig", *where)
    assert [line.split()[-1] for line in shown.splitlines() if line.startswith("fileReservedTime")] == ["49"]
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in mqadmin(driver, command, *where)


@pytest.mark.proves("client:F-02", "client:F-06")
def test_mqadmin_looks_messages_up(driver: JavaDriver, cluster: Cluster, name: str) -> None:
    sent = send(driver, cluster, name)
    namesrv = ("-n", cluster.namesrv)
    until_sync(lambda: sent[0].msg_id in mqadmin(driver, "queryMsgByKey", "-t", name, "-k", "own0", *namesrv))
    by_id = mqadmin(driver, "queryMsgById", "-t", name, "-i", sent[1].offset_msg_id, *namesrv)
    assert name in by_id
    assert "own1" in by_id
    unique = mqadmin(driver, "queryMsgByUniqueKey", "-t", name, "-i", sent[2].msg_id, *namesrv)
    assert "own2" in unique, driver.stderr()
    place = ("-i", str(sent[3].queue.queue_id), "-o", str(sent[3].queue_offset))
    by_offset = mqadmin(driver, "queryMsgByOffset", "-t", name, "-b", "broker-a", *place, *namesrv)
    assert "own3" in by_offset
    where = ("-q", "0", "-i", "0", "-b", cluster.broker_address)
    entries = mqadmin(driver, "queryCq", "-t", name, *where, *namesrv)
    assert "Queue data" in entries
    assert "physicOffset" in entries or "idx" in entries
