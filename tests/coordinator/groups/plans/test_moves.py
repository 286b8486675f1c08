"""Requested offset changes: who must release queues, and when which offset is set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

import pytest
from tests.support import about, run, until

from sparrowmq import aio
from sparrowmq.coordinator.groups.handover import QueueFence
from sparrowmq.coordinator.groups.moves import DirectMoves, MoveResult, Moves, is_in, offset_of
from sparrowmq.coordinator.groups.resets import ResetRow, ResetState, ResetTarget
from sparrowmq.core.dynamic_settings import SettingPlace
from sparrowmq.core.errors import BrokerError, ConnectError, CoordinatorError
from sparrowmq.core.message import MessageQueue
from sparrowmq.protocol.codes import ResponseCode

QUEUES = [MessageQueue("Orders", "a", number) for number in range(3)]
OTHER = MessageQueue("Other", "a", 0)


@dataclass
class Places:
    """A cluster whose queues have offsets 10 to 90, 50 for any time, and 40 committed."""

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


def wish(place: SettingPlace, target: ResetTarget = ResetTarget("offset", 7), number: int = 1) -> ResetRow:  # noqa: B008
    return ResetRow(number, "g", place, target, ResetState.WAITING, "ann", "why", 0, 0, {}, {}, "")


@pytest.mark.parametrize(
    ("target", "offset"),
    [(ResetTarget("first"), 10), (ResetTarget("last"), 90), (ResetTarget("offset", 7), 10),
     (ResetTarget("offset", 33), 33), (ResetTarget("offset", 91), 90), (ResetTarget("time", 5), 50)],
)  # fmt: skip
def test_targets_are_stored_offsets(target: ResetTarget, offset: int) -> None:
    assert run(offset_of(Places(), QUEUES[0], target)) == offset


def test_missing_queue_is_reported() -> None:
    with pytest.raises(CoordinatorError, check=about(what="queue", value=QUEUES[0])):
        run(offset_of(Places(known=[]), QUEUES[0], ResetTarget("last")))


@pytest.mark.parametrize(
    ("place", "numbers"),
    [(SettingPlace("Orders"), [0, 1, 2]), (SettingPlace("Orders", 1), [1]),
     (SettingPlace("Orders", 1, "a"), [1]), (SettingPlace("Orders", 1, "b"), []), (SettingPlace("Else"), [])],
)  # fmt: skip
def test_places_name_queues(place: SettingPlace, numbers: list[int]) -> None:
    assert [queue.queue_id for queue in [*QUEUES, OTHER] if is_in(place, queue)] == numbers


def test_offset_of_a_queue_is_set_under_its_new_generation_and_not_before() -> None:
    async def main() -> None:
        cluster, moves = Places(), Moves("g")
        assert moves.add(wish(SettingPlace("Orders")))
        assert not moves.add(wish(SettingPlace("Orders"))), "it is known"
        assert moves.wanted
        assert moves.chosen([*QUEUES, OTHER]) == set(QUEUES)
        moves.begin([*QUEUES, OTHER], 5)
        assert not moves.wanted
        await moves.set(cluster, QueueFence(QUEUES[0], "m", 4))
        await moves.set(cluster, QueueFence(OTHER, "m", 5))
        assert cluster.commits == [], "of an older plan, and of a queue that nobody asked for"
        for queue in QUEUES:
            assert moves.ended() == []
            await moves.set(cluster, QueueFence(queue, "m", 5))
        assert cluster.commits == [(queue, 10, 5) for queue in QUEUES]
        (moved,) = moves.ended()
        before, after = {"Orders/a/0": 40, "Orders/a/1": 40}, dict.fromkeys(
            ("Orders/a/0", "Orders/a/1", "Orders/a/2"), 10
        )  # fmt: skip
        assert moved == MoveResult(wish(SettingPlace("Orders")), before, after, generation=5)
        assert not moves.add(wish(SettingPlace("Orders"))), "it is not noted yet"
        moves.forget(moved)
        assert moves.ended() == []
        await moves.set(cluster, QueueFence(QUEUES[0], "m", 6))
        assert len(cluster.commits) == 3

    run(main())


def test_broker_that_does_not_accept_it_is_tried_again() -> None:
    async def main() -> None:
        def away() -> None:
            raise ConnectError("no route", address="a")

        cluster, moves = Places(error=away), Moves("g")
        moves.add(wish(SettingPlace("Orders", 0)))
        moves.begin(QUEUES, 5)
        with pytest.raises(ConnectError):
            await moves.set(cluster, QueueFence(QUEUES[0], "m", 5))
        cluster.error = lambda: None
        await moves.set(cluster, QueueFence(QUEUES[0], None, 5))
        assert (cluster.commits, len(moves.ended())) == ([(QUEUES[0], 10, 5)], 1)

    run(main())


def test_last_of_two_requests_for_a_queue_counts_and_both_end() -> None:
    async def main() -> None:
        cluster, moves = Places(), Moves("g")
        moves.add(wish(SettingPlace("Orders", 0), ResetTarget("offset", 20)))
        moves.begin(QUEUES, 5)
        moves.add(wish(SettingPlace("Orders", 0), ResetTarget("offset", 30), 2))
        moves.begin(QUEUES, 6)
        await moves.set(cluster, QueueFence(QUEUES[0], "m", 6))
        assert [offset for _, offset, _ in cluster.commits] == [20, 30]
        assert [one.wish.id for one in moves.ended()] == [1, 2]

    run(main())


def test_unconsumed_topics_are_reported_and_missing_brokers_are_tried_later() -> None:
    moves = Moves("g")
    moves.add(wish(SettingPlace("Else")))
    moves.begin(QUEUES, 5)
    (moved,) = moves.ended()
    assert moved.problem == "group g does not consume any queue of Else"
    moves.add(wish(SettingPlace("Orders"), number=2))
    moves.begin(QUEUES, 6)
    moves.begin(QUEUES[:1], 7)
    assert moves.add(wish(SettingPlace("Orders"), number=2)), "its members left: it begins anew"


def direct(cluster: Places, one: ResetRow) -> list[MoveResult]:
    async def main() -> list[MoveResult]:
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


def test_unmanaged_groups_are_reset_as_by_tools() -> None:
    cluster = Places()
    (moved,) = direct(cluster, wish(SettingPlace("Orders"), ResetTarget("first")))
    assert cluster.calls == [("g", "Orders", "first")]
    assert moved.before == {"Orders/a/0": 40, "Orders/a/1": 40, "Orders/a/2": 40}
    assert set(moved.after.values()) == {10}
    cluster = Places()
    direct(cluster, wish(SettingPlace("Orders"), ResetTarget("time", 5000)))
    assert cluster.calls[0][2].timestamp() == 5
    cluster = Places()
    (moved,) = direct(cluster, wish(SettingPlace("Orders", 1), ResetTarget("last")))
    assert (cluster.calls, moved.after) == ([("g", QUEUES[1], 90)], {"Orders/a/1": 90})
    cluster = Places()
    direct(cluster, wish(SettingPlace("Orders"), ResetTarget("offset", 20)))
    assert cluster.calls == [("g", queue, 20) for queue in QUEUES]


BACK = ResetTarget("undo", 1, {"Orders/a/0": 33, "Orders/a/1": 5})
"""The offsets from before a reset; the third queue had none, and the second's is deleted."""


def test_undo_sets_each_queue_to_its_own_offset() -> None:
    cluster = Places()
    (moved,) = direct(cluster, wish(SettingPlace("Orders"), BACK))
    assert cluster.calls == [("g", QUEUES[0], 33), ("g", QUEUES[1], 10)]
    assert moved.after == {"Orders/a/0": 33, "Orders/a/1": 10}
    assert moved.before == {"Orders/a/0": 40, "Orders/a/1": 40}


def test_undo_in_a_managed_group_releases_only_its_queues() -> None:
    async def main() -> None:
        cluster, moves = Places(), Moves("g")
        moves.add(wish(SettingPlace("Orders"), BACK))
        assert moves.chosen([*QUEUES, OTHER]) == set(QUEUES[:2])
        moves.begin([*QUEUES, OTHER], 5)
        for queue in QUEUES:
            await moves.set(cluster, QueueFence(queue, "m", 5))
        assert cluster.commits == [(QUEUES[0], 33, 5), (QUEUES[1], 10, 5)]
        assert [one.after for one in moves.ended()] == [{"Orders/a/0": 33, "Orders/a/1": 10}]

    run(main())


@pytest.mark.parametrize(("owner", "commits"), [("", [(QUEUES[1], 20, 8)]), ("m", [])])
def test_offline_managed_group_is_moved_under_its_generation(owner: str, commits: list[Any]) -> None:
    grant = aio.QueueGrant("Orders", "a", 1, 8, owner)
    policy = aio.GroupPolicy("g", epoch=2, queues=[grant])
    cluster = Places(policies={"a": aio.GroupPolicies([policy])})
    found = direct(cluster, wish(SettingPlace("Orders", 1), ResetTarget("offset", 20)))
    assert (cluster.commits, len(found)) == (commits, len(commits)), "an owner lets go of it first"


def test_impossible_requests_are_reported_and_a_fenced_group_waits() -> None:
    (moved,) = direct(Places(), wish(SettingPlace("Else")))
    assert moved.problem == "Else has no queue"

    def refused(code: int) -> Callable[[], None]:
        def error() -> None:
            raise BrokerError(code, "not so", address="a", request="x")

        return error

    (moved,) = direct(Places(error=refused(1)), wish(SettingPlace("Orders")))
    assert "not so" in moved.problem
    assert (
        direct(Places(error=refused(int(ResponseCode.GENERATION_FENCED))), wish(SettingPlace("Orders"))) == []
    )


def test_silent_brokers_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.coordinator.groups.moves.DIRECT_SECONDS", 0.001)

    class Silent(Places):
        async def topic_status(self, topic: str) -> list[aio.QueueStatus]:
            await asyncio.Event().wait()
            return []

    (moved,) = direct(Silent(), wish(SettingPlace("Orders")))
    assert moved.problem == "brokers did not answer within 0.001 s"
