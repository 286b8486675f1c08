"""Queues of a managed member follow its lease; tests/coordinator tests the rest with a coordinator."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace

from tests.support import run, until

from sparrowmq.client.base.settings import ConsumerSettings
from sparrowmq.client.base.tasks import TaskGroup
from sparrowmq.client.consumer.dynamic_settings import DynamicSettings
from sparrowmq.client.consumer.leases import LeasedQueue, Leases
from sparrowmq.client.consumer.managed import ManagedMember
from sparrowmq.client.consumer.process_queue import Limits, ProcessQueue
from sparrowmq.client.push.workers import Waiting
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.dynamic_settings import Unable
from sparrowmq.core.grants import Grants, Orders
from sparrowmq.core.message import MessageQueue


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


QUEUE = MessageQueue("T", "b", 0)


def leased(clock: Clock, end: float, generation: int = 3) -> tuple[Grants, LeasedQueue]:
    """A queue under a grant whose lease ends at `end`."""
    grants = Grants()
    grants.obey(Orders(1, end, {QUEUE: generation}), sent=0.0)
    return grants, LeasedQueue(grants, clock, QUEUE, 0, Limits(), now=0.0)


def test_queue_pauses_when_its_lease_expires_and_continues_under_the_same_generation() -> None:
    clock = Clock()
    grants, queue = leased(clock, 5.0)
    assert queue.may_start()
    clock.now = 5.0
    assert not queue.may_start()
    assert not queue.leaving, "asking changes nothing"
    grants.obey(Orders(1, 5.0, {QUEUE: 3}), sent=5.0)
    assert queue.may_start(), "nobody else had it: it goes on with what is in hand"
    clock.now = 10.0
    assert not queue.may_start()


def test_work_started_under_an_old_generation_never_restarts() -> None:
    clock = Clock()
    grants, queue = leased(clock, 5.0)
    grants.obey(Orders(2, 5.0, {}, {QUEUE: 3}), sent=1.0)
    assert not queue.may_start()
    grants.released(QUEUE)
    grants.obey(Orders(3, 5.0, {QUEUE: 4}), sent=2.0)
    assert not queue.may_start()
    assert LeasedQueue(grants, clock, QUEUE, 0, Limits(), now=2.0).may_start()


def test_nothing_may_start_without_a_grant() -> None:
    assert not LeasedQueue(Grants(), Clock(), QUEUE, 0, Limits(), now=0.0).may_start()


def test_waiting_messages_are_skipped_during_an_expired_lease_and_keep_their_place() -> None:
    clock = Clock()
    grants, queue = leased(clock, 5.0)
    free = ProcessQueue(MessageQueue("U", "b", 0), 0, Limits())
    waiting = Waiting()
    first, second, other = object(), object(), object()
    waiting.add(queue, [first, second], print, 1)  # type: ignore[list-item]
    waiting.add(free, [other], print, 1)  # type: ignore[list-item]
    assert (job := waiting.take()) is not None and job.messages == [first]
    clock.now = 6.0
    assert (job := waiting.take()) is not None and job.messages == [other]
    assert waiting.take() is None
    assert not waiting and len(waiting) == 1, "there is nothing to take, which workers do not try again"
    grants.obey(Orders(1, 5.0, {QUEUE: 3}), sent=6.0)
    waiting.go_on()
    assert waiting and (job := waiting.take()) is not None and job.messages == [second]


def test_revoked_queue_is_drained_and_dropped() -> None:
    _, queue = leased(Clock(), 5.0)
    queue.leave()
    assert queue.leaving and not queue.may_start()
    _, queue = leased(Clock(), 5.0)
    queue.drop()
    assert queue.leaving and queue.dropped and not queue.may_start()


class Hands:
    """One queue's process queues, as a consumer has them."""

    def __init__(self) -> None:
        self.leases = Leases(SystemClock().monotonic)
        self.table: dict[MessageQueue, ProcessQueue] = {}
        self.taken: list[MessageQueue] = []

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        return self.table.get(queue)

    async def take(self, queue: MessageQueue) -> bool:
        self.taken.append(queue)
        self.table[queue] = self.leases.make_queue(queue, 0, Limits(), now=0.0)
        return True

    def rest(self, queue: MessageQueue) -> None:
        self.table[queue].leave()

    async def settle(self, process_queue: ProcessQueue) -> bool:
        return True

    async def retire(self, process_queue: ProcessQueue) -> None:
        del self.table[process_queue.queue]

    async def renew_doubtful(self) -> None:
        raise AssertionError("there are no locks")


class Consumer:
    """A consumer of topic T without handlers."""

    def __init__(self) -> None:
        self.dynamic = DynamicSettings(ConsumerSettings(), lambda: 0)

    def managed_topics(self) -> list[str]:
        return ["T"]

    def late_results(self) -> int:
        return 0

    def forget_given_up(self) -> None: ...

    def go_on(self) -> None: ...

    async def queues_changed(self, topics: Collection[str]) -> None: ...

    async def announce(self) -> None: ...

    def unable(self) -> dict[str, Unable]:
        return {}

    def apply_dynamic_settings(self, *arguments: object) -> None: ...


def test_queue_revoked_during_a_settings_change_is_not_started_again() -> None:
    async def main() -> None:
        queue, hands, tasks = MessageQueue("T", "b", 0), Hands(), TaskGroup(lambda name, error: None)
        member = ManagedMember(
            "g",
            SimpleNamespace(clock=SystemClock()),  # type: ignore[arg-type]
            hands,
            tasks,
            hands.leases,
            Consumer(),
        )
        grants, now = member._grants, SystemClock().monotonic()
        grants.obey(Orders(1, 60.0, {queue: 1}, {}), now)
        await hands.take(queue)
        held = hands.table[queue]
        held.began(now)
        member.begin_anew(lambda one: True)
        await until(lambda: held.leaving)
        member._give_up(grants.obey(Orders(2, 60.0, {}, {queue: 1}), now).stop)
        held.ended()
        await until(lambda: grants.report().released == {queue: 1})
        assert hands.taken == [queue], "others are to have it"
        await tasks.close()

    run(main())
