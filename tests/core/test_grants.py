"""A member's grants: leases by its own clock, leaving, releasing, late answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.grants import RELEASED_MAX, Changes, Grants, Orders, Report
from sparrowmq.core.message import MessageQueue

A, B = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)


def held(*queues: MessageQueue, generation: int = 3) -> Grants:
    grants = Grants()
    grants.obey(Orders(10, 8.0, dict.fromkeys(queues, generation)), sent=100.0)
    return grants


@pytest.mark.proves("MUST-72")
def test_lease_counts_from_the_time_of_the_request() -> None:
    grants = held(A)
    assert grants.lease_end == 108.0
    assert grants.may_start(A, 3, 107.9)
    assert not grants.may_start(A, 3, 108.0)
    assert not grants.may_start(A, 2, 101.0)
    assert not grants.may_start(B, 3, 101.0)
    grants.obey(Orders(10, 8.0, {A: 3}), sent=99.0)
    assert grants.lease_end == 108.0, "an answer to an older request takes nothing away"


def test_no_handler_may_start_before_the_first_answer() -> None:
    grants = Grants()
    assert not grants.may_start(A, 0, 0.0)
    assert grants.give_up() == ()
    assert grants.report() == Report(1, 0)


def test_revoked_queue_is_released_and_forgotten_once_the_coordinator_knows() -> None:
    grants = held(A, B)
    changes = grants.obey(Orders(11, 8.0, {B: 3}, {A: 3}), sent=101.0)
    assert changes == Changes({}, (A,))
    assert not grants.may_start(A, 3, 101.0)
    assert grants.may_start(B, 3, 101.0)
    assert grants.generation(A) == 3, "its last commit needs it"
    assert grants.report() == Report(1, 11)
    grants.released(A)
    assert grants.generation(A) is None
    assert grants.report() == Report(2, 11, {A: 3})
    assert grants.obey(Orders(11, 8.0, {B: 3}, {A: 3}), sent=102.0) == Changes()
    assert grants.report() == Report(3, 11, {A: 3}), "said until it is no longer asked for"
    assert grants.obey(Orders(12, 8.0, {B: 3}), sent=103.0) == Changes()
    assert grants.report() == Report(4, 12)
    with pytest.raises(InvalidStateError, check=about(what="queue", value=A)):
        grants.released(A)


def test_very_many_released_queues_are_reported_in_parts() -> None:
    """Coordinators limit the size of a request; a longer one would be refused every time."""
    queues = {MessageQueue("T", "b", number): 1 for number in range(RELEASED_MAX * 2 + 1)}
    grants, told = Grants(), 0
    while True:
        grants.obey(Orders(1, 8.0, {}, dict(queues)), 0.0)
        released = grants.report().released
        if not released:
            break
        assert len(released) <= RELEASED_MAX
        told += len(released)
        for queue in released:
            del queues[queue]
    assert told == RELEASED_MAX * 2 + 1


def test_queue_revoked_before_its_grant_arrived_is_released_at_once() -> None:
    grants = held(A)
    assert grants.obey(Orders(12, 8.0, {A: 3}, {B: 4}), sent=101.0) == Changes()
    assert grants.report() == Report(1, 12, {B: 4})
    assert (grants.generation(B), grants.held()) == (None, [A])
    assert grants.obey(Orders(13, 8.0, {A: 3, B: 6}), sent=102.0) == Changes({B: 6})
    late = held(B)
    assert late.obey(Orders(12, 8.0, {}, {B: 4}), sent=101.0) == Changes({}, (B,))
    late.released(B)
    assert late.report() == Report(1, 12, {B: 3}), "what it had comes first"
    late.obey(Orders(12, 8.0, {}, {B: 4}), sent=102.0)
    assert late.report() == Report(2, 12, {B: 4})


def test_queue_granted_again_starts_after_its_old_grant_is_released() -> None:
    grants = held(A)
    assert grants.obey(Orders(11, 8.0, {A: 5}), sent=101.0) == Changes({}, (A,))
    assert grants.obey(Orders(11, 8.0, {A: 5}), sent=102.0) == Changes()
    grants.released(A)
    assert grants.obey(Orders(11, 8.0, {A: 5}), sent=103.0) == Changes({A: 5})
    assert grants.may_start(A, 5, 104.0)
    assert not grants.may_start(A, 3, 104.0)


def test_outdated_answers_change_nothing() -> None:
    grants = held(A)
    assert grants.obey(Orders(9, 8.0, {B: 2}), sent=105.0) == Changes()
    assert grants.lease_end == 108.0
    assert grants.may_start(A, 3, 105.0)


def test_grant_that_is_still_valid_continues_after_an_expired_lease() -> None:
    grants = held(A)
    assert not grants.may_start(A, 3, 120.0)
    assert grants.obey(Orders(10, 8.0, {A: 3}), sent=120.0) == Changes()
    assert grants.may_start(A, 3, 121.0)


def test_leaving_member_stops_and_releases_all_queues() -> None:
    grants = held(A, B)
    assert grants.give_up() == (A, B)
    assert grants.give_up() == ()
    with pytest.raises(InvalidStateError, check=about(what="queue", value=A)):
        held(A).released(A)
    grants.released(A)
    assert grants.obey(Orders(10, 8.0, {A: 3, B: 3}), sent=110.0) == Changes({A: 3})
    assert not grants.may_start(B, 3, 111.0), "what leaves has to be released first"


QUEUES = st.sampled_from([MessageQueue("T", "b", number) for number in range(3)])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grant"), QUEUES),
        st.tuples(st.just("revoke"), QUEUES),
        st.tuples(st.just("lost answer"), st.booleans()),
        st.tuples(st.just("late answer"), st.integers(0, 5)),
        st.tuples(st.just("release"), QUEUES),
        st.tuples(st.just("wait"), st.floats(0.1, 10.0)),
    ),
    max_size=40,
)


class Leader:
    """The owner and generation of each queue, by the rules of the leader alone."""

    def __init__(self) -> None:
        self.revision = 1
        self.generation = 0
        self.granted: dict[MessageQueue, int] = {}
        self.revoked: dict[MessageQueue, int] = {}

    def change(self, what: str, queue: MessageQueue) -> None:
        if what == "grant" and queue not in self.granted and queue not in self.revoked:
            self.generation += 1
            self.granted[queue] = self.generation
            self.revision += 1
        elif what == "revoke" and queue in self.granted:
            self.revoked[queue] = self.granted.pop(queue)
            self.revision += 1

    def hear(self, released: Mapping[MessageQueue, int], revision: int) -> None:
        for queue, number in released.items():
            if self.revoked.get(queue) == number:
                del self.revoked[queue]
                self.revision += 1

    def orders(self) -> Orders:
        return Orders(self.revision, 4.0, dict(self.granted), dict(self.revoked))


@given(STEPS)
def test_only_granted_queues_are_held_whatever_the_order_of_answers(
    steps: list[tuple[str, Any]],
) -> None:
    """Answers get lost and come late. What is revoked is released in the end; nothing starts without a lease,
    nor under a generation that the leader has taken back and been told to be released.
    """
    leader, grants, now = Leader(), Grants(), 0.0
    answers: list[tuple[Orders, float]] = []
    ended: dict[MessageQueue, int] = {}

    def exchange(*, arrives: bool = True) -> None:
        report = grants.report()
        before = dict(leader.revoked)
        leader.hear(report.released, report.revision)
        ended.update({queue: number for queue, number in before.items() if queue not in leader.revoked})
        answers.append((leader.orders(), now))
        if arrives:
            grants.obey(*answers[-1])

    for step in steps:
        what, value = step
        if what in ("grant", "revoke"):
            leader.change(what, value)
        elif what == "lost answer":
            exchange(arrives=value)
        elif what == "late answer" and value < len(answers):
            grants.obey(*answers[-1 - value])
        elif what == "release" and value not in grants.held() and grants.generation(value) is not None:
            grants.released(value)
        elif what == "wait":
            now += value
        for queue in grants.held():
            number = grants.generation(queue)
            assert number is not None
            assert number > ended.get(queue, 0), "it said that it had released this"
            assert not grants.may_start(queue, number, grants.lease_end)
            assert not grants.may_start(queue, number - 1, now)
    for _ in range(4):  # whoever goes on talking comes to an end
        exchange()
        for number in range(3):
            queue = MessageQueue("T", "b", number)
            if queue not in grants.held() and grants.generation(queue) is not None:
                grants.released(queue)
    exchange()
    assert leader.revoked == {}
    assert {queue: grants.generation(queue) for queue in grants.held()} == leader.granted
