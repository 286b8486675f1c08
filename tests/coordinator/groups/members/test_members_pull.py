"""Managed pull consumers: by polling, by offset, and called by a schedule; queues move between calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from tests.coordinator.groups.managed_world import GROUP, SHORT, World, flow, queues
from tests.support import about, until, until_sync

import sparrowmq as mq
from sparrowmq import aio
from sparrowmq.core.errors import ClientError, InvalidStateError, SettingsError
from sparrowmq.protocol.codes import ResponseCode

pytestmark = pytest.mark.usefixtures("brisk")

PULL = mq.PullSettings(managed=True, consume_from="first", pull_hold=0.5, rebalance_interval_min=0.02)
MANUAL = mq.PullSettings(managed=True, consume_from="first", pull_hold=0.5, auto_commit=False)


@asynccontextmanager
async def poller(world: World, settings: mq.PullSettings = PULL) -> AsyncIterator[aio.PullConsumer]:
    consumer = aio.PullConsumer(GROUP, namesrv=world.namesrv, settings=settings)
    consumer.subscribe("Orders")
    async with consumer:
        yield consumer


@asynccontextmanager
async def puller(world: World) -> AsyncIterator[aio.PullConsumer]:
    consumer = aio.PullConsumer(GROUP, namesrv=world.namesrv, settings=PULL)
    consumer.register_topic("Orders")
    async with consumer:
        yield consumer


async def poll_into(world: World, name: str, consumer: aio.PullConsumer) -> None:
    while True:
        for message in await consumer.poll(0.1):
            world.note(name, message)


def test_polling_members_share_the_queues_and_each_message_is_polled_once() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(poller(world))
            reading = tasks.create_task(poll_into(world, "one", one))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(0, 40)
            await until(lambda: len(world.handled) == 40)
            async with poller(world) as two:
                also = tasks.create_task(poll_into(world, "two", two))
                await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
                await world.send(40, 40)
                await until(lambda: len(world.handled) == 80)
                assert {name for names in world.seen_by.values() for name in names} == {"one", "two"}
                also.cancel()
                await asyncio.wait([also])
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(80, 8)
            await until(lambda: len(world.handled) == 88)
            reading.cancel()
        assert set(world.handled.values()) == {1}

    flow(test)


async def polled(consumer: aio.PullConsumer) -> list[aio.ReceivedMessage]:
    """Messages of one non-empty poll; the application then holds the queue of the last ones."""
    found: list[aio.ReceivedMessage] = await until(lambda: consumer.poll(0.1))
    return found


LAST = aio.MessageQueue("Orders", "broker-a", 3)
"""Of four queues that one member has, the one that comes next gets the last two."""


@pytest.mark.parametrize("way", ["poll", "commit", "close"])
def test_queue_moves_when_the_application_has_finished_its_messages(way: str) -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(world.coordinator())
            first = await stack.enter_async_context(AsyncExitStack())
            one = await first.enter_async_context(poller(world, MANUAL if way == "commit" else PULL))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(3, 1)
            (message,) = await polled(one)
            assert message.queue == LAST
            two = await stack.enter_async_context(poller(world))
            leader = server.groups.find(GROUP)
            await until(lambda: queues(one) == [0, 1])
            await until(lambda: queues(two) == [2])
            assert not leader.settled
            if way == "poll":
                assert await one.poll(0) == []
            elif way == "commit":
                await one.commit()
            else:
                await first.aclose()
            await until(lambda: 3 in queues(two))
            assert await two.committed(LAST) == 1
            assert await two.poll(0.1) == [], "what was polled is not polled again"

    flow(test)


def test_prefetched_messages_are_not_polled_without_a_lease_and_come_after_it_is_renewed() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(AsyncExitStack())
            await first.enter_async_context(world.coordinator(SHORT))
            one = await stack.enter_async_context(poller(world))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(0, 4)
            lite = one._lite
            assert lite is not None
            await until(lambda: sum(map(len, lite.process_queues())) == 4)
            await first.aclose()
            await until(lambda: queues(one) == [])
            assert await one.poll(0) == []
            await stack.enter_async_context(world.coordinator(SHORT))
            found = [message.body for _ in range(4) for message in await polled(one)]
            assert sorted(found) == [b"0", b"1", b"2", b"3"]

    flow(test)


def test_late_commits_are_refused_counted_and_reported_to_the_coordinator() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(world.coordinator(SHORT))
            one = await stack.enter_async_context(poller(world, MANUAL))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(3, 1)
            (message,) = await polled(one)
            two = await stack.enter_async_context(poller(world))
            await until(lambda: queues(two) == [2, 3])
            with pytest.raises(aio.BrokerError, check=about(code=ResponseCode.GENERATION_FENCED)):
                await one.send_back(message)
            assert one.late_results == 1
            leader = server.groups.find(GROUP)
            await until(lambda: leader.late == 1)
            (again,) = await polled(two)
            assert again.body == b"3"
            with pytest.raises(aio.BrokerError) as caught:
                await one.commit(LAST, 1)
            assert caught.value.code == ResponseCode.GENERATION_FENCED
            # That was all it had of the queue. What it noted is tried once more when it lets go.
            await until(lambda: leader.late == 3)
            assert one.late_results == 3

    flow(test)


def test_queues_are_pulled_by_offset_while_granted_and_move_afterwards() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(puller(world))
            await until(lambda: len(one.fetch_message_queues_in_balance("Orders")) == 4)
            await world.send(3, 1)
            assert len((await one.pull(LAST, 0, wait=5)).messages) == 1
            one.update_consume_offset(LAST, 1)
            two = await stack.enter_async_context(puller(world))
            await until(lambda: queues(one) == [0, 1])
            await until(lambda: queues(two) == [2])
            leader = server.groups.find(GROUP)
            assert not leader.settled
            with pytest.raises(aio.ClientError, check=about(what="queue", value=LAST)):
                await one.pull(LAST, 1)
            one.finish(LAST)
            await until(lambda: queues(two) == [2, 3])
            assert await two.fetch_consume_offset(LAST) == 1
            first = aio.MessageQueue("Orders", "broker-a", 0)
            with pytest.raises(aio.ClientError, check=about(what="queue", value=first)):
                await two.fetch_raw(first, 0)
            assert (await two.pull(LAST, 1)).status is mq.PullStatus.NO_NEW_MESSAGE

    flow(test)


def test_querying_queues_or_pulling_again_marks_the_work_as_done() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(puller(world))
            await until(lambda: len(one.fetch_message_queues_in_balance("Orders")) == 4)
            await world.send(2, 2)
            for number in (2, 3):
                queue = aio.MessageQueue("Orders", "broker-a", number)
                assert len((await one.pull(queue, 0, wait=5)).messages) == 1
            assert (await one.pull(LAST, 1)).messages == [], "that said that queue 3 is done"
            two = await stack.enter_async_context(puller(world))
            await until(lambda: queues(two) == [3])
            one.fetch_message_queues_in_balance("Orders")
            await until(lambda: queues(two) == [2, 3])

    flow(test)


def test_running_pull_returns_nothing_when_its_queue_is_revoked() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(puller(world))
            await until(lambda: len(one.fetch_message_queues_in_balance("Orders")) == 4)
            waiting = asyncio.create_task(one.pull(LAST, 0, wait=1.5))
            await asyncio.sleep(0)
            two = await stack.enter_async_context(puller(world))
            await until(lambda: queues(one) == [0, 1])
            await world.send(3, 1)
            with pytest.raises(aio.ClientError, check=about(what="queue", value=LAST)):
                await waiting
            await until(lambda: queues(two) == [2, 3])
            assert len((await two.pull(LAST, 0, wait=5)).messages) == 1

    flow(test)


def test_schedule_keeps_its_queue_until_the_call_has_ended() -> None:
    async def test(world: World) -> None:
        gate, at_work = asyncio.Event(), asyncio.Event()
        calls: list[tuple[str, bytes]] = []

        def work(name: str, *, slow: bool) -> Any:
            async def called(queue: aio.MessageQueue, context: aio.PullContext) -> None:
                context.next_delay = 0.01
                offset = await context.consumer.fetch_consume_offset(queue) or 0
                result = await context.consumer.pull(queue, offset)
                for message in result.messages:
                    at_work.set()
                    if slow:
                        await gate.wait()
                    calls.append((name, message.body))
                context.consumer.update_consume_offset(queue, result.next_offset)

            return called

        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(world.coordinator())
            one = aio.PullSchedule(GROUP, namesrv=world.namesrv, settings=PULL)
            one.register("Orders", work("one", slow=True))
            await stack.enter_async_context(one)
            await until(lambda: len(one.queues) == 4)
            await world.send(3, 1)
            await at_work.wait()
            two = aio.PullSchedule(GROUP, namesrv=world.namesrv, settings=PULL)
            two.register("Orders", work("two", slow=False))
            await stack.enter_async_context(two)
            await until(lambda: [queue.queue_id for queue in two.queues] == [2])
            assert not server.groups.find(GROUP).settled
            gate.set()
            await until(lambda: [queue.queue_id for queue in two.queues] == [2, 3])
            await world.send(7, 1)
            await until(lambda: len(calls) == 2)
            assert calls == [("one", b"3"), ("two", b"7")]

    flow(test)


def test_later_subscriptions_are_granted_and_ended_ones_released() -> None:
    async def test(world: World) -> None:
        await world.admin.topics.create("Later", queues=1)
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(poller(world))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            one.subscribe("Later")
            await until(lambda: len(one.assignment) == 5)
            one.unsubscribe("Orders")
            await until(lambda: [queue.topic for queue in one.assignment] == ["Later"])
            leader = server.groups.find(GROUP)
            await until(lambda: {planned.queue.topic for planned in leader.plan.queues} == {"Later"})
            await until(lambda: leader.settled)

    flow(test)


def test_synchronous_pull_consumer_is_managed_as_well() -> None:
    async def test(world: World) -> None:
        async with world.coordinator():
            await asyncio.to_thread(polls_and_pulls, world.namesrv)

    def polls_and_pulls(namesrv: str) -> None:
        with mq.Producer("senders", namesrv=namesrv) as producer:
            producer.send(mq.Message("Orders", b"x"), queue=LAST)
        with mq.PullConsumer(GROUP, namesrv=namesrv, settings=PULL) as consumer:
            consumer.subscribe("Orders")
            (message,) = until_sync(lambda: consumer.poll(0.1))
            assert (message.body, message.queue) == (b"x", LAST)
        with mq.PullConsumer(GROUP, namesrv=namesrv, settings=PULL) as consumer:
            consumer.register_topic("Orders")
            until_sync(lambda: len(consumer.fetch_message_queues_in_balance("Orders")) == 4)
            assert consumer.pull(LAST, 0).messages[0].body == b"x"
            assert consumer.fetch_consume_offset(LAST, from_store=True) == 1, "closing committed it"
            consumer.finish(LAST)

    flow(test)


@pytest.mark.parametrize(
    ("more", "other"),
    [
        ({"model": "broadcasting"}, "model"),
        ({"rebalance": False}, "rebalance"),
    ],
)
def test_pull_consumer_settings_incompatible_with_plans_are_refused(more: dict[str, Any], other: str) -> None:
    with pytest.raises(SettingsError, check=about(setting="managed", other=other)):
        mq.PullSettings(managed=True, **more)


def test_managed_consumer_needs_a_group_and_cannot_assign_queues() -> None:
    with pytest.raises(SettingsError, check=about(setting="managed")):
        aio.PullConsumer(settings=PULL)
    with pytest.raises(InvalidStateError, check=about(what="managed")):
        aio.PullConsumer(GROUP, settings=PULL).assign([LAST])


def test_queue_that_is_about_to_move_cannot_be_sought_and_is_not_read() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(poller(world))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(3, 1)
            await polled(one)
            two = await stack.enter_async_context(poller(world))
            await until(lambda: queues(one) == [0, 1])
            lite = one._lite
            assert lite is not None and lite.find(LAST) is not None
            for refused in (one.seek(LAST, 0), one.seek_to_begin(LAST), one.seek_to_end(LAST)):
                with pytest.raises(ClientError, check=about(what="queue", value=LAST)):
                    await refused
            with pytest.raises(ClientError, check=about(what="queue", value=LAST)):
                one.pause([LAST])
            assert await one.poll(0) == []
            await until(lambda: 3 in queues(two))
            assert lite.find(LAST) is None, "it is read by one member only"

    flow(test)
