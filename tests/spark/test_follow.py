from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from tests.spark.stubs import StubBroker, many_queues

from sparrowmq.core.errors import BrokerError, ConnectionLostError, SettingsError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark import follow
from sparrowmq.spark.faults import DataLossError
from sparrowmq.spark.follow import Follower
from sparrowmq.spark.lookup import Lookup
from sparrowmq.spark.offsets import Span, StreamOffset, spans
from sparrowmq.spark.options import DISCOVERY_SECONDS, ReadOptions

T = TypeVar("T")

OPTIONS = ReadOptions(name_server="stub:1", subscribe=("t",), retries=1, retry_interval=0.001)


class World:
    """A stub cluster, a clock by hand, and a follower."""

    def __init__(self, **options: Any) -> None:
        self.broker = StubBroker()
        self.time = 100.0
        self.options = replace(OPTIONS, **options)
        self.lookup = Lookup(self.broker, self.broker, self.options, lambda: self.time)
        self.follower = Follower(self.ask, self.options, lambda: self.time)

    def ask(self, question: Callable[[Lookup], Awaitable[T]], timeout: float) -> T:
        async def work() -> T:
            async with asyncio.timeout(timeout):
                return await question(self.lookup)

        return asyncio.run(work())

    def latest(self, start: StreamOffset, *, limited: bool = True, after: float = 1.0) -> StreamOffset:
        self.time += after
        return self.follower.latest(start, limited=limited)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_LOSS_PAUSE", 0.0)


def test_the_start_is_settled_once() -> None:
    world = World()
    queue = world.broker.add(0, 5)
    first = world.follower.initial()
    assert first == StreamOffset({queue: 5}, initial=True)
    world.broker.append(queue, 3)
    assert world.follower.initial() is first
    end = world.latest(first)
    assert spans(StreamOffset({queue: 7}, initial=True), end) == [Span(queue, 5, 8)]


def test_nothing_new_gives_the_very_start() -> None:
    world = World()
    queue = world.broker.add(0, 5)
    start = StreamOffset({queue: 5})
    assert world.latest(start) is start
    world.broker.append(queue, 1)
    assert world.latest(start).queues == {queue: 6}


def test_polls_are_remembered_for_the_poll_interval() -> None:
    world = World(poll_interval=0.1)
    queue = world.broker.add(0, 5)
    start = StreamOffset({queue: 5})
    world.latest(start)
    calls = world.broker.calls
    for _ in range(9):
        world.latest(start, after=0.01)
    assert world.broker.calls == calls
    world.latest(start, after=0.02)
    assert world.broker.calls > calls


def test_the_limit_is_shared_in_proportion() -> None:
    world = World(max_offsets=100)
    small, large = world.broker.add(0, 100), world.broker.add(1, 300)
    start = StreamOffset({small: 0, large: 0})
    assert world.latest(start).queues == {small: 25, large: 75}
    assert world.latest(start, limited=False).queues == {small: 100, large: 300}


def test_the_byte_limit_uses_the_size_of_records() -> None:
    world = World(max_bytes=10_000)
    queue = world.broker.add(0, 500)
    size = len(world.broker.queues_[queue].records[0])
    assert world.latest(StreamOffset({queue: 0})).queues == {queue: 10_000 // size}
    both = World(max_bytes=10_000, max_offsets=7)
    other = both.broker.add(0, 500)
    assert both.latest(StreamOffset({other: 0})).queues == {other: 7}


def test_the_byte_limit_survives_a_fault_of_its_sample() -> None:
    world = World(max_bytes=10_240)
    queue = world.broker.add(0, 500)
    world.broker.fault = lambda queue, offset: ConnectionLostError("gone") if offset == 0 else None
    assert world.latest(StreamOffset({queue: 0})).queues == {queue: 10}


def test_a_minimum_waits_but_not_for_ever() -> None:
    world = World(min_offsets=10, max_trigger_delay=60.0)
    queue = world.broker.add(0, 3)
    first = world.latest(StreamOffset({queue: 0}))
    assert first.queues == {queue: 3}
    world.broker.append(queue, 5)
    assert world.latest(first, after=30.0) is first
    assert world.latest(first, limited=False, after=1.0).queues == {queue: 8}
    world.broker.append(queue, 1)
    second = StreamOffset({queue: 8})
    assert world.latest(second, after=50.0) is second
    assert world.latest(second, after=11.0).queues == {queue: 9}
    world.broker.append(queue, 10)
    assert world.latest(StreamOffset({queue: 9}), after=1.0).queues == {queue: 19}


def test_a_target_is_final_and_knows_no_minimum() -> None:
    world = World(min_offsets=100, max_offsets=4)
    queue = world.broker.add(0, 10)
    world.follower.fix_target()
    world.broker.append(queue, 90)
    offset, ends = StreamOffset({queue: 0}), []
    for _ in range(10):
        following = world.latest(offset)
        if following is offset:
            break
        ends.append(following.queues[queue])
        offset = following
    assert ends == [4, 8, 10]
    assert world.follower.known_ends() == StreamOffset({queue: 10})


def test_a_new_queue_starts_at_its_minimum() -> None:
    world = World()
    old = world.broker.add(0, 5)
    start = StreamOffset({old: 5})
    world.latest(start)
    new = world.broker.add(1, 4, first=7)
    end = world.latest(start, after=DISCOVERY_SECONDS)
    assert end == StreamOffset({old: 5, new: 11}, {new: 7})
    assert spans(start, end) == [Span(new, 7, 11)]


def test_a_new_queue_that_cannot_be_asked_is_read_later() -> None:
    world = World()
    old, new = world.broker.add(0, 5), world.broker.add(1, 4)
    start = StreamOffset({old: 0})
    asked: list[int] = []

    def fault(queue: MessageQueue, offset: int) -> ConnectionLostError | None:
        if queue == new:
            asked.append(offset)
        return ConnectionLostError("gone") if queue == new and len(asked) == 2 else None

    world.broker.fault = fault
    assert world.latest(start).queues == {old: 5}
    assert world.latest(start).queues == {old: 5, new: 4}


def test_a_cluster_out_of_reach_means_nothing_new(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    queue = world.broker.add(0, 5)
    start = StreamOffset({queue: 0})
    world.broker.fault = lambda queue, offset: ConnectionLostError("the cluster is away")
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        for _ in range(5):
            assert world.latest(start) is start
    assert caplog.text.count("cannot be asked for new messages now") == 1
    assert world.follower.known_ends() is None
    world.broker.fault = lambda queue, offset: None
    assert world.latest(start).queues == {queue: 5}
    assert world.follower.known_ends() == StreamOffset({queue: 5})


def test_a_lasting_fault_is_raised() -> None:
    world = World()
    queue = world.broker.add(0, 5)
    world.broker.fault = lambda queue, offset: BrokerError(16, "no permission") if offset == -1 else None
    with pytest.raises(BrokerError, match="no permission"):
        world.latest(StreamOffset({queue: 0}))


def _gone(world: World, queue: MessageQueue) -> StreamOffset:
    """A start after the other topic's broker answered, and then the topic was deleted."""
    start = StreamOffset(dict.fromkeys(world.broker.queues_, 0))
    world.latest(start)
    del world.broker.queues_[queue]
    return start


def test_a_deleted_topic_ends_the_query() -> None:
    for options in ({"subscribe": ("t", "u")}, {"subscribe": (), "subscribe_pattern": "[tu]"}):
        world = World(**options)
        world.broker.add(0, 5)
        start = _gone(world, world.broker.add(0, 5, topic="u"))
        with pytest.raises(DataLossError, match="deleted under the query: u; the brokers are there and do"):
            world.latest(start, after=2 * DISCOVERY_SECONDS)


def test_a_deleted_topic_is_passed_over_when_asked_to(caplog: pytest.LogCaptureFixture) -> None:
    world = World(subscribe=("t", "u"), fail_on_data_loss=False)
    kept, gone = world.broker.add(0, 5), world.broker.add(0, 5, topic="u")
    start = _gone(world, gone)
    world.broker.append(kept, 5)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        for _ in range(3):
            assert world.latest(start, after=2 * DISCOVERY_SECONDS).queues == {kept: 10, gone: 5}
    assert caplog.text.count("deleted under the query: u") == 1


def test_a_topic_whose_broker_is_away_is_waited_for() -> None:
    world = World(subscribe=("t", "u"))
    kept, gone = world.broker.add(0, 5), world.broker.add(0, 5, topic="u", broker="broker-b")
    start = _gone(world, gone)
    world.broker.brokers_away = frozenset({"broker-b"})
    world.broker.append(kept, 5)
    assert world.latest(start, after=2 * DISCOVERY_SECONDS).queues == {kept: 10, gone: 5}


def test_a_checkpoint_of_another_topic_is_refused() -> None:
    world = World(subscribe=("t", "u"))
    world.broker.add(0, 5)
    world.broker.add(0, 5, topic="u")
    foreign = MessageQueue("former", "broker-a", 0)
    with pytest.raises(
        SettingsError, match=r"the checkpoint is of former, .* give the query another checkpoint"
    ):
        world.latest(StreamOffset({foreign: 3}))
    assert world.latest(StreamOffset({})).queues


def test_a_topic_that_is_no_longer_asked_for_stays_where_it_is(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    queue, foreign = world.broker.add(0, 5), MessageQueue("former", "broker-a", 0)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        for _ in range(3):
            assert world.latest(StreamOffset({queue: 0, foreign: 3})).queues == {queue: 5, foreign: 3}
    assert caplog.text.count("no longer asked for, and left where they are: former") == 1


def test_slow_polls_take_at_most_half_of_the_time() -> None:
    world = World()
    queue = world.broker.add(0, 5)
    start = StreamOffset({queue: 0})

    def slow(queue: MessageQueue, offset: int) -> None:
        world.time += 3.0

    world.broker.fault = slow
    world.latest(start)
    calls = world.broker.calls
    world.latest(start, after=1.0)
    assert world.broker.calls == calls
    world.latest(start, after=6.0)
    assert world.broker.calls > calls


def test_ten_thousand_queues_make_one_batch() -> None:
    world = World(max_offsets=15_000, group_id="g")
    broker, queues = many_queues()
    world.broker.queues_ = broker.queues_
    start = StreamOffset(dict.fromkeys(queues, 0), initial=True)
    end = world.latest(start)
    assert sum(end.queues.values()) == 15_000
    assert min(end.queues.values()) == 1
    assert StreamOffset.from_json(end.to_json()) == end
    assert len(spans(start, end)) == 10_000
    world.follower.report(StreamOffset(end.queues))
    assert world.broker.commits == end.queues
    moved = dict(end.queues) | {queues[0]: 2, queues[1]: 2}
    calls = world.broker.calls
    world.follower.report(StreamOffset(moved))
    assert world.broker.calls - calls <= 2


def test_a_queue_that_lost_its_tail_is_an_error() -> None:
    world = World()
    queue = world.broker.add(0, 5)
    with pytest.raises(
        DataLossError, match="offsets 5 to 7 cannot be read, the queue ends at 5: its broker lost"
    ):
        world.latest(StreamOffset({queue: 8}))


def test_a_queue_that_seems_to_have_lost_its_tail_is_looked_at_again() -> None:
    world = World()
    queue = world.broker.add(0, 5)
    looks: list[int] = []

    def grow(_: MessageQueue, offset: int) -> None:
        looks.append(offset)
        if len(looks) == 3:
            world.broker.append(queue, 5)

    world.broker.fault = grow
    assert world.latest(StreamOffset({queue: 8})).queues == {queue: 10}


def test_a_lost_tail_is_passed_over_when_asked_to(caplog: pytest.LogCaptureFixture) -> None:
    world = World(fail_on_data_loss=False)
    queue = world.broker.add(0, 5)
    start = StreamOffset({queue: 8})
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        for _ in range(5):
            assert world.latest(start) is start
    assert caplog.text.count("offsets 5 to 7 cannot be read") == 1
    world.broker.append(queue, 5)
    assert world.latest(start).queues == {queue: 10}


def test_progress_is_reported_once_and_never_fails(caplog: pytest.LogCaptureFixture) -> None:
    world = World(group_id="g")
    queue = world.broker.add(0, 5)
    world.follower.report(StreamOffset({queue: 1}, initial=True))
    assert world.broker.commits == {}
    world.follower.report(StreamOffset({queue: 3}))
    calls = world.broker.calls
    world.follower.report(StreamOffset({queue: 3}))
    assert world.broker.calls == calls
    assert world.broker.commits == {queue: 3}
    world.broker.fault = lambda queue, offset: ConnectionLostError("gone")
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        world.follower.report(StreamOffset({queue: 4}))
    assert "progress of group g is not reported" in caplog.text
    without = World()
    without.follower.report(StreamOffset({queue: 3}))
    assert without.broker.calls == 0
