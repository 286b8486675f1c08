"""Assigned and revoked queues: the order of locks, offsets and pulls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.client.consumer.test_process_queue import message
from tests.support import run

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.consumer.process_queue import ProcessQueue
from sparrowmq.client.push.assigned_queues import OwnedQueues
from sparrowmq.core.errors import ConnectError
from sparrowmq.core.message import MessageQueue

Q = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-a", 1)


class World:
    """Records the order of calls; locks are granted unless the test says otherwise."""

    def __init__(self, *, ordered: bool) -> None:
        self.done: list[str] = []
        self.now = 100.0
        self.stored: dict[MessageQueue, int | None] = {Q: 7}
        self.memory: dict[MessageQueue, int] = {}
        self.refused: set[MessageQueue] = set()
        self.unreachable = False
        self.asked: set[MessageQueue] = set()
        self.wakes = 0
        self.tasks = TaskGroup(lambda name, error: self.done.append(f"died {error!r}"))
        instance: Any = SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: self.now))
        settings = ConsumerSettings(consume_from="first", ordered=ordered)
        locks: Any = self if ordered else None
        store: Any = self
        self.owned = OwnedQueues(
            "g",
            settings,
            instance,
            store,
            self.tasks,
            locks,
            make=ProcessQueue,
            pull=self._pull,
            again=lambda: setattr(self, "wakes", self.wakes + 1),
        )

    async def _pull(self, process_queue: ProcessQueue) -> None:
        self.done.append(f"pull from {process_queue.next_offset}")
        await asyncio.sleep(3600)

    # Locks

    async def lock(self, queues: Iterable[MessageQueue]) -> tuple[set[MessageQueue], set[MessageQueue]]:
        self.done.append("lock")
        self.asked |= set(queues)
        return set(queues) - self.refused, set(queues) & self.refused

    async def unlock(self, queues: Collection[MessageQueue], *, confirmed: bool = False) -> None:
        if queues:
            self.done.append("unlock")
            self.asked -= set(queues)

    # The offset store

    def forget(self, queue: MessageQueue) -> None:
        self.done.append("forget")
        self.memory.pop(queue, None)

    async def read(self, queue: MessageQueue) -> int | None:
        self.done.append("read")
        if self.unreachable:
            raise ConnectError("nobody is there")
        return self.stored.get(queue)

    def set(self, queue: MessageQueue, offset: int) -> None:
        self.done.append(f"set {offset}")
        self.memory[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        self.done.append(f"freeze {offset}")
        self.memory[queue] = offset

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> bool:
        for queue in queues:
            self.done.append(f"persist {self.memory[queue]}{' confirmed' if confirmed else ''}")
        return True

    async def took(self) -> list[str]:
        """The calls since the last check, after background tasks had their turn."""
        await asyncio.sleep(0)
        found, self.done = self.done, []
        return found


def flow(test: Callable[[World], Coroutine[Any, Any, None]], *, ordered: bool = True) -> None:
    async def main() -> None:
        world = World(ordered=ordered)
        await test(world)
        await world.tasks.close()
        assert not [one for one in world.done if one.startswith("died")]

    run(main())


@pytest.mark.proves("client:C.6-2", "MUST-24")
@pytest.mark.parametrize("ordered", [True, False])
def test_new_queue_is_locked_reset_located_and_then_pulled(ordered: bool) -> None:
    async def test(world: World) -> None:
        world.memory[Q] = 99
        assert await world.owned.take(Q)
        locking = ["lock"] if ordered else []
        assert await world.took() == [*locking, "forget", "read", "set 7", "pull from 7"]
        held = world.owned.find(Q)
        assert held is not None and held.locked is ordered
        assert (len(world.owned), world.owned.queues(), world.memory) == (1, [Q], {Q: 7})
        assert not await world.owned.take(Q), "once only"
        assert world.owned.find(Q) is held

    flow(test, ordered=ordered)


@pytest.mark.proves("client:C.6-2", "client:D-67")
def test_queue_without_a_lock_or_start_offset_is_not_read() -> None:
    async def test(world: World) -> None:
        world.refused = {Q}
        assert not await world.owned.take(Q)
        assert await world.took() == ["lock"]
        world.refused, world.unreachable = set(), True
        assert not await world.owned.take(Q)
        assert await world.took() == ["lock", "forget", "read"]
        world.unreachable = False
        world.owned.stop()
        assert not await world.owned.take(Q)
        assert "pull from 7" not in await world.took()
        assert len(world.owned) == 0

    flow(test)


@pytest.mark.proves("client:C-23")
@pytest.mark.parametrize("ordered", [True, False])
def test_revoked_queue_is_committed_then_forgotten_then_unlocked(ordered: bool) -> None:
    async def test(world: World) -> None:
        await world.owned.take(Q)
        held = world.owned.find(Q)
        assert held is not None
        world.memory[Q] = 9
        await world.took()
        await world.owned.give_up([Q, OTHER])
        unlocking = ["unlock"] if ordered else []
        assert await world.took() == ["persist 9 confirmed", "forget", *unlocking]
        assert held.dropped and len(world.owned) == 0
        await world.owned.give_up([Q])
        assert await world.took() == [], "it is gone already"

    flow(test, ordered=ordered)


@pytest.mark.proves("client:C-19")
def test_all_revoked_queues_are_dropped_before_the_first_is_committed() -> None:
    async def test(world: World) -> None:
        for queue in (Q, OTHER):
            world.stored[queue] = 7
            await world.owned.take(queue)
        held = [world.owned.find(queue) for queue in (Q, OTHER)]
        dropped: list[bool] = []
        persist = world.persist

        async def watched(queues: Iterable[MessageQueue], *, confirmed: bool = False) -> bool:
            dropped.extend(one is not None and one.dropped for one in held)
            return await persist(queues, confirmed=confirmed)

        world.persist = watched  # type: ignore[method-assign]
        await world.owned.give_up([Q, OTHER])
        assert dropped == [True, True]

    flow(test, ordered=False)


@pytest.mark.proves("client:C.6-1", "client:D-13")
def test_queue_with_a_dead_pull_loop_is_dropped_and_assigned_again() -> None:
    async def test(world: World) -> None:
        await world.owned.take(Q)
        await world.took()
        world.now += 120
        assert await world.owned.tidy() == []
        world.now += 1
        assert await world.owned.tidy() == [Q]
        assert await world.took() == ["persist 7 confirmed", "forget"]
        assert await world.owned.take(Q)

    flow(test, ordered=False)


@pytest.mark.proves("client:C-05", "client:D-27")
def test_missing_offset_is_replaced_and_the_queue_restarts_there() -> None:
    async def test(world: World) -> None:
        await world.owned.take(Q)
        held = world.owned.find(Q)
        assert held is not None
        await world.took()
        await world.owned.go_on_from(held, 50)
        assert await world.took() == ["freeze 50", "persist 50 confirmed", "forget"]
        assert held.dropped and world.wakes == 1
        await world.owned.go_on_from(held, 60)
        assert await world.took() == [], "it is not the queue's any more"

    flow(test, ordered=False)


def test_nothing_of_a_deleted_topic_is_committed_and_the_queue_restarts() -> None:
    async def test(world: World) -> None:
        await world.owned.take(Q)
        held = world.owned.find(Q)
        assert held is not None
        await world.took()
        await world.owned.restart_deleted(held)
        assert await world.took() == ["freeze 0", "persist 0 confirmed", "forget"], (
            "a store of the user's own"
        )
        assert held.dropped and world.wakes == 1
        await world.owned.restart_deleted(held)
        assert await world.took() == [], "it is not the queue's any more"

    flow(test, ordered=False)


@pytest.mark.parametrize(("named", "committed"), [(9, 8), (8, 8), (5, 5), (50, 50)])
@pytest.mark.parametrize("ordered", [True, False])
def test_broker_that_lost_its_last_messages_redelivers_unhandled_ones(
    named: int, committed: int, ordered: bool
) -> None:
    async def test(world: World) -> None:
        await world.owned.take(Q)
        held = world.owned.find(Q)
        assert held is not None
        messages = [message(offset) for offset in range(7, 12)]
        held.put(messages)
        held.pulled_to(12)
        if ordered:
            held.take(1)
            held.commit()
            held.take(1)
        else:
            held.remove(messages[:1])
        await world.took()
        await world.owned.go_on_from(held, named)
        assert f"freeze {committed}" in await world.took()

    flow(test, ordered=ordered)


def test_only_own_queues_are_reset() -> None:
    async def test(world: World) -> None:
        await world.owned.take(Q)
        await world.took()
        assert await world.owned.set_offsets({Q: 3, OTHER: 4}, 1) == [Q]
        assert await world.took() == ["freeze 3", "persist 3 confirmed", "forget"]
        assert len(world.owned) == 0

    flow(test, ordered=False)


@pytest.mark.proves("client:C-27")
def test_refused_locks_stop_the_queue_and_late_ones_restart_it() -> None:
    async def test(world: World) -> None:
        await world.owned.take(Q)
        held = world.owned.find(Q)
        assert held is not None
        assert held.last_lock == world.now
        world.now += 20
        await world.owned.renew_locks()
        assert (held.locked, held.last_lock) == (True, world.now)
        world.refused = {Q}
        await world.owned.renew_locks()
        assert not held.locked and world.owned.find(Q) is held
        assert world.owned.committable() == []
        world.refused = set()
        await world.owned.renew_locks()
        assert held.dropped and world.owned.find(Q) is None, "somebody else may have had it"
        assert world.wakes == 1

    flow(test)


def test_limits_of_a_topic_are_divided_among_its_queues() -> None:
    async def main() -> None:
        world = World(ordered=False)
        world.stored = {Q: 7, OTHER: 7}
        settings = ConsumerSettings(consume_from="first", topic_messages_max=101, topic_bytes_max=2**20)
        world.owned._settings = settings
        await world.owned.take(Q)
        world.owned.share_limits()
        (held,) = world.owned.process_queues()
        assert (held.limits.messages, held.limits.bytes) == (101, 2**20)
        await world.owned.take(OTHER)
        world.owned.share_limits()
        limits = {(held.limits.messages, held.limits.bytes) for held in world.owned.process_queues()}
        assert limits == {(50, 2**19)}
        await world.tasks.close()

    run(main())
