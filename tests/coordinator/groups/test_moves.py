"""Offsets that people want set: who lets go of what, and when which offset is set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import pytest
from tests.support import run, until

from sparrowmq import aio
from sparrowmq.coordinator.groups.handover import Fenced
from sparrowmq.coordinator.groups.moves import DirectMoves, Moved, Moves, is_in, offset_of
from sparrowmq.coordinator.groups.resets import State, Target, Wish
from sparrowmq.core.errors import BrokerError, ConnectError, CoordinatorError
from sparrowmq.core.knobs import Place
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import ResponseCode

QUEUES = [MessageQueue("Orders", "a", number) for number in range(3)]
OTHER = MessageQueue("Other", "a", 0)


@dataclass
class Places:
    """A cluster whose queues have offsets 10 to 90, 50 for any time, and are committed at 40."""

    commits: list[tuple[MessageQueue, int, int | None]] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    error: Callable[[], None] = lambda: None
    known: list[MessageQueue] = field(default_factory=lambda: [*QUEUES, OTHER])
    policies: dict[str, aio.GroupPolicies] = field(default_factory=dict)

    async def topic_status(self, topic: str) -> list[aio.QueueStatus]:
        self.error()
        return [aio.QueueStatus(queue, 10, 90, 0) for queue in self.known if queue.topic == topic]

    async def group_progress(self, group: str, topic: str | None = None) -> list[aio.QueueProgress]:
        found = [queue for queue in self.known if queue.topic == topic]
        return [aio.QueueProgress(queue, 90, 40, 0) for queue in found]

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        return None if queue.queue_id == 2 else 40

    async def commit(
        self, group: str, queue: MessageQueue, offset: int, *, generation: int | None = None
    ) -> None:
        self.error()
        self.commits.append((queue, offset, generation))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        return 50

    async def reset_offsets(
        self, group: str, topic: str, to: Literal["last", "first"] | datetime, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        self.calls.append((group, topic, to))
        return {queue: 10 for queue in self.known if queue.topic == topic}

    async def reset_queue(self, group: str, queue: MessageQueue, offset: int) -> None:
        if self.policies:
            raise BrokerError(int(ResponseCode.GENERATION_FENCED), "fenced")
        self.calls.append((group, queue, offset))

    async def group_policies(self, group: str | None = None) -> dict[str, aio.GroupPolicies]:
        return self.policies


def wish(place: Place, target: Target = Target("offset", 7), number: int = 1) -> Wish:  # noqa: B008
    return Wish(number, "g", place, target, State.WAITING, "ann", "why", 0, 0, {}, {}, "")


@pytest.mark.parametrize(
    ("target", "offset"),
    [(Target("first"), 10), (Target("last"), 90), (Target("offset", 7), 10), (Target("offset", 33), 33),
     (Target("offset", 91), 90), (Target("time", 5), 50)],
)  # fmt: skip
def test_targets_are_offsets_that_are_stored(target: Target, offset: int) -> None:
    assert run(offset_of(Places(), QUEUES[0], target)) == offset


def test_a_queue_that_is_not_there_is_said() -> None:
    with pytest.raises(CoordinatorError, match="is not there any more"):
        run(offset_of(Places(known=[]), QUEUES[0], Target("last")))


@pytest.mark.parametrize(
    ("place", "numbers"),
    [(Place("Orders"), [0, 1, 2]), (Place("Orders", 1), [1]), (Place("Orders", 1, "a"), [1]),
     (Place("Orders", 1, "b"), []), (Place("Else"), [])],
)  # fmt: skip
def test_places_name_queues(place: Place, numbers: list[int]) -> None:
    assert [queue.queue_id for queue in [*QUEUES, OTHER] if is_in(place, queue)] == numbers


def test_the_offset_of_a_queue_is_set_under_its_new_generation_and_not_before() -> None:
    async def main() -> None:
        cluster, moves = Places(), Moves("g")
        assert moves.add(wish(Place("Orders")))
        assert not moves.add(wish(Place("Orders"))), "it is known"
        assert moves.wanted
        assert moves.chosen([*QUEUES, OTHER]) == set(QUEUES)
        moves.begin([*QUEUES, OTHER], 5)
        assert not moves.wanted
        await moves.set(cluster, Fenced(QUEUES[0], "m", 4))
        await moves.set(cluster, Fenced(OTHER, "m", 5))
        assert cluster.commits == [], "of an older plan, and of a queue that nobody asked for"
        for queue in QUEUES:
            assert moves.ended() == []
            await moves.set(cluster, Fenced(queue, "m", 5))
        assert cluster.commits == [(queue, 10, 5) for queue in QUEUES]
        (moved,) = moves.ended()
        before, after = {"Orders/a/0": 40, "Orders/a/1": 40}, dict.fromkeys(
            ("Orders/a/0", "Orders/a/1", "Orders/a/2"), 10
        )  # fmt: skip
        assert moved == Moved(wish(Place("Orders")), before, after, generation=5)
        assert not moves.add(wish(Place("Orders"))), "it is not noted yet"
        moves.forget(moved)
        assert moves.ended() == []
        await moves.set(cluster, Fenced(QUEUES[0], "m", 6))
        assert len(cluster.commits) == 3

    run(main())


def test_a_broker_that_does_not_take_it_is_asked_again() -> None:
    async def main() -> None:
        def away() -> None:
            raise ConnectError("no route", address="a")

        cluster, moves = Places(error=away), Moves("g")
        moves.add(wish(Place("Orders", 0)))
        moves.begin(QUEUES, 5)
        with pytest.raises(ConnectError):
            await moves.set(cluster, Fenced(QUEUES[0], "m", 5))
        cluster.error = lambda: None
        await moves.set(cluster, Fenced(QUEUES[0], None, 5))
        assert (cluster.commits, len(moves.ended())) == ([(QUEUES[0], 10, 5)], 1)

    run(main())


def test_the_last_of_two_wishes_for_a_queue_counts_and_both_end() -> None:
    async def main() -> None:
        cluster, moves = Places(), Moves("g")
        moves.add(wish(Place("Orders", 0), Target("offset", 20)))
        moves.begin(QUEUES, 5)
        moves.add(wish(Place("Orders", 0), Target("offset", 30), 2))
        moves.begin(QUEUES, 6)
        await moves.set(cluster, Fenced(QUEUES[0], "m", 6))
        assert [offset for _, offset, _ in cluster.commits] == [20, 30]
        assert [one.wish.id for one in moves.ended()] == [1, 2]

    run(main())


def test_what_a_group_does_not_consume_is_said_and_what_is_gone_is_left_for_later() -> None:
    moves = Moves("g")
    moves.add(wish(Place("Else")))
    moves.begin(QUEUES, 5)
    (moved,) = moves.ended()
    assert moved.problem == "group g consumes no queue of Else"
    moves.add(wish(Place("Orders"), number=2))
    moves.begin(QUEUES, 6)
    moves.begin(QUEUES[:1], 7)
    assert moves.add(wish(Place("Orders"), number=2)), "its members left: it begins anew"


def direct(cluster: Places, one: Wish) -> list[Moved]:
    async def main() -> list[Moved]:
        moves = DirectMoves(cluster)
        moves.add(one)
        moves.add(one)
        await until(lambda: all(task.done() for task in moves._tasks.values()))
        found = moves.ended()
        for moved in found:
            moves.forget(moved)
        assert moves.ended() == []
        await moves.close()
        return found

    return run(main())


def test_groups_that_are_not_managed_are_told_as_tools_do_it() -> None:
    cluster = Places()
    (moved,) = direct(cluster, wish(Place("Orders"), Target("first")))
    assert cluster.calls == [("g", "Orders", "first")]
    assert moved.before == {"Orders/a/0": 40, "Orders/a/1": 40, "Orders/a/2": 40}
    assert set(moved.after.values()) == {10}
    cluster = Places()
    direct(cluster, wish(Place("Orders"), Target("time", 5000)))
    assert cluster.calls[0][2].timestamp() == 5
    cluster = Places()
    (moved,) = direct(cluster, wish(Place("Orders", 1), Target("last")))
    assert (cluster.calls, moved.after) == ([("g", QUEUES[1], 90)], {"Orders/a/1": 90})
    cluster = Places()
    direct(cluster, wish(Place("Orders"), Target("offset", 20)))
    assert cluster.calls == [("g", queue, 20) for queue in QUEUES]


@pytest.mark.parametrize(("owner", "commits"), [("", [(QUEUES[1], 20, 8)]), ("m", [])])
def test_a_managed_group_that_is_away_is_moved_under_its_generation(owner: str, commits: list[Any]) -> None:
    grant = aio.QueueGrant("Orders", "a", 1, 8, owner)
    policy = aio.GroupPolicy("g", epoch=2, queues=[grant])
    cluster = Places(policies={"a": aio.GroupPolicies([policy])})
    found = direct(cluster, wish(Place("Orders", 1), Target("offset", 20)))
    assert (cluster.commits, len(found)) == (commits, len(commits)), "an owner lets go of it first"


def test_what_cannot_be_done_is_said_and_a_fence_is_for_later() -> None:
    (moved,) = direct(Places(), wish(Place("Else")))
    assert moved.problem == "Else has no queue"

    def refused(code: int) -> Callable[[], None]:
        def error() -> None:
            raise BrokerError(code, "not so", address="a", request="x")

        return error

    (moved,) = direct(Places(error=refused(1)), wish(Place("Orders")))
    assert "not so" in moved.problem
    assert direct(Places(error=refused(int(ResponseCode.GENERATION_FENCED))), wish(Place("Orders"))) == []


def test_brokers_that_do_not_answer_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.coordinator.groups.moves.DIRECT_SECONDS", 0.001)

    class Silent(Places):
        async def topic_status(self, topic: str) -> list[aio.QueueStatus]:
            await asyncio.Event().wait()
            return []

    (moved,) = direct(Silent(), wish(Place("Orders")))
    assert moved.problem == "brokers did not answer within 0.001 s"
