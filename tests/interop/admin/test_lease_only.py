"""A managed group on Apache's broker, which enforces nothing: leases alone keep its members apart."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.coordinator.groups.serving import serve_members
from tests.interop.apache import ApacheCluster
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.coordinator.cluster.clients import ClusterCalls
from sparrowmq.coordinator.groups.handover import Times

pytestmark = pytest.mark.interop

TIMES = Times(member_lease=1.6, lease=2.0, drain=5.0)


@pytest.mark.parametrize("ordered", [False, True])
def test_members_share_and_hand_over_queues_of_apache_s_broker(
    apache: ApacheCluster, name: str, ordered: bool
) -> None:
    """Queues go from hand to hand, and no handler starts when the lease is over."""
    topic, group = f"{name[:80]}_t", f"{name[:80]}_g"
    handled: list[bytes] = []
    settings = aio.ConsumerSettings(managed=True, ordered=ordered, consume_from="first")

    async def main() -> None:
        async with AsyncExitStack() as stack:
            admin = await stack.enter_async_context(aio.Admin(namesrv=apache.namesrv))
            await admin.topics.create(topic, queues=4)
            first = await stack.enter_async_context(AsyncExitStack())
            server = await first.enter_async_context(serve(admin))

            def member() -> aio.PushConsumer:
                consumer = aio.PushConsumer(group, namesrv=apache.namesrv, settings=settings)

                async def handle(message: aio.ReceivedMessage) -> None:
                    handled.append(message.body)

                consumer.subscribe(topic, handler=handle)
                return consumer

            one = await stack.enter_async_context(member())
            await until(lambda: mine(one) == 4)
            await send(0)
            await until(lambda: len(handled) == 20)
            async with member() as two:
                await until(lambda: (mine(one), mine(two)) == (2, 2))
                await send(20)
                await until(lambda: len(handled) == 40)
            await until(lambda: mine(one) == 4)
            leader = server.groups.find(group)
            assert leader is not None and leader.lease_only == {"broker-a"}
            assert await admin.policies.list(group) == {}
            await first.aclose()
            held = one._member
            assert held is not None
            await until(lambda: not any(queue.may_start() for queue in held.queues.process_queues()))
            await send(40)
            assert len(handled) == 40, "nobody starts a handler without a lease"
            await stack.enter_async_context(serve(admin))
            await until(lambda: len(handled) == 60)
        assert sorted(handled, key=int) == [b"%d" % number for number in range(60)]

    def serve(admin: aio.Admin) -> Any:
        return serve_members(ClusterCalls(admin), host="127.0.0.1", port=0, times=TIMES)

    def mine(consumer: aio.PushConsumer) -> int:
        return sum(queue.topic == topic for queue in consumer.assignment)

    async def send(start: int) -> None:
        async with aio.Producer(f"{group}_p", namesrv=apache.namesrv) as producer:
            for number in range(start, start + 20):
                queue = aio.MessageQueue(topic, "broker-a", number % 4)
                await producer.send(aio.Message(topic, b"%d" % number), queue=queue)
            await asyncio.sleep(0)

    run(main())
