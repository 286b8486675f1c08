"""Queues of a managed member heed its lease; the rest is tested with a coordinator in tests/coordinator."""

from __future__ import annotations

from types import SimpleNamespace

from tests.support import run, until

from sparrowmq.client.knobs import LiveKnobs
from sparrowmq.client.managed import Lease, LeasedQueue, ManagedMember
from sparrowmq.client.process_queue import Limits, ProcessQueue
from sparrowmq.client.settings import ConsumerSettings
from sparrowmq.client.tasks import TaskGroup
from sparrowmq.client.workers import Waiting
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.grants import Orders
from sparrowmq.core.message import MessageQueue


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def leased(clock: Clock, end: float) -> tuple[Lease, LeasedQueue]:
    lease = Lease(clock)
    lease.end = end
    return lease, LeasedQueue(lease, MessageQueue("T", "b", 0), 0, Limits(), now=0.0)


def test_a_queue_leaves_in_the_moment_its_lease_is_over_and_does_not_come_back() -> None:
    clock = Clock()
    lease, queue = leased(clock, 5.0)
    assert not queue.leaving
    clock.now = 5.0
    assert queue.leaving
    lease.end = 10.0
    assert queue.leaving, "what is in hand may be another's by now: it is taken anew"
    assert not LeasedQueue(lease, queue.queue, 0, Limits(), now=5.0).leaving


def test_nothing_may_start_without_a_lease() -> None:
    assert Lease(Clock()).is_over()


def test_what_waits_for_a_handler_is_skipped_once_the_lease_is_over() -> None:
    clock = Clock()
    _, queue = leased(clock, 5.0)
    waiting = Waiting()
    waiting.add(queue, [object(), object()], print, 1)  # type: ignore[list-item]
    assert waiting.take() is not None
    clock.now = 6.0
    assert waiting.take() is None


def test_a_queue_can_be_told_to_leave_and_dropped_as_any_other() -> None:
    _, queue = leased(Clock(), 5.0)
    queue.leave()
    assert queue.leaving
    _, queue = leased(Clock(), 5.0)
    queue.drop()
    assert queue.leaving and queue.dropped


class Hands:
    """One queue's process queues, as a consumer has them."""

    def __init__(self) -> None:
        self.member: ManagedMember
        self.table: dict[MessageQueue, ProcessQueue] = {}
        self.taken: list[MessageQueue] = []

    def find(self, queue: MessageQueue) -> ProcessQueue | None:
        return self.table.get(queue)

    async def take(self, queue: MessageQueue) -> bool:
        self.taken.append(queue)
        self.table[queue] = self.member.make_queue(queue, 0, Limits(), now=0.0)
        return True

    def rest(self, queue: MessageQueue) -> None:
        self.table[queue].leave()

    async def settle(self, process_queue: ProcessQueue) -> bool:
        return True

    async def retire(self, process_queue: ProcessQueue) -> None:
        del self.table[process_queue.queue]

    async def renew_doubtful(self) -> None:
        raise AssertionError("there are no locks")


def test_a_queue_that_is_revoked_while_other_knobs_are_applied_is_not_begun_again() -> None:
    async def main() -> None:
        queue, hands, tasks = MessageQueue("T", "b", 0), Hands(), TaskGroup(lambda name, error: None)

        async def nothing(*arguments: object) -> None:
            pass

        member = hands.member = ManagedMember(
            "g",
            SimpleNamespace(clock=SystemClock()),  # type: ignore[arg-type]
            hands,
            tasks,
            topics=lambda: ["T"],
            late=lambda: 0,
            forget=lambda: None,
            on_change=nothing,
            announce=nothing,
            knobs=LiveKnobs(ConsumerSettings(), lambda: 0),
            unable=dict,
            apply_knobs=lambda revision, settings, now_ms, unknown: None,
        )
        grants, now = member._grants, SystemClock().monotonic()
        grants.obey(Orders(1, 60.0, {queue: 1}, {}), now)
        member._lease.end = grants.lease_end
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
