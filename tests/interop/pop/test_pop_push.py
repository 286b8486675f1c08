"""Push consumers that receive by POP because the broker says so: Apache's at ours, ours at Apache's."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.interop.apache import ApacheCluster
from tests.interop.driver import JavaDriver
from tests.interop.ours import CONSUMER
from tests.interop.pop.popping import Popper
from tests.support import expect_all, run, until, until_sync

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.core.names import dlq_topic
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.interop
COUNT = 20


def prepare(namesrv: str, broker: str, name: str) -> Popper:
    """A topic with four queues, and its group, which is to receive by POP."""
    popper = Popper(broker, name, f"{name}_g")
    popper.create_topic(4)
    with mq.Admin(namesrv=namesrv) as admin:
        until_sync(lambda: name in admin.topics.list())
        admin.groups.create(popper.group)
        admin.groups.set_request_mode(popper.group, name, "POP")
    return popper


def waiting(popper: Popper) -> int:
    """How many POPs wait at the broker."""
    told = popper.ask(RequestCode.POLLING_INFO, consumerGroup=popper.group, topic=popper.topic, queueId=-1)
    return int(told.ext["pollingNum"])


def left(popper: Popper, polls: int) -> list[bytes]:
    """What comes while so many POPs wait for a second each: longer than messages were hidden."""
    return [one.body for _ in range(polls) for one in popper.pop(pollTime=1_000)]


@pytest.mark.proves("client:C-43", "broker:13.10")
def test_javas_push_consumer_at_our_broker(ours: LocalCluster, driver: JavaDriver, name: str) -> None:
    popper = prepare(ours.namesrv, ours.broker_address, name)
    with (
        driver.consumer(ours.namesrv, popper.group, {name: "*"}, asks_broker=True) as one,
        driver.consumer(ours.namesrv, popper.group, {name: "*"}, asks_broker=True) as two,
    ):
        until_sync(lambda: waiting(popper) == 2)
        for number in range(COUNT):
            popper.send(b"%d" % number, queue_id=number % 4)
        wanted = {b"%d" % number for number in range(COUNT)}
        expect_all(lambda: [each.body for each in (*one.received(), *two.received())], wanted)
        assert {each.reconsume_times for each in (*one.received(), *two.received())} == {0}
    assert left(popper, 7) == [], "all of them were acknowledged"


@pytest.mark.proves("client:C-43", "broker:13.10")
def test_our_push_consumer_at_apaches_broker(apache: ApacheCluster, name: str) -> None:
    popper = prepare(apache.namesrv, apache.broker.address, name)
    seen: list[tuple[bytes, int]] = []

    def handle(message: mq.ReceivedMessage) -> None:
        seen.append((message.body, message.reconsume_times))
        if message.body == b"0":
            raise mq.Retry(after=0.0, dead=bool(message.reconsume_times))

    async def main() -> None:
        settings = replace(CONSUMER, namesrv=apache.namesrv, server_assignment=True, pop_invisible=5.0)
        consumer = aio.PushConsumer(popper.group, settings=settings)
        consumer.subscribe(name, handler=handle)
        async with consumer, aio.PullConsumer(namesrv=apache.namesrv) as reader:
            await until(lambda: waiting(popper) >= 1)
            assert [one.queue_id for one in consumer.assignment if one.topic == name] == [-1]
            for number in range(COUNT):
                await asyncio.to_thread(popper.send, b"%d" % number, queue_id=number % 4)
            await until(lambda: (b"0", 1) in seen)
            assert {body for body, _ in seen} == {b"%d" % number for number in range(COUNT)}

            async def dead() -> bool:
                try:
                    (queue,) = await reader.queues(dlq_topic(popper.group))
                except aio.NoRouteError:
                    return False
                return [one.body for one in (await reader.pull(queue, 0)).messages] == [b"0"]

            await until(lambda: dead())

    run(main())
    assert len(seen) == COUNT + 1
    assert left(popper, 10) == [], "all of them were acknowledged"
