"""Reads from slaves: an Apache master with its slave, and our master with a scripted slave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.client.fake import FakeBroker, FakeCluster
from tests.interop.apache import PATIENT, ApacheBroker, ApacheNameServer, ask
from tests.interop.driver import JavaDriver
from tests.interop.ours import OurClients
from tests.support import until_sync

from sparrowmq import PullConsumer, aio
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.protocol import headers
from sparrowmq.protocol.bodies import KVTable
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import PullMessageRequest, RegisterBrokerRequest
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.client import RemotingClient

pytestmark = pytest.mark.interop
COMMIT = 1
SIDES = pytest.mark.parametrize("side", ["driver", "our_clients"])


@pytest.fixture
def clients(request: pytest.FixtureRequest, side: str) -> JavaDriver | OurClients:
    """The clients of a side."""
    found: JavaDriver | OurClients = request.getfixturevalue(side)
    return found


# An Apache master and its slave. Both say at once that what is read is no longer in memory.


class Pair:
    """A name server, a master and its slave."""

    def __init__(self, directory: Path) -> None:
        slow = {**PATIENT, "slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": 0}
        slow |= {"brokerIP2": "127.0.0.1"}
        self.names = ApacheNameServer(directory)
        self.master = ApacheBroker(directory, self.names.address, settings=slow)
        self.slave = ApacheBroker(
            directory / "slave",
            self.names.address,
            settings={**slow, "brokerId": 1, "brokerRole": "SLAVE"},
        )
        self.namesrv = self.names.address

    def start(self) -> None:
        """Start all three."""
        self.names.start()
        self.names.ready()
        self.master.start()
        self.slave.start()
        self.master.ready()
        self.slave.ready()

    def kill(self) -> None:
        """End all three."""
        for one in (self.slave, self.master, self.names):
            one.kill()

    def fill(self, driver: JavaDriver, topic: str) -> None:
        """Put 100 messages into a topic of one queue, and wait until the slave has them."""
        for broker in (self.master, self.slave):
            driver.admin(self.namesrv).call("create_topic", broker_addr=broker.address, topic=topic, queues=1)
        until_sync(lambda: driver.admin(self.namesrv).queues(topic) == 1)
        with driver.producer(self.namesrv, f"{topic}_p") as producer:
            producer.send([Message(topic, b"%d" % number) for number in range(100)], "async")
        where = {"topic": topic, "queueId": "0"}
        until_sync(
            lambda: (
                ask(self.slave.address, Command(RequestCode.GET_MAX_OFFSET, ext=where)).ext["offset"] == "100"
            )
        )

    def handed_out(self) -> int:
        """How many messages the slave has given to readers."""
        body = ask(self.slave.address, Command(RequestCode.GET_BROKER_RUNTIME_INFO)).body
        return int(KVTable.decode(body).table["msgGetTotalTodayNow"])

    def kept_by_slave(self, group: str, topic: str) -> str | None:
        """The group's offset as the slave has it."""
        where = {"consumerGroup": group, "topic": topic, "queueId": "0", "setZeroIfNotFound": "false"}
        answer = ask(self.slave.address, Command(RequestCode.QUERY_CONSUMER_OFFSET, ext=where))
        return answer.ext["offset"] if answer.code == ResponseCode.SUCCESS else None


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Apache's servers; the last test that uses them kills the master."""
    made = Pair(tmp_path_factory.mktemp("pair"))
    try:
        made.start()
        yield made
    finally:
        made.kill()


def numbers(count: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(count))


@SIDES
@pytest.mark.proves("client:D-22", "client:D-19")
def test_apaches_master_sends_a_reader_to_its_slave(
    pair: Pair, clients: JavaDriver | OurClients, driver: JavaDriver, name: str
) -> None:
    pair.fill(driver, name)
    before = pair.handed_out()
    with clients.consumer(pair.namesrv, f"{name}_c", {name: "*"}) as consumer:
        assert sorted(one.body for one in consumer.wait(100)) == numbers(100)
        assert pair.handed_out() - before >= 100 - 32, "all but the first batch at least"
        progress = driver.admin(pair.namesrv).group_progress
        queue = MessageQueue(name, "broker-a", 0)
        until_sync(lambda: progress(f"{name}_c").get(queue) == (100, 100))


def test_bulk_reads_spare_the_master_when_told_to(pair: Pair, driver: JavaDriver, name: str) -> None:
    pair.fill(driver, name)
    queue = MessageQueue(name, "broker-a", 0)
    with PullConsumer(namesrv=pair.namesrv) as consumer:
        before = pair.handed_out()
        assert consumer.fetch_raw(queue, 0, read_from="master").next_offset
        assert pair.handed_out() == before
        assert (given := consumer.fetch_raw(queue, 0, read_from="slave").next_offset)
        assert pair.handed_out() == before + given


@pytest.mark.proves("client:A-53", "client:D-76")
def test_apaches_slave_is_read_when_its_master_is_gone(
    pair: Pair, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    pair.fill(driver, name)
    pair.master.kill()
    brokers = driver.admin(pair.namesrv).call
    until_sync(lambda: brokers("cluster")["brokerAddrTable"]["broker-a"]["brokerAddrs"].keys() == {"1"})
    for clients, group in ((driver, f"{name}_java"), (our_clients, f"{name}_ours")):
        with clients.consumer(pair.namesrv, group, {name: "*"}) as consumer:
            assert sorted(one.body for one in consumer.wait(100)) == numbers(100)
            until_sync(lambda group=group: pair.kept_by_slave(group, name) == "100")


# Our master, and a slave's address that a test scripts.


@pytest.fixture(scope="module")
def master() -> Iterator[LocalCluster]:
    """Our servers, which say at once that what is read is no longer in memory."""
    with LocalCluster(slave_read_enable=True, access_message_in_memory_max_ratio=0) as cluster:
        yield cluster


@asynccontextmanager
async def slave_of(namesrv: str) -> AsyncIterator[FakeBroker]:
    """A scripted broker that is registered as the slave of `broker-a`."""
    slave = FakeCluster().broker
    await slave.server.start()
    header = RegisterBrokerRequest(
        broker_name="broker-a",
        broker_addr=slave.server.address,
        cluster_name="DefaultCluster",
        broker_id=1,
        ha_server_addr="",
    )
    client = RemotingClient()
    try:
        answer = await client.call(
            namesrv, Command(RequestCode.REGISTER_BROKER, ext=headers.to_ext(header)), 5
        )
        assert answer.code == ResponseCode.SUCCESS
        yield slave
    finally:
        await client.close()
        slave.release()
        await slave.server.close(timeout=1.0)


@pytest.fixture
def slave(master: LocalCluster) -> Iterator[FakeBroker]:
    """A scripted slave of our master."""
    context = slave_of(master.namesrv)
    made = master.call(context.__aenter__())
    try:
        yield made
    finally:
        master.call(context.__aexit__(None, None, None))


async def copy(namesrv: str, queue: MessageQueue, slave: FakeBroker) -> None:
    """Give the slave the records of a queue as the master has them."""
    async with aio.PullConsumer(namesrv=namesrv) as consumer:
        data = (await consumer.fetch_raw(queue, 0)).buffer
    while data:
        size = int.from_bytes(data[:4], "big")
        slave.queues[queue.topic, queue.queue_id].append(data[:size])
        data = data[size:]


def pulls(slave: FakeBroker, topic: str) -> list[PullMessageRequest]:
    asked = slave.requests(RequestCode.PULL_MESSAGE)
    found = [headers.from_ext(PullMessageRequest, command.ext) for command in asked]
    return [header for header in found if header.topic == topic]


@SIDES
@pytest.mark.proves("client:D-21", "client:D-22", "client:A-53", "broker:5.4")
def test_our_master_sends_a_reader_to_its_slave(
    master: LocalCluster, slave: FakeBroker, clients: JavaDriver | OurClients, driver: JavaDriver, name: str
) -> None:
    group, queue = f"{name}_c", MessageQueue(name, "broker-a", 0)
    admin = driver.admin(master.namesrv)
    admin.create_topic(master.broker_address, name, 1)
    with driver.producer(master.namesrv, f"{name}_p") as producer:
        producer.send([Message(name, b"%d" % number) for number in range(40)])
    master.call(copy(master.namesrv, queue, slave))
    with clients.consumer(master.namesrv, group, {name: "*"}) as consumer:
        assert sorted(one.body for one in consumer.wait(40)) == numbers(40)
        until_sync(lambda: admin.group_progress(group).get(queue) == (40, 40))
        (asked,) = pulls(slave, name)
        assert asked.queue_offset == 32 and not asked.sys_flag & COMMIT
        assert not slave.offsets
        try:
            master.stop_broker()
            for number in range(40, 45):
                master.call(_store(slave, name, b"%d" % number))
            assert sorted(one.body for one in consumer.wait(45)) == numbers(45)
            until_sync(lambda: slave.offsets.get((group, name, 0)) == 45)
            assert not any(asked.sys_flag & COMMIT for asked in pulls(slave, name))
        finally:
            master.start_broker()


async def _store(slave: FakeBroker, topic: str, body: bytes) -> None:
    slave.store(topic, 0, body)
