"""Unusual situations of managed members, and other ways to consume than plain handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from tests.coordinator.groups.managed_world import GROUP, SETTINGS, SHORT, Gate, World, flow, queues
from tests.support import run, until, until_sync

from sparrowmq import aio
from sparrowmq.core.clock import SystemClock
from sparrowmq.testing import LocalCluster

pytestmark = pytest.mark.usefixtures("brisk")

LAST = aio.MessageQueue("Orders", "broker-a", 3)
"""Of four queues that one member has, the one that comes next gets the last two."""


def test_late_results_are_counted_by_the_member_and_reported_once() -> None:
    async def test(world: World) -> None:
        hung = Gate()
        async with world.led(SHORT) as led:
            one = await led.alone("one", hung)
            await world.send(3, 1)
            await hung.started.wait()
            two = await led.join("two")
            await until(lambda: queues(two) == [2, 3])
            leader = led.server.groups.find(GROUP)
            assert (one.late_results, leader.late) == (0, 0)
            hung.opened.set()
            await until(lambda: one.late_results == 1)
            await until(lambda: leader.late == 1)
            (name,) = [name for name in leader.members if name.startswith(one.client_id)]
            assert leader.seen()[name].late == 1
            assert one.running_info().properties["lateResults"] == "1"
            managed = one._member._managed  # type: ignore[union-attr]
            assert managed is not None
            leader.leave(name)  # it is counted in as another member now, and tells nothing twice
            await until(lambda: managed.member not in (None, name))
            await until(lambda: queues(one) == [0, 1] or queues(one) == [2, 3])
            assert leader.late == 1

    flow(test)


def test_late_message_is_not_sent_back() -> None:
    async def test(world: World) -> None:
        gate, started = asyncio.Event(), asyncio.Event()

        async def fails(message: aio.ReceivedMessage) -> None:
            started.set()
            await gate.wait()
            raise RuntimeError("made to fail")

        async with world.led(SHORT) as led:
            one = await led.alone("one", fails)
            await world.send(3, 1)
            await started.wait()
            two = await led.join("two")
            await until(lambda: world.seen_by.get(b"3") == ["two"])
            gate.set()
            await until(lambda: one.late_results >= 1)
            retries = await world.admin.groups.progress(GROUP, f"%RETRY%{GROUP}")
            assert sum(place.broker_offset for place in retries) == 0
            assert world.handled == {b"3": 1}
            assert queues(two) == [2, 3]

    flow(test)


def test_wall_clock_jumps_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    year = 365 * 86_400_000
    jumps = [0]

    async def test(world: World) -> None:
        async with world.led() as led:
            one = await led.join("one")
            two = await led.join("two")
            await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
            before = await world.owners()
            managed = one._member._managed  # type: ignore[union-attr]
            assert managed is not None
            for number, jump in enumerate((year, -year, 40 * year)):
                jumps.append(jump)
                after = managed._grants.report().number + 3
                await until(partial(lambda after: managed._grants._reports > after, after))
                await world.send(8 * number, 8)
                await until(partial(lambda sent: len(world.handled) == sent, 8 * (number + 1)))
            assert await world.owners() == before
        assert set(world.handled.values()) == {1}

    plain = SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda self: plain(self) + jumps[-1])
    flow(test)


@pytest.mark.parametrize("ordered", [False, True])
def test_two_clients_with_one_id_are_two_members_and_share_no_queue(ordered: bool) -> None:
    async def test(world: World) -> None:
        settings = replace(SETTINGS, instance_name="twin", ordered=ordered)
        stop, counts = threading.Event(), {"others": -1}
        handled: list[bytes] = []

        async def twin() -> None:
            consumer = aio.PushConsumer(GROUP, namesrv=world.namesrv, settings=settings)

            async def handle(message: aio.ReceivedMessage) -> None:
                handled.append(message.body)

            consumer.subscribe("Orders", handler=handle)
            async with consumer:
                while not stop.is_set():
                    counts["others"] = len(queues(consumer))
                    await asyncio.sleep(0.01)

        async with world.led() as led:
            more = {"instance_name": "twin", "ordered": ordered}
            one = await led.alone("one", **more)
            other = asyncio.create_task(asyncio.to_thread(run, twin()))
            try:
                await until(lambda: (len(queues(one)), counts["others"]) == (2, 2))
                leader = led.server.groups.find(GROUP)
                assert len({name.rpartition("#")[0] for name in leader.members}) == 1
                assert len(leader.members) == 2
                await world.send(0, 40)
                await until(lambda: len(world.handled) + len(handled) == 40)
            finally:
                stop.set()
                await other
            await until(lambda: queues(one) == [0, 1, 2, 3])
        assert len(handled) == 20

    flow(test)


@pytest.mark.proves("MUST-72")
def test_broker_restart_during_a_handover_only_delays_it() -> None:
    async def test(world: World) -> None:
        slow = Gate()
        async with world.led() as led:
            await led.alone("one", slow)
            await world.send(3, 1)
            await slow.started.wait()
            two = await led.join("two")
            await until(lambda: 2 in queues(two))
            assert not led.server.groups.find(GROUP).settled
            restart = asyncio.create_task(asyncio.to_thread(world.cluster.restart_broker))
            slow.opened.set()
            await restart
            await until(lambda: queues(two) == [2, 3])
            await world.send(7, 1)
            await until(lambda: world.handled == {b"3": 1, b"7": 1})
            assert world.seen_by == {b"3": ["one"], b"7": ["two"]}

    flow(test)


def test_failed_messages_are_retried_and_end_as_dead_letters() -> None:
    async def test(world: World) -> None:
        tries: list[bytes] = []

        async def fails(message: aio.ReceivedMessage) -> None:
            tries.append(message.body)
            if message.body == b"0":
                raise aio.Retry(after=0)
            if message.body == b"1" and tries.count(b"1") == 1:
                raise aio.Retry(after=0)

        async with world.led() as led:
            await led.alone("one", fails, max_reconsume_times=1)
            await world.send(0, 4)
            await until(lambda: len(world.handled) == 3)
            leader = led.server.groups.find(GROUP)
            assert f"%RETRY%{GROUP}" in {planned.queue.topic for planned in leader.plan.queues}

            async def buried() -> list[bytes]:
                return [letter.body for letter in await world.admin.dead_letters.list(GROUP)]

            await until(buried)
            assert (await buried(), tries.count(b"0"), tries.count(b"1")) == ([b"0"], 2, 2)

    with_quick_levels(test)


def with_quick_levels(test: Any) -> None:
    """The same as `flow`, with short delay levels."""
    with LocalCluster(message_delay_level=" ".join(["1s"] * 18)) as cluster:
        cluster.create_topic("Orders", queues=4)

        async def main() -> None:
            async with aio.Admin(namesrv=cluster.namesrv) as admin:
                await test(World(cluster, admin))

        run(main())


def test_batch_handlers_are_awaited_as_a_whole() -> None:
    async def test(world: World) -> None:
        gate = asyncio.Event()
        batches: list[tuple[str, list[bytes]]] = []

        def taking(name: str, *, slow: bool) -> Any:
            async def handle(messages: list[aio.ReceivedMessage]) -> None:
                batches.append((name, [message.body for message in messages]))
                if slow:
                    await gate.wait()

            return handle

        @asynccontextmanager
        async def member(name: str, *, slow: bool = False) -> AsyncIterator[aio.PushConsumer]:
            settings = replace(SETTINGS, batch=8)
            consumer = aio.PushConsumer(GROUP, namesrv=world.namesrv, settings=settings)
            consumer.subscribe("Orders", handler=taking(name, slow=slow))
            async with consumer:
                yield consumer

        async with world.led() as led:
            await world.send(0, 16)
            await led.enter_async_context(member("one", slow=True))
            await until(lambda: sum(len(batch) for _, batch in batches) == 16)
            two = await led.enter_async_context(member("two"))
            leader = led.server.groups.find(GROUP)
            await until(lambda: len(leader.members) == 2 and not leader.settled)
            assert queues(two) == []
            gate.set()
            await until(lambda: queues(two) == [2, 3])
            await world.send(16, 4)
            await until(lambda: sum(len(batch) for _, batch in batches) == 20)
        assert {name for name, _ in batches} == {"one", "two"}

    flow(test)


@pytest.mark.parametrize("ordered", [False, True])
def test_iterated_messages_keep_their_queue_until_they_are_settled(ordered: bool) -> None:
    async def test(world: World) -> None:
        async with world.led() as led:
            settings = replace(SETTINGS, ordered=ordered)
            one = aio.PushConsumer(GROUP, namesrv=world.namesrv, settings=settings)
            one.subscribe("Orders")
            await led.enter_async_context(one)
            await until(lambda: queues(one) == [0, 1, 2, 3])
            await world.send(3, 1)
            messages = aiter(one)
            message = await anext(messages)
            assert message.queue == LAST
            await world.send(7, 1)  # offered, and not taken by anybody
            two = await led.join("two", ordered=ordered)
            await until(lambda: 2 in queues(two))
            assert not led.server.groups.find(GROUP).settled
            assert await message.ack()
            await until(lambda: queues(two) == [2, 3])
            await until(lambda: world.handled == {b"7": 1})

    flow(test)


def test_unsubscribed_topic_stops_at_once_and_its_messages_are_not_sent_back() -> None:
    async def test(world: World) -> None:
        async with world.led() as led:
            first = await led.enter_async_context(AsyncExitStack())
            one = await first.enter_async_context(world.member("one"))
            await until(lambda: queues(one) == [0, 1, 2, 3])
            one.unsubscribe("Orders")
            await world.send(0, 8)
            leader = led.server.groups.find(GROUP)
            await until(lambda: {plan.queue.topic for plan in leader.plan.queues} <= {f"%RETRY%{GROUP}"})
            await until(lambda: queues(one) == [])
            retries = await world.admin.groups.progress(GROUP, f"%RETRY%{GROUP}")
            assert sum(place.broker_offset for place in retries) == 0
            await first.aclose()
            two = await led.join("two")
            await until(lambda: len(world.handled) == 8)
            assert queues(two) == [0, 1, 2, 3]

    flow(test)


def test_groups_in_a_namespace_are_managed_under_their_full_name() -> None:
    async def test(world: World) -> None:
        await world.admin.topics.create("team%Orders", queues=4)
        async with world.led() as led:
            one = await led.alone("one", namespace="team")
            two = await led.join("two", namespace="team")
            await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
            await led.alone("stranger")
            settings = aio.ProducerSettings(namespace="team")
            async with aio.Producer("senders", namesrv=world.namesrv, settings=settings) as producer:
                for number in range(8):
                    queue = aio.MessageQueue("Orders", "broker-a", number % 4)
                    await producer.send(aio.Message("Orders", b"%d" % number), queue=queue)
            await until(lambda: len(world.handled) == 8)
            assert {name for names in world.seen_by.values() for name in names} == {"one", "two"}
            assert led.server.groups.find(f"team%{GROUP}") is not led.server.groups.find(GROUP)
            async with aio.Admin(
                namesrv=world.namesrv, settings=aio.ClientSettings(namespace="team")
            ) as admin:
                (policy,) = (await admin.policies.list(GROUP))["broker-a"].policies
                assert policy.group == GROUP
                assert {one.topic for one in policy.queues} == {"Orders", f"%RETRY%{GROUP}"}

    flow(test)


def test_synchronous_consumer_reports_late_results_too() -> None:
    with LocalCluster() as cluster:
        from sparrowmq import PushConsumer

        consumer = PushConsumer(GROUP, namesrv=cluster.namesrv, settings=SETTINGS)
        consumer.subscribe("Orders", handler=print)
        with consumer:
            until_sync(lambda: consumer.late_results == 0)
