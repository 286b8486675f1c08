"""Queues of a managed member heed its lease; the rest is tested with a coordinator in tests/coordinator."""

from __future__ import annotations

from sparrowmq.client.managed import Lease, LeasedQueue
from sparrowmq.client.process_queue import Limits
from sparrowmq.client.workers import Waiting
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
