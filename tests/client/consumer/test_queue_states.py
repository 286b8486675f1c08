"""The state tables of a process queue: every reachable state, and every event in it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping

import pytest
from tests.client.consumer.test_process_queue import QUEUE, message

from sparrowmq.client.consumer.process_queue import BROKER_LOCK_SECONDS, Limits, ProcessQueue
from sparrowmq.client.consumer.queue_states import (
    LIFE,
    LOCK,
    RUN,
    OrderedRun,
    QueueEvent,
    QueueLife,
    QueueLock,
)
from sparrowmq.core.errors import InvariantError

States = tuple[QueueLife, QueueLock, OrderedRun]
START: States = (QueueLife.ACTIVE, QueueLock.NONE, OrderedRun.IDLE)


def nothing_left(held: ProcessQueue) -> None:
    while held.take(100):
        pass


EVENTS: Mapping[QueueEvent, Callable[[ProcessQueue], object]] = {
    QueueEvent.LEAVE: ProcessQueue.leave,
    QueueEvent.DROP: ProcessQueue.drop,
    QueueEvent.LOCK_TAKEN: ProcessQueue.lock_taken,
    QueueEvent.LOCK_RENEWED: lambda held: held.lock_granted(BROKER_LOCK_SECONDS),
    QueueEvent.LOCK_REFUSED: ProcessQueue.lock_refused,
    QueueEvent.BROKER_LOST: ProcessQueue.broker_lost,
    QueueEvent.MESSAGES_CAME: lambda held: held.put([message(1)]),
    QueueEvent.NOTHING_LEFT: nothing_left,
}
"""The methods that are the events."""


def after(states: States, event: QueueEvent) -> States | None:
    """The result of an event by the tables; None when it cannot happen."""
    life, lock, run = states
    known = any(event in row for row in LOCK.values())
    if known and event not in LOCK[lock]:
        return None
    return LIFE[life].get(event, life), LOCK[lock].get(event, lock), RUN[run].get(event, run)


def reachable() -> dict[States, tuple[QueueEvent, ...]]:
    """Every reachable state, with the shortest path from the start."""
    found: dict[States, tuple[QueueEvent, ...]] = {START: ()}
    waiting = deque([START])
    while waiting:
        states = waiting.popleft()
        for event in QueueEvent:
            to = after(states, event)
            if to is not None and to not in found:
                found[to] = (*found[states], event)
                waiting.append(to)
    return found


def states_of(held: ProcessQueue) -> States:
    return held.life, held.lock, held.run


def queue_after(events: Iterable[QueueEvent]) -> ProcessQueue:
    held = ProcessQueue(QUEUE, 0, Limits(), now=0.0)
    for event in events:
        EVENTS[event](held)
    return held


@pytest.mark.parametrize("states", list(reachable()), ids=lambda one: "-".join(part.value for part in one))
def test_every_event_in_every_state_follows_the_tables(states: States) -> None:
    way = reachable()[states]
    for event in QueueEvent:
        held = queue_after(way)
        assert states_of(held) == states
        expected = after(states, event)
        if expected is None and event is QueueEvent.LOCK_RENEWED:
            assert EVENTS[event](held) is False, "it has to be begun anew"
        elif expected is None:
            with pytest.raises(InvariantError):
                EVENTS[event](held)
        else:
            EVENTS[event](held)
        now = states_of(held)
        assert now == (states if expected is None else expected), event
        life, lock, _ = now
        assert held.leaving is (life is not QueueLife.ACTIVE)
        assert held.dropped is (life is QueueLife.DROPPED)
        assert held.may_start() is (life is QueueLife.ACTIVE)
        assert held.locked is (lock in (QueueLock.HELD, QueueLock.DOUBTFUL))
        assert held.doubtful is (lock in (QueueLock.DOUBTFUL, QueueLock.WANTED))
        assert held.may_consume_in_order(0.0) is (lock is QueueLock.HELD)


def test_tables_are_complete() -> None:
    found = reachable()
    assert {life for life, _, _ in found} == set(QueueLife) == set(LIFE)
    assert {lock for _, lock, _ in found} == set(QueueLock) == set(LOCK)
    assert {run for _, _, run in found} == set(OrderedRun) == set(RUN)
    assert EVENTS.keys() == set(QueueEvent)
    for row in LIFE.values():
        assert set(row) == {QueueEvent.LEAVE, QueueEvent.DROP}
    for row in RUN.values():
        assert set(row) == {QueueEvent.MESSAGES_CAME, QueueEvent.NOTHING_LEFT}
    others = {event for table in (LIFE, LOCK) for row in table.values() for event in row}
    assert not others & {QueueEvent.MESSAGES_CAME, QueueEvent.NOTHING_LEFT}, "runs have them to themselves"


def test_invariants_hold_whatever_happens() -> None:
    for life, lock, run in reachable():
        for event in QueueEvent:
            to = after((life, lock, run), event)
            if to is None:
                continue
            if life is QueueLife.DROPPED:
                assert to[0] is QueueLife.DROPPED, "it is never taken up again"
            if life is QueueLife.LEAVING:
                assert to[0] is not QueueLife.ACTIVE, "nothing is handed out once it is leaving"
            if event is QueueEvent.DROP:
                assert to[1] is QueueLock.NONE, "who has given it up has no lock"
            if lock in (QueueLock.NONE, QueueLock.WANTED) and event is not QueueEvent.LOCK_TAKEN:
                assert to[1] not in (QueueLock.HELD, QueueLock.DOUBTFUL), (
                    "a lock that was missing does not come back"
                )
