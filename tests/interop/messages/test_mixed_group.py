"""Java's consumers and ours in one group: every queue has one owner, and both sides compute the same plan."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from tests.interop.clusters.test_mixed_clusters import our_broker
from tests.interop.driver import JavaConsumer, JavaDriver
from tests.interop.ours import CONSUMER, OurClients, OurConsumer
from tests.support import until_sync

from sparrowmq import aio
from sparrowmq.core.allocation import Averagely
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.protocol.bodies import ConsumerList, ConsumerRunningInfo
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.testing import LocalCluster
from sparrowmq.transport.client import RemotingClient

pytestmark = pytest.mark.interop

QUEUES_EACH = 8
SETTLE_SECONDS = 60.0
CHILD = """
import asyncio, sys
from sparrowmq import aio
from sparrowmq.client.base.settings import ConsumerSettings

async def main():
    settings = ConsumerSettings(
        heartbeat_interval=1.0, route_interval=1.0, rebalance_interval=0.5, rebalance_interval_min=0.1
    )
    consumer = aio.PushConsumer(sys.argv[2], namesrv=sys.argv[1], settings=settings)
    consumer.subscribe(sys.argv[3], "*", lambda message: None)
    async with consumer:
        await asyncio.Event().wait()

asyncio.run(main())
"""
"""A consumer of ours in a process of its own, to be killed."""


class Group:
    """A group as its brokers and members tell of it."""

    def __init__(self, clients: OurClients, namesrv: str, brokers: list[str], group: str, topic: str) -> None:
        self.clients = clients
        self.namesrv = namesrv
        self.brokers = brokers
        self.group = group
        names = ("broker-a", "broker-b")
        self.queues = [MessageQueue(topic, name, number) for name in names for number in range(QUEUES_EACH)]
        self.topic = topic

    def settled(self, members: int) -> bool:
        """Whether all brokers know the same members, and each holds what the plan gives it."""
        return self.clients.run(self._settled(members))

    async def _settled(self, members: int) -> bool:
        client = RemotingClient()
        try:
            known = [await self._members(client, broker) for broker in self.brokers]
            if any(sorted(ids) != sorted(known[0]) or len(ids) != members for ids in known):
                return False
            ids = sorted(known[0])
            for client_id in ids:
                plan = Averagely().allocate(self.group, client_id, self.queues, ids)
                if await self._held(client, client_id) != set(plan):
                    return False
            return True
        except SparrowError:
            return False
        finally:
            await client.close()

    async def _members(self, client: RemotingClient, broker: str) -> list[str]:
        ask = Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext={"consumerGroup": self.group})
        answer = await client.call(broker, ask, 5.0)
        return ConsumerList.decode(answer.body).consumer_id_list if answer.code == 0 else []

    async def _held(self, client: RemotingClient, client_id: str) -> set[MessageQueue]:
        ext = {"consumerGroup": self.group, "clientId": client_id, "jstackEnable": "false"}
        ask = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, ext=ext)
        answer = await client.call(self.brokers[0], ask, 5.0)
        held = ConsumerRunningInfo.decode(answer.body).queues if answer.code == 0 else {}
        return {queue for queue, info in held.items() if queue.topic == self.topic and not info.dropped}


@pytest.fixture
def group(ours: LocalCluster, our_clients: OurClients, name: str, tmp_path: Path) -> Iterator[Group]:
    """A topic of 16 queues on two brokers of ours."""

    async def create() -> None:
        async with aio.Admin(namesrv=cluster.namesrv) as admin:
            await admin.topics.create(name, queues=QUEUES_EACH)

    with LocalCluster() as cluster, our_broker(ours, cluster.namesrv, "broker-b", tmp_path) as second:
        our_clients.run(create())
        brokers = [cluster.broker_address, second]
        yield Group(our_clients, cluster.namesrv, brokers, f"{name}_c", name)


@pytest.mark.proves("client:C-14", "broker:10.3", "client:A-87")
def test_members_of_both_sides_join_leave_and_die(
    group: Group, driver: JavaDriver, our_clients: OurClients, name: str
) -> None:
    subscriptions = {name: "*"}
    started = 0

    def our_consumer() -> OurConsumer:
        nonlocal started
        started += 1
        settings = replace(CONSUMER, instance_name=f"mixed{started}")
        client = aio.PushConsumer(group.group, namesrv=group.namesrv, settings=settings)
        return OurConsumer(our_clients, client, subscriptions)

    def settle(members: int) -> None:
        until_sync(lambda: group.settled(members), SETTLE_SECONDS)

    with ExitStack() as stack:
        java = [stack.enter_context(driver.consumer(group.namesrv, group.group, subscriptions))]
        mine = [stack.enter_context(our_consumer())]
        settle(2)
        java.append(stack.enter_context(driver.consumer(group.namesrv, group.group, subscriptions)))
        mine.append(stack.enter_context(our_consumer()))
        settle(4)
        child = subprocess.Popen([sys.executable, "-c", CHILD, group.namesrv, group.group, name])
        stack.callback(child.kill)
        doomed = stack.enter_context(JavaDriver())
        doomed.consumer(group.namesrv, group.group, subscriptions)
        settle(6)
        child.kill()
        child.wait()
        settle(5)
        doomed.kill()
        settle(4)
        java[0].stop()
        mine[0].stop()
        settle(2)
        mine.append(stack.enter_context(our_consumer()))
        settle(3)
        producer = stack.enter_context(driver.producer(group.namesrv, f"{name}_p"))
        for queue in group.queues:
            producer.send([Message(name, str(queue).encode())], queue=queue)
        live: list[JavaConsumer | OurConsumer] = [java[1], mine[1], mine[2]]

        def received() -> list[str]:
            return sorted(one.body.decode() for consumer in live for one in consumer.received())

        until_sync(lambda: received() == sorted(map(str, group.queues)))
