"""Managed consumers that handle each queue in order: across hand-overs, lost leases and broker restarts."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from tests.coordinator.groups.managed_world import GROUP, SHORT, World, flow, queues
from tests.support import until

from sparrowmq import aio
from sparrowmq.client.cluster.broker_api import command
from sparrowmq.protocol.bodies import LockBatchRequestBody, wire_queues
from sparrowmq.protocol.codes import RequestCode, ResponseCode

pytestmark = pytest.mark.usefixtures("brisk")

ORDERED: dict[str, Any] = {"ordered": True, "suspend_time": 0.01}


@dataclass
class Seen:
    """Messages with which handlers started, by queue, in order; `running` are those in progress."""

    by_queue: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    running: Counter[int] = field(default_factory=Counter)
    overlaps: int = 0

    def handler(
        self, more: Callable[[int], Awaitable[object]] | None = None
    ) -> Callable[[Any], Awaitable[None]]:
        async def handle(message: aio.ReceivedMessage) -> None:
            number, queue = int(message.body), message.queue.queue_id
            self.overlaps += self.running[queue] > 0
            self.running[queue] += 1
            try:
                self.by_queue[queue].append(number)
                await (asyncio.sleep(0) if more is None else more(number))
            finally:
                self.running[queue] -= 1

        return handle

    def in_order(self) -> bool:
        return self.overlaps == 0 and all(seen == sorted(set(seen)) for seen in self.by_queue.values())


def has_two(consumer: aio.PushConsumer) -> bool:
    return len(queues(consumer)) == 2


def test_queues_that_move_repeatedly_are_handled_in_order_and_once() -> None:
    async def test(world: World) -> None:
        seen = Seen()

        async def brief(number: int) -> None:
            await asyncio.sleep(0.002)

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(world.member("one", seen.handler(brief), **ORDERED))
            await until(lambda: len(queues(one)) == 4)
            sending = asyncio.create_task(world.send(0, 200))
            for turn in range(3):
                name = f"two-{turn}"
                async with world.member(name, seen.handler(brief), **ORDERED) as two:
                    await until(partial(has_two, two))
                    await sending
                    sending = asyncio.create_task(world.send(200 * (turn + 1), 200))
                    await until(lambda name=name: any(name in names for names in world.seen_by.values()))
            await sending
            await until(lambda: len(world.handled) == 800)
        assert seen.in_order()
        assert set(world.handled.values()) == {1}

    flow(test)


def test_ordered_queue_moves_after_its_handler_ended_and_its_offset_is_committed() -> None:
    async def test(world: World) -> None:
        seen, gate, started = Seen(), asyncio.Event(), asyncio.Event()

        async def slow(number: int) -> None:
            started.set()
            await gate.wait()

        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(world.member("one", seen.handler(slow), **ORDERED))
            await until(lambda: len(queues(one)) == 4)
            await world.send(0, 8)
            await until(lambda: len(seen.by_queue) == 4)
            two = await stack.enter_async_context(world.member("two", seen.handler(), **ORDERED))
            leader = server.groups.find(GROUP)
            await until(lambda: not leader.settled)
            assert queues(two) == []
            gate.set()
            await until(lambda: len(queues(two)) == 2)
            await until(lambda: len(world.handled) == 8)
        assert seen.in_order(), "the second of each queue after the first"
        assert set(world.handled.values()) == {1}

    flow(test)


@pytest.mark.proves("MUST-73")
def test_lock_of_a_lower_generation_is_refused_at_the_broker() -> None:
    async def test(world: World) -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(world.member("one", **ORDERED))
            await until(lambda: len(queues(one)) == 4)
            before = {queue: generation for queue, (_, generation) in (await world.owners()).items()}
            two = await stack.enter_async_context(world.member("two", **ORDERED))
            await until(lambda: len(queues(two)) == 2)
            (moved, _) = queues(two)
            queue = aio.MessageQueue("Orders", "broker-a", moved)
            member = one._member
            assert member is not None

            async def lock(generation: int | None) -> int:
                given = None if generation is None else [generation]
                body = LockBatchRequestBody(one.client_id, GROUP, wire_queues([queue]), generations=given)
                address = member.instance.routes.master("broker-a")
                assert address is not None
                asked = command(RequestCode.LOCK_BATCH_MQ, body=body.encode())
                return (await member.instance.remoting.call(address, asked, 5.0)).code

            assert await lock(before[moved]) == ResponseCode.GENERATION_FENCED
            assert await lock(None) == ResponseCode.GENERATION_FENCED
            assert member._locks is not None
            assert await member._locks.lock([queue]) == (set(), {queue}), "not left open: others have it"

    flow(test)


def test_no_ordered_handler_starts_without_a_lease_though_a_thread_has_several_messages() -> None:
    async def test(world: World) -> None:
        seen, gate = Seen(), asyncio.Event()
        first: list[int] = []

        async def slow(number: int) -> None:
            first.append(number)
            await gate.wait()

        async with AsyncExitStack() as stack:
            coordinator = await stack.enter_async_context(AsyncExitStack())
            await coordinator.enter_async_context(world.coordinator(SHORT))
            one = await stack.enter_async_context(world.member("one", seen.handler(slow), **ORDERED))
            await until(lambda: len(queues(one)) == 4)
            await world.send(0, 40)
            await until(lambda: len(first) == 4)
            await coordinator.aclose()
            member = one._member
            assert member is not None
            await until(lambda: not any(held.may_start() for held in member.queues.process_queues()))
            gate.set()
            await until(lambda: len(world.handled) == 4)
            assert len(first) == 4, "of the forty that are in hand"
            await stack.enter_async_context(world.coordinator(SHORT))
            await until(lambda: len(world.handled) == 40)
        assert seen.in_order()
        assert set(world.handled.values()) == {1}

    flow(test)


def test_locks_forgotten_by_a_restarted_broker_are_claimed_again_and_order_is_kept() -> None:
    async def test(world: World) -> None:
        seen = Seen()
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(world.coordinator())
            one = await stack.enter_async_context(world.member("one", seen.handler(), **ORDERED))
            two = await stack.enter_async_context(world.member("two", seen.handler(), **ORDERED))
            await until(lambda: (len(queues(one)), len(queues(two))) == (2, 2))
            await world.send(0, 20)
            await until(lambda: len(world.handled) == 20)
            await asyncio.to_thread(world.cluster.restart_broker)
            await world.send(20, 20)
            await until(lambda: len(world.handled) == 40)
        assert seen.in_order()

    flow(test)


def test_failing_message_blocks_its_queue_also_at_a_new_owner() -> None:
    async def test(world: World) -> None:
        seen, broken = Seen(), {0: 3}
        tries: list[int] = []

        async def fails(number: int) -> None:
            tries.append(number)
            if broken.get(number, 0) > 0:
                broken[number] -= 1
                seen.by_queue[number % 4].pop()
                raise RuntimeError("made to fail")

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(world.coordinator())
            async with world.member("one", seen.handler(fails), **ORDERED) as one:
                await until(lambda: len(queues(one)) == 4)
                await world.send(0, 8)
                await until(lambda: tries.count(0) >= 1)
            two = await stack.enter_async_context(world.member("two", seen.handler(fails), **ORDERED))
            await until(lambda: len(queues(two)) == 4)
            await until(lambda: len(world.handled) == 8)
        assert seen.in_order()
        assert tries.count(0) == 4

    flow(test)


def test_dead_letters_of_an_ordered_group_are_stored_at_the_broker_of_the_queue() -> None:
    async def test(world: World) -> None:
        async def fails(message: aio.ReceivedMessage) -> None:
            if message.body == b"0":
                raise RuntimeError("made to fail")

        async with AsyncExitStack() as stack:
            await stack.enter_async_context(world.coordinator())
            more = {**ORDERED, "max_reconsume_times": 1}
            one = await stack.enter_async_context(world.member("one", fails, **more))
            await until(lambda: len(queues(one)) == 4)
            await world.send(0, 8)
            await until(lambda: len(world.handled) == 7)

            async def buried() -> list[bytes]:
                return [letter.body for letter in await world.admin.dead_letters.list(GROUP)]

            await until(buried)
            assert await buried() == [b"0"]

    flow(test)
