"""Offsets of all groups: queried once for all callers, and what is known of queues with deleted messages."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from tests.coordinator.cluster import asked
from tests.coordinator.cluster.explored import MadeUpAdmin, MadeUpReader, message
from tests.support import run

from sparrowmq import aio
from sparrowmq.aio import BrokerStatus, QueueProgress
from sparrowmq.coordinator.cluster.offsets import (
    BrokerReports,
    FirstOffsets,
    LogBegins,
    StoredTimes,
    complete,
    oldest_waiting,
    unread,
)
from sparrowmq.coordinator.cluster.view import ObservedCluster
from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import ConnectError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullResult, PullStatus


class Counting(MadeUpReader):
    """Each message is as old as its offset; `read` lists the messages that were read."""

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        self.read: list[int] = []
        self.first = first

    async def pull(self, queue: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
        self.read.append(queue.queue_id)
        if offset < self.first:
            return PullResult(PullStatus.OFFSET_ILLEGAL, [], self.first, self.first, 10)
        stored = message(offset, stored=queue.queue_id)
        return PullResult(PullStatus.FOUND, [stored], offset + 1, self.first, 10)


def times() -> StoredTimes:
    return StoredTimes(lambda: 0.0)


def place(stored: int, last_ms: int, topic: str = "T", offset: int = 4) -> QueueProgress:
    return QueueProgress(MessageQueue(topic, "a", stored), 9, offset, last_ms)


def test_only_messages_that_may_be_the_oldest_of_their_topic_are_read() -> None:
    def ages(*places: QueueProgress) -> tuple[dict[int, int], list[int]]:
        reader = Counting()
        found = run(oldest_waiting(cast(aio.PullConsumer, reader), places, times()))
        return {queue.queue_id: at for queue, at in found.items()}, reader.read

    assert ages(place(500, 400), place(900, 600), place(700, 650)) == ({500: 500, 900: 600, 700: 650}, [500])
    assert ages(place(900, 100), place(500, 400)) == ({900: 900, 500: 500}, [900, 500]), "its bound was low"
    assert ages(place(500, 400), place(900, 0)) == ({900: 900, 500: 500}, [900, 500]), "nothing was consumed"
    assert ages(place(500, 400), place(600, 550, "U"))[1] == [500, 600], "each topic has its own"
    assert ages(place(500, 400, offset=9)) == ({}, [])


def test_time_of_a_message_is_read_once_while_it_is_in_use() -> None:
    now = 0.0
    kept, reader = StoredTimes(lambda: now), Counting()
    puller = cast(aio.PullConsumer, reader)

    def ask(offset: int) -> int:
        return run(kept.of(puller, MessageQueue("T", "a", 500), offset))

    assert [ask(4), ask(4), ask(5)] == [500, 500, 500]
    assert len(reader.read) == 2
    for now in (130.0, 260.0, 390.0):  # noqa: B007 - the clock of `kept`
        assert ask(4) == 500
    assert len(reader.read) == 2, "it is kept while it is asked for"
    assert ask(5) == 500 and len(reader.read) == 3, "others are forgotten"
    reader.first = 7
    assert ask(6) == ask(6) == 500
    assert len(reader.read) == 3 + 4, "the first one after a deleted one changes"


class Brokers(MadeUpAdmin):
    """A queue whose first messages were deleted."""

    def __init__(self, first: int = 4) -> None:
        super().__init__()
        self.first = first

    async def topics_status(self, topic: str) -> list[aio.QueueStatus]:
        self.done.append(topic)
        return [aio.QueueStatus(MessageQueue(topic, "a", 0), self.first, 9, 1)]


class At(Clock):
    """A stopped clock."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)


def early(offset: int, last_ms: int = 0, topic: str = "T", end: int = 9) -> QueueProgress:
    return QueueProgress(MessageQueue(topic, "a", 0), end, offset, last_ms)


def reported(at: float, begins: str, name: str = "a") -> BrokerReports:
    return BrokerReports(at, [BrokerStatus("c", name, 0, "a:1", {"commitLogMinOffset": begins})])


def test_deleted_messages_do_not_count_as_waiting() -> None:
    admin, clock = Brokers(), At()
    firsts, asks = FirstOffsets(clock, LogBegins()), cast(aio.Admin, admin)
    assert run(firsts.of(asks, [early(9), early(3, 5)])) == {}, "what is read, or is still there"
    assert admin.done == []
    found = run(firsts.of(asks, [early(1)]))
    assert found == {MessageQueue("T", "a", 0): 4}
    assert [unread(early(offset), found) for offset in (0, 1, 4, 6, 9, 12)] == [5, 5, 5, 3, 0, 0]
    run(firsts.of(asks, [early(1)]))
    clock.now += 61
    run(firsts.of(asks, [early(1), early(1, topic="U")]))
    assert sorted(admin.done) == ["T", "T", "U"], "once a minute, of brokers that do not tell more"


def test_first_offsets_are_queried_again_after_a_broker_deleted_part_of_its_log() -> None:
    admin, clock, begins = Brokers(), At(), LogBegins()
    firsts, asks = FirstOffsets(clock, begins), cast(aio.Admin, admin)

    def ask(seconds: float, log_begins: str, row: QueueProgress | None = None) -> int:
        clock.now += seconds
        begins.note(reported(clock.now, log_begins))
        run(firsts.of(asks, [row or early(1)]))
        return len(admin.done)

    assert ask(0, "0") == 1
    assert ask(300, "0") == ask(300, "0") == 1, "nothing was deleted"
    assert ask(10, "4096") == 2, "a file went"
    assert ask(61, "4096") == 3, "queues follow later"
    assert ask(61, "4096") == ask(600, "4096") == 3
    assert ask(1, "4096", early(1, end=3)) == 4, "it ends before it began: the topic was created again"
    assert ask(901, "4096") == 5, "it may have been created again"
    assert ask(61, "unknown") == 6


class Masters(MadeUpAdmin):
    """Two masters; those in `down` do not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.down: set[str] = set()

    async def brokers_list(self) -> list[BrokerStatus]:
        self.done.append("list")
        return [BrokerStatus("c", name, 0, f"{name}:1", self.runtime) for name in "ab"]

    async def brokers_progress(self, broker: str) -> dict[str, list[QueueProgress]]:
        self.done.append(broker)
        await asyncio.sleep(0)
        if broker in self.down:
            raise ConnectError(f"{broker} is down")
        row = QueueProgress(MessageQueue("T", broker, 0), 9, 4, 5)
        return {"both": [row], f"only-{broker}": [row], "CID_RMQ_SYS_TRANS": [row]}


def two_masters() -> tuple[Masters, ObservedCluster]:
    admin, cluster = Masters(), asked.observed("n:1")
    cluster._clients.made_admin = cast(aio.Admin, admin)
    cluster._clients.made_reader = cast(aio.PullConsumer, Counting())
    return admin, cluster


def test_each_master_is_queried_once_for_all_callers() -> None:
    async def main() -> None:
        admin, cluster = two_masters()
        found = await asyncio.gather(*(cluster.places(ages=False) for _ in range(50)))
        assert [one.lag for one in found[-1].places["both"]] == [5, 5]
        assert sorted(found[0].places) == ["both", "only-a", "only-b"] and found[0].failed == {}
        await cluster.places(ages=True, fresh_seconds=60.0)
        assert sorted(admin.done) == ["a", "b", "list"]
        await cluster.places(ages=True, fresh_seconds=0.0)
        assert sorted(admin.done) == ["a", "a", "b", "b", "list", "list"]

    run(main())


def test_lag_of_groups_at_a_silent_master_is_unknown_and_not_zero() -> None:
    async def main() -> None:
        admin, cluster = two_masters()
        admin.down = {"b"}
        with pytest.raises(SparrowError, match="not known: b: b is down"):
            await cluster.places(ages=False, fresh_seconds=0.0)
        admin.down = set()
        await cluster.places(ages=False, fresh_seconds=0.0)
        admin.down = {"b"}
        found = await cluster.places(ages=False, fresh_seconds=0.0)
        assert list(found.places) == ["only-a"]
        assert found.failed == {"both": "b: b is down", "only-b": "b: b is down"}
        complete(await cluster._offsets.all(60.0))

    run(main())
