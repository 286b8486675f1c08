from __future__ import annotations

import asyncio
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from tests.support import run

from sparrowmq.client.consumer.process_queue import BROKER_LOCK_SECONDS, Limits, ProcessQueue
from sparrowmq.client.consumer.queue_states import OrderedRun, QueueLife, QueueLock
from sparrowmq.core.message import MessageQueue, ReceivedMessage

QUEUE = MessageQueue("T", "b", 0)


def message(offset: int, body: bytes = b"body") -> ReceivedMessage:
    return ReceivedMessage(QUEUE, offset, 0, "T", body, {}, 0, 0, 0, "", 0, "", 0, 0, 0, "")


def test_new_process_queue_has_no_messages() -> None:
    held = ProcessQueue(QUEUE, 7, Limits(), now=5.0)
    assert (held.next_offset, held.broker_max_offset, held.highest_offset, held.backlog) == (7, 7, 6, 0)
    assert (len(held), held.bytes, held.span, held.first, held.taken, held.waiting_offsets) == (
        *(0, 0, 0),
        *(None, [], []),
    )
    flags = (held.dropped, held.leaving, held.locked, held.doubtful, held.is_full)
    assert all(flag is False for flag in flags)
    assert (held.life, held.lock, held.run) == (QueueLife.ACTIVE, QueueLock.NONE, OrderedRun.IDLE)
    assert (held.running, held.unlock_tries) == (0, 0)
    assert (held.last_lock, held.last_pull, held.last_consume) == (5.0, 5.0, 5.0)
    assert ProcessQueue(QUEUE, 7, Limits()).last_pull == 0.0


@pytest.mark.proves("client:D-33", "client:D-46", "client:D.8", "client:C-56", "client:D-79")
def test_offset_to_commit_is_the_smallest_unfinished_one() -> None:
    held = ProcessQueue(QUEUE, 10, Limits())
    messages = [message(offset) for offset in range(10, 15)]
    held.put(messages)
    assert held.remove([messages[2]]) == 10
    assert held.remove([messages[0]]) == 11
    assert held.remove([messages[1]]) == 13
    assert held.remove(messages[3:]) == 15
    assert held.remove([messages[0]]) == -1, "nothing was in hand"


def test_gaps_from_filtering_are_skipped_by_the_commit() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    held.put([message(3), message(9)])
    assert held.remove([message(3)]) == 9
    assert held.remove([message(9)]) == 10


@pytest.mark.proves("client:D-32")
def test_message_added_twice_counts_once() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    held.put([message(1, b"abc")])
    held.put([message(1, b"abcdefgh")])
    assert (len(held), held.bytes) == (1, 8)
    held.remove([message(1)])
    assert (len(held), held.bytes) == (0, 0)


@pytest.mark.proves("client:D-16")
def test_queue_is_full_above_its_limits() -> None:
    held = ProcessQueue(QUEUE, 0, Limits(messages=2))
    held.put([message(0), message(1)])
    assert not held.is_full
    held.put([message(2)])
    assert held.is_full

    held = ProcessQueue(QUEUE, 0, Limits(bytes=10))
    held.put([message(0, bytes(10))])
    assert not held.is_full
    held.put([message(1, b"x")])
    assert held.is_full

    held = ProcessQueue(QUEUE, 0, Limits(span=5))
    held.put([message(0), message(5)])
    assert held.span == 5
    assert not held.is_full
    held.put([message(6)])
    assert held.is_full


def test_full_queue_wakes_its_pull_loop_when_there_is_room() -> None:
    async def main() -> None:
        held = ProcessQueue(QUEUE, 0, Limits(messages=1))
        messages = [message(offset) for offset in range(3)]
        held.put(messages)
        waiting = asyncio.create_task(held.room())
        await asyncio.sleep(0)
        held.remove([messages[0]])
        await asyncio.sleep(0)
        assert not waiting.done(), "two in hand, one allowed"
        held.remove([messages[1]])
        await waiting

    run(main())


def test_dropping_empties_the_queue_and_wakes_its_pull_loop() -> None:
    async def main() -> None:
        held = ProcessQueue(QUEUE, 0, Limits(messages=1))
        held.put([message(0), message(1)])
        waiting = asyncio.create_task(held.room())
        await asyncio.sleep(0)
        held.drop()
        await waiting
        assert held.dropped
        assert (len(held), held.bytes) == (0, 0)
        assert held.remove([message(0)]) == -1
        assert "dropped" in repr(held)

    run(main())


@pytest.mark.proves("client:D-39")
def test_first_message_and_membership_are_known() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    assert held.first is None
    early, late = message(4), message(7)
    held.put([early, late])
    assert held.first is early
    assert 4 in held
    assert 5 not in held


def test_finishing_messages_releases_their_bytes_once() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    held.put([message(offset, b"x" * (offset + 1)) for offset in range(4)])
    assert held.remove([message(9), message(0), message(2)]) == 1
    assert (len(held), held.bytes) == (2, 6)


@given(st.lists(st.integers(0, 50), min_size=1, unique=True), st.randoms(use_true_random=False))
def test_finishing_in_any_order_ends_at_the_highest_offset(offsets: list[int], rng: Random) -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    messages = [message(offset) for offset in sorted(offsets)]
    held.put(messages)
    left = list(messages)
    rng.shuffle(left)
    committed = -1
    while left:
        done = left.pop()
        offset = held.remove([done])
        assert offset >= committed, "a commit never goes back"
        assert all(offset <= rest.queue_offset for rest in left), "nothing in hand is passed over"
        committed = offset
    assert committed == max(offsets) + 1


class HandledQueue(RuleBasedStateMachine):
    """A process queue beside a model of it: a plain dictionary."""

    taken = Bundle("taken")

    @initialize(start=st.integers(0, 100))
    def begin(self, start: int) -> None:
        self.held = ProcessQueue(QUEUE, start, Limits(messages=20, bytes=400, span=60))
        self.model: dict[int, ReceivedMessage] = {}
        self.next = start
        self.highest = start - 1

    @rule(target=taken, sizes=st.lists(st.integers(0, 40), min_size=1, max_size=8), gap=st.integers(0, 5))
    def pull(self, sizes: list[int], gap: int) -> object:
        messages = []
        for size in sizes:
            self.next += 1 + gap
            messages.append(message(self.next, bytes(size)))
        self.held.put(messages)
        self.model.update({m.queue_offset: m for m in messages})
        self.highest = self.next
        return multiple(*messages)

    @rule(done=consumes(taken))
    def finish(self, done: ReceivedMessage) -> None:
        was_empty = not self.model
        self.model.pop(done.queue_offset, None)
        expected = -1 if was_empty else min(self.model, default=self.highest + 1)
        assert self.held.remove([done]) == expected

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "held"):
            return
        assert len(self.held) == len(self.model)
        assert self.held.bytes == sum(len(m.body) for m in self.model.values())
        span = max(self.model) - min(self.model) if self.model else 0
        assert self.held.span == span
        assert self.held.is_full == (len(self.model) > 20 or self.held.bytes > 400 or span > 60)


TestHandledQueue = HandledQueue.TestCase


@pytest.mark.proves("client:D-32", "MUST-33")
def test_adding_messages_says_when_an_ordered_run_should_start() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    assert not held.put([])
    assert held.put([message(0), message(1)])
    assert not held.put([message(2)]), "one is under way"
    assert len(held.take(9)) == 3
    assert held.take(9) == [], "which ends the run"
    assert held.put([message(3)])
    held.answered(10)
    held.pulled_to(4)
    assert held.backlog == 6


@pytest.mark.proves("client:D-34", "client:D-35", "client:D-36", "client:D-37", "MUST-42")
def test_ordered_messages_are_taken_and_committed_or_put_back() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    messages = [message(offset) for offset in range(6)]
    held.put(messages)
    assert held.take(2) == messages[:2]
    assert (len(held), held.bytes, held.first) == (6, 24, messages[2]), "what was taken is in hand"
    assert 0 in held
    assert held.commit() == 2
    assert (len(held), held.bytes) == (4, 16)
    assert held.commit() == -1, "nothing was taken"

    assert held.take(3) == messages[2:5]
    assert held.commit(messages[2:3]) == 3
    held.put_back([messages[4]])
    assert held.taken == [messages[3]]
    held.put_back()
    assert held.take(9) == messages[3:]
    held.put_back([messages[5]])
    held.put_back([messages[3], messages[4]])
    assert held.take(9) == messages[3:], "in order again, whatever came back first"
    assert held.run is OrderedRun.DUE
    assert held.take(9) == []
    assert held.run is OrderedRun.IDLE, "nothing left ends the run"
    held.drop()
    assert held.commit() == -1
    held.put_back(messages)
    assert len(held) == 0


@pytest.mark.proves("client:D-34")
def test_only_an_empty_take_ends_the_run() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    assert held.put([message(0), message(1), message(2)])
    held.remove([message(1)])
    assert [one.queue_offset for one in held.take(9)] == [0, 2], "what was finished meanwhile is passed over"
    assert held.run is OrderedRun.DUE
    assert held.take(9) == []
    assert held.run is OrderedRun.IDLE


@pytest.mark.proves("client:D-35", "client:D-36")
def test_messages_that_were_not_taken_are_neither_committed_nor_put_back() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    held.put([message(0), message(1), message(2)])
    (first,) = held.take(1)
    assert held.commit([message(7)]) == -1
    assert held.commit([first, message(7)]) == 1, "offset 0 counts"
    (second,) = held.take(1)
    held.put_back([message(7), second])
    assert held.waiting_offsets == [1, 2]


def test_returned_messages_are_sorted_before_waiting_ones() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    held.put([message(offset) for offset in (1, 2, 3)])
    taken = held.take(2)
    held.put([message(0)])
    held.put_back(taken)
    assert (held.span, held.waiting_offsets) == (3, [0, 1, 2, 3])
    assert held.first is not None and held.first.queue_offset == 0
    assert [one.queue_offset for one in held.take(9)] == [0, 1, 2, 3]


def test_state_of_the_queue_is_reported() -> None:
    held = ProcessQueue(QUEUE, 3, Limits())
    held.put([message(4)])
    assert repr(held) == f"<ProcessQueue {QUEUE} active next=3 unfinished=1>"
    held.leave()
    assert repr(held) == f"<ProcessQueue {QUEUE} leaving next=3 unfinished=1>"
    held.drop()
    assert repr(held) == f"<ProcessQueue {QUEUE} dropped next=3 unfinished=0>"


@pytest.mark.proves("client:D-38", "client:D-40", "client:D-41")
def test_span_counts_the_expected_messages() -> None:
    held = ProcessQueue(QUEUE, 0, Limits(span=None, messages=10))
    held.put([message(0), message(5), message(90_000)])
    assert (held.span, held.is_full) == (90_000, False), "ordered consumption has no limit of it"
    held.take(2)
    assert (held.span, held.first is not None) == (0, True)
    held.take(1)
    assert (held.span, held.first) == (0, None)
    held.drop()
    assert (len(held), held.bytes, held.span) == (0, 0, 0)


def test_out_of_order_messages_are_sorted() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    held.put([message(5), message(3)])
    held.put([message(4)])
    assert held.remove([message(5)]) == 3
    assert [m.queue_offset for m in held.take(9)] == [3, 4]
    held.put([message(offset) for offset in (8, 6, 7)])
    assert held.highest_offset == 7, "the last one's, when it is higher"
    held.put([message(1)])
    assert (held.highest_offset, [m.queue_offset for m in held.take(9)]) == (7, [1, 6, 7, 8])
    held.put([message(offset) for offset in (15, 13, 16)])
    assert [m.queue_offset for m in held.take(9)] == [13, 15, 16]


@pytest.mark.proves("client:D-42", "client:D-43")
def test_locks_and_pulls_expire() -> None:
    held = ProcessQueue(QUEUE, 0, Limits(), now=100.0)
    assert not held.may_consume_in_order(100.0), "not locked"
    held.lock_taken()
    assert held.may_consume_in_order(130.0)
    assert not held.may_consume_in_order(130.1)
    held.broker_lost()
    assert not held.may_consume_in_order(100.0), "the broker may have forgotten the lock"
    assert not held.pull_expired(220.0)
    assert held.pull_expired(220.1)
    assert not held.pull_expired(220.1, 500.0)


def test_waiting_for_handlers_to_end_is_notified() -> None:
    async def main() -> None:
        held = ProcessQueue(QUEUE, 0, Limits())
        assert await held.idle(0)
        held.began(5.0)
        held.began(6.0)
        assert held.last_consume == 6.0
        assert not await held.idle(0)
        waiting = asyncio.create_task(held.idle(60))
        await asyncio.sleep(0)
        held.ended()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        held.ended()
        async with asyncio.timeout(10):  # long before its own time is over
            assert await waiting

    run(main())


def test_commit_makes_room() -> None:
    async def main() -> None:
        held = ProcessQueue(QUEUE, 0, Limits(messages=1))
        held.put([message(0), message(1), message(2)])
        waiting = asyncio.create_task(held.room())
        held.take(2)
        await asyncio.sleep(0)
        assert not waiting.done(), "what was taken is in hand"
        held.commit()
        await waiting

    run(main())


def test_dropped_queue_cannot_be_locked() -> None:
    held = ProcessQueue(QUEUE, 0, Limits())
    held.lock_taken()
    held.drop()
    assert (held.locked, held.dropped, held.leaving) == (False, True, True)


def test_new_limits_make_room() -> None:
    async def main() -> None:
        held = ProcessQueue(QUEUE, 0, Limits(messages=1))
        held.put([message(0), message(1)])
        waiting = asyncio.create_task(held.room())
        await asyncio.sleep(0)
        held.limit_to(Limits(messages=2))
        await asyncio.wait_for(waiting, 20)
        assert held.limits.messages == 2

    run(main())


@pytest.mark.proves("client:C-27", "client:C-30")
def test_missing_or_expired_lock_is_not_renewed() -> None:
    held = ProcessQueue(QUEUE, 0, Limits(), now=100.0)
    assert not held.lock_granted(100.0), "it was missing"
    held.lock_taken()
    assert held.lock_granted(100.0 + BROKER_LOCK_SECONDS)
    assert held.last_lock == 100.0 + BROKER_LOCK_SECONDS
    assert not held.lock_granted(held.last_lock + BROKER_LOCK_SECONDS + 0.1), (
        "the broker gave it away, perhaps"
    )
    assert (held.last_lock, held.lock) == (160.0, QueueLock.HELD)
