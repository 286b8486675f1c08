from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from tests.columnar.records import record
from tests.spark.stubs import StubBroker, StubQueue, many_queues
from tests.support import about

from sparrowmq.core.errors import BrokerError, ConnectionLostError, SettingsError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster.faults import DataLossError
from sparrowmq.spark.offsets.losses import GoneQueue, UnreadLoss
from sparrowmq.spark.offsets.offsets import Span, StreamOffset, spans
from sparrowmq.spark.offsets.resets import OffsetReset
from sparrowmq.spark.options.table import DISCOVERY_SECONDS, ReadOptions
from sparrowmq.spark.read import follow, marks
from sparrowmq.spark.read.follow import Follower
from sparrowmq.spark.read.lookup import Lookup
from sparrowmq.spark.read.missing import Absence

T = TypeVar("T")

STORED_MS = 1_700_000_000_001
"""When the first message of a stub's queue was stored."""
OPTIONS = ReadOptions(name_server="stub:1", subscribe=("t",), retries=1, retry_interval=0.001)


class World:
    """A stub cluster, a clock by hand, and a follower."""

    def __init__(self, **options: Any) -> None:
        self.broker = StubBroker()
        self.time = 100.0
        self.options = replace(OPTIONS, **options)
        self.clock = STORED_MS / 1000 + 600.0
        self.restart()

    def restart(self) -> None:
        """Another driver's follower, which knows nothing yet."""
        self.lookup = Lookup(self.broker, self.broker.admin, self.options, lambda: self.time)
        self.follower = Follower(self.ask, self.options, lambda: self.time, lambda: self.clock)

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


def test_a_minimum_is_awaited_for_a_limited_time() -> None:
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
    with pytest.raises(BrokerError, check=about(code=16, remark="no permission")):
        world.latest(StreamOffset({queue: 0}))


def _gone(world: World, queue: MessageQueue) -> StreamOffset:
    """A start after the other topic's broker answered, and then the topic was deleted."""
    start = StreamOffset(dict.fromkeys(world.broker.queues_, 0))
    world.latest(start)
    del world.broker.queues_[queue]
    return start


def unread(*gone: GoneQueue) -> Callable[[BaseException], bool]:
    """The check for a loss of the unread messages in these queues."""

    def check(error: BaseException) -> bool:
        assert isinstance(error, DataLossError) and isinstance(error.value, UnreadLoss)
        return error.value.queues == gone and f"acceptLoss={error.value.token}" in str(error)

    return check


FIVE_UNREAD = unread(GoneQueue(MessageQueue("u", "broker-a", 0), 0, 5, Absence.DELETED.value))


def test_a_deleted_topic_with_unread_messages_ends_the_query() -> None:
    for options in ({"subscribe": ("t", "u")}, {"subscribe": (), "subscribe_pattern": "[tu]"}):
        world = World(**options)
        world.broker.add(0, 5)
        start = _gone(world, world.broker.add(0, 5, topic="u"))
        with pytest.raises(DataLossError, check=FIVE_UNREAD):
            world.latest(start, after=2 * DISCOVERY_SECONDS)


def test_a_deleted_topic_is_passed_over_when_asked_to(caplog: pytest.LogCaptureFixture) -> None:
    world = World(subscribe=("t", "u"), fail_on_data_loss=False)
    kept, gone = world.broker.add(0, 5), world.broker.add(0, 5, topic="u")
    start = _gone(world, gone)
    world.broker.append(kept, 5)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        end = world.latest(start, after=2 * DISCOVERY_SECONDS)
        assert end.queues == {kept: 10, gone: 5} and spans(start, end) == [Span(kept, 0, 10)]
        for _ in range(3):
            assert world.latest(end, after=2 * DISCOVERY_SECONDS) is end
    assert caplog.text.count("u/broker-a/0 offsets 0 to 4 (its topic was deleted)") == 1


@pytest.mark.parametrize("is_restart", [False, True])
def test_a_topic_that_was_read_to_its_end_may_be_deleted(
    is_restart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(subscribe=(), subscribe_pattern="[tu]")
    kept, gone = world.broker.add(0, 5), world.broker.add(0, 5, topic="u")
    end = world.latest(StreamOffset({kept: 0, gone: 0}))
    del world.broker.queues_[gone]
    world.broker.append(kept, 5)
    if is_restart:
        world.restart()
        end = StreamOffset.from_json(end.to_json())
        world.follower.fix_target()
    following = world.latest(end, after=2 * DISCOVERY_SECONDS)
    assert following.queues == {kept: 10, gone: 5} and spans(end, following) == [Span(kept, 5, 10)]
    assert following.ends == {kept: 10, gone: 5} and following.seen_ms == int(1000 * world.clock)
    world.latest(following, after=2 * DISCOVERY_SECONDS)
    (warning,) = warnings_of(caplog)
    assert warning.startswith("queues are gone that were read to their last known end: u/broker-a/0 (")


def test_of_an_offset_without_ends_it_is_not_known_whether_a_deleted_topic_was_read() -> None:
    world = World(subscribe=(), subscribe_pattern="[tu]")
    kept, gone = world.broker.add(0, 5), MessageQueue("u", "broker-a", 0)
    start = StreamOffset({kept: 5, gone: 5})
    with pytest.raises(DataLossError, check=unread(GoneQueue(gone, 5, None, Absence.DELETED.value))):
        world.latest(start)
    end = accepting(world, start).latest(start)
    assert end.queues == start.queues and end.ends[gone] == 5
    world.restart()
    assert world.latest(end, after=2 * DISCOVERY_SECONDS) is end, "it is settled"


def accepting(world: World, start: StreamOffset) -> World:
    """The same cluster, read with the token that the error gives."""
    with pytest.raises(DataLossError) as caught:
        world.latest(start, after=2 * DISCOVERY_SECONDS)
    token = str(caught.value).split("acceptLoss=")[1].split()[0]
    other = World(subscribe=(), subscribe_pattern="[tu]", accept_loss=frozenset({token}))
    other.broker, other.clock = world.broker, world.clock
    other.restart()
    return other


def test_a_loss_is_accepted_once_and_no_later_one_with_it(caplog: pytest.LogCaptureFixture) -> None:
    world = World(subscribe=(), subscribe_pattern="[tu]")
    kept, gone = world.broker.add(0, 5), world.broker.add(0, 5, topic="u")
    other = world.broker.add(1, 5, topic="u")
    start = world.latest(StreamOffset({kept: 0, gone: 0, other: 0}))
    world.broker.append(gone, 3)
    world.broker.retired.add(gone)
    taken = accepting(world, start)
    end = taken.latest(start)
    assert end.queues == {kept: 5, gone: 8, other: 5} and spans(start, end) == []
    assert "continuing without them because of acceptLoss=" in caplog.text
    later = StreamOffset.from_json(end.to_json())
    taken.broker.append(other, 3)
    taken.broker.retired.add(other)
    taken.restart()
    with pytest.raises(DataLossError, check=unread(GoneQueue(other, 5, 8, Absence.RETIRED.value))):
        taken.latest(later)


def test_a_queue_that_nobody_can_read_any_more_ends_the_query_with_what_is_unread() -> None:
    world = World()
    kept, retired = world.broker.add(0, 5), world.broker.add(3, 20)
    start = StreamOffset({kept: 5, retired: 10})
    world.broker.retired.add(retired)
    for has_target in (False, True):
        world.restart()
        if has_target:
            world.follower.fix_target()
        with pytest.raises(DataLossError, check=unread(GoneQueue(retired, 10, 20, Absence.RETIRED.value))):
            world.latest(start)
    world.broker.retired.clear()
    world.restart()
    assert world.latest(start).queues == {kept: 5, retired: 20}


def test_a_queue_that_was_read_to_its_end_may_be_retired_and_come_back() -> None:
    world = World()
    kept, retired = world.broker.add(0, 5), world.broker.add(3, 20)
    start = StreamOffset({kept: 0, retired: 20})
    world.broker.retired.add(retired)
    end = world.latest(start)
    assert end.queues == {kept: 5, retired: 20}
    world.broker.retired.clear()
    world.broker.append(retired, 2)
    following = world.latest(end, after=2 * DISCOVERY_SECONDS)
    assert spans(end, following) == [Span(retired, 20, 22)]


def test_a_queue_that_only_the_name_server_lacks_is_read() -> None:
    world = World()
    kept, hidden = world.broker.add(0, 5), world.broker.add(3, 20)
    world.broker.unrouted.add(hidden)
    start = StreamOffset({kept: 0, hidden: 10})
    assert world.latest(start).queues == {kept: 5, hidden: 20}
    world.restart()
    world.follower.fix_target()
    assert world.latest(start).queues == {kept: 5, hidden: 20}


def test_a_batch_that_runs_again_reads_nothing_of_a_deleted_topic() -> None:
    world = World(subscribe=("t", "u"), fail_on_data_loss=False)
    world.broker.add(0, 5)
    gone = world.broker.add(0, 5, topic="u")
    start, end = planned(world, gone)
    assert world.follower.replaced(start, end) == {gone}
    assert spans(end, world.latest(end)) == []
    careful = World(subscribe=("t", "u"))
    careful.broker.add(0, 5)
    start, end = planned(careful, careful.broker.add(0, 5, topic="u"))
    with pytest.raises(DataLossError, check=FIVE_UNREAD):
        careful.follower.replaced(start, end)
    careful.restart()
    assert careful.follower.replaced(end, end) == {gone}, "all was read"


def planned(world: World, gone: MessageQueue) -> tuple[StreamOffset, StreamOffset]:
    """A batch that was planned before a topic was deleted and the driver started again."""
    start = StreamOffset(dict.fromkeys(world.broker.queues_, 0))
    end = world.latest(start)
    del world.broker.queues_[gone]
    world.restart()
    return start, StreamOffset.from_json(end.to_json())


def test_a_topic_whose_broker_is_away_is_waited_for() -> None:
    world = World(subscribe=("t", "u"))
    kept, gone = world.broker.add(0, 5), world.broker.add(0, 5, topic="u", broker="broker-b")
    start = _gone(world, gone)
    world.broker.brokers_away = frozenset({"broker-b"})
    world.broker.append(kept, 5)
    assert world.latest(start, after=2 * DISCOVERY_SECONDS).queues == {kept: 10, gone: 0}
    world.broker.brokers_away = frozenset()
    world.broker.add(0, 7, topic="u", broker="broker-b")
    assert world.latest(start, after=2 * DISCOVERY_SECONDS).queues == {kept: 10, gone: 7}


def without_broker_b(world: World) -> World:
    """A driver that starts again, with a broker that is lost for good."""
    world.broker.brokers_away = frozenset({"broker-b"})
    for queue in [queue for queue in world.broker.queues_ if queue.broker_name == "broker-b"]:
        world.broker.unrouted.add(queue)
    other = World(lost_brokers=world.broker.brokers_away)
    other.broker, other.clock = world.broker, world.clock
    other.restart()
    return other


def test_a_run_to_the_current_ends_does_not_leave_out_a_broker_that_is_away() -> None:
    world = World()
    kept, away = world.broker.add(0, 5), world.broker.add(0, 5, broker="broker-b")
    start = world.latest(StreamOffset({kept: 0, away: 0}))
    without_broker_b(world)
    world.restart()
    assert world.latest(start) is start, "without a target it waits"
    world.restart()
    world.follower.fix_target()
    with pytest.raises(TransportError, check=about(value="broker-b")):
        world.latest(start)
    passing = careless(world)
    passing.follower.fix_target()
    assert passing.latest(start) is start


@pytest.mark.parametrize("has_target", [False, True])
def test_a_query_goes_on_without_a_lost_broker_and_reads_it_if_it_returns(
    has_target: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(max_offsets=8)
    kept, away = world.broker.add(0, 5), world.broker.add(0, 9, broker="broker-b")
    start = StreamOffset.from_json(world.latest(StreamOffset({kept: 0, away: 0})).to_json())
    read_to = start.queues[away]
    world.broker.append(kept, 4)
    passing = without_broker_b(world)
    if has_target:
        passing.follower.fix_target()
    end = passing.latest(start)
    assert end.queues == {kept: 9, away: read_to} and end.seen_ms == int(1000 * world.clock)
    (warning,) = warnings_of(caplog)
    assert warning.startswith("continuing without broker-b because of option lostBrokers; 1 queues stay")
    assert (
        f"{9 - read_to} unread messages cannot be read any more: t/broker-b/0 offsets {read_to} to 8"
        in warning
    )
    world.broker.brokers_away, world.broker.unrouted = frozenset(), set()
    world.restart()
    assert spans(end, world.latest(end)) == [Span(away, read_to, 9)]


def test_commits_to_a_group_leave_out_queues_that_nobody_can_read() -> None:
    world = World(subscribe=("t", "u"), group_id="g", commit_to_group="always")
    kept, gone = world.broker.add(0, 5), world.broker.add(0, 5, topic="u")
    lost = world.broker.add(0, 5, broker="broker-b")
    end = world.latest(StreamOffset({kept: 0, gone: 0, lost: 0}))
    del world.broker.queues_[gone]
    without = frozenset({"broker-b"})
    passing = World(subscribe=("t", "u"), group_id="g", commit_to_group="always", lost_brokers=without)
    passing.broker, passing.clock = world.broker, world.clock
    passing.restart()
    assert passing.latest(end) is end
    passing.follower.report(end)
    assert world.broker.commits == {kept: 5}


def test_a_batch_that_runs_again_leaves_out_a_lost_broker_and_its_offsets_stay() -> None:
    world = World()
    kept, away = world.broker.add(0, 5), world.broker.add(0, 9, broker="broker-b")
    start = StreamOffset({kept: 2, away: 3})
    end = StreamOffset.from_json(world.latest(start).to_json())
    passing = without_broker_b(world)
    assert passing.follower.replaced(start, end) == {away}
    following = passing.latest(end)
    assert following.queues == {kept: 5, away: 3} and spans(end, following) == []
    assert following.ends[away] == 9 and away not in following.marks
    following = StreamOffset.from_json(following.to_json())
    world.broker.brokers_away, world.broker.unrouted = frozenset(), set()
    world.restart()
    assert spans(following, world.latest(following)) == [Span(away, 3, 9)]


def test_a_checkpoint_of_another_topic_is_refused() -> None:
    world = World(subscribe=("t", "u"))
    world.broker.add(0, 5)
    world.broker.add(0, 5, topic="u")
    foreign = MessageQueue("former", "broker-a", 0)
    with pytest.raises(SettingsError, check=about(setting="checkpointLocation", value=["former"])):
        world.latest(StreamOffset({foreign: 3}))
    assert world.latest(StreamOffset({})).queues


def test_a_topic_that_is_no_longer_subscribed_keeps_its_offsets(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    queue, foreign = world.broker.add(0, 5), MessageQueue("former", "broker-a", 0)
    with caplog.at_level(logging.WARNING, "sparrowmq.spark"):
        for _ in range(3):
            assert world.latest(StreamOffset({queue: 0, foreign: 3})).queues == {queue: 5, foreign: 3}
    assert caplog.text.count("no longer subscribed, and kept at their offsets: former") == 1


def test_slow_polls_take_at_most_half_of_the_time() -> None:
    world = World()
    queue = world.broker.add(0, 5)
    start = StreamOffset({queue: 0})

    def slow(queue: MessageQueue, offset: int) -> None:
        world.time += 3.0

    world.broker.fault = slow
    end = world.latest(start)
    calls = world.broker.calls
    world.latest(end, after=1.0)
    assert world.broker.calls == calls
    world.latest(end, after=6.0)
    assert world.broker.calls > calls


def test_ten_thousand_queues_make_one_batch() -> None:
    world = World(max_offsets=15_000, group_id="g", commit_to_group="always")
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
    with pytest.raises(DataLossError, check=about(value=Span(queue, 5, 8))):
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


def read(world: World, count: int) -> tuple[MessageQueue, StreamOffset]:
    """A queue that was read to its end, and the offset that says so, from a checkpoint."""
    queue = world.broker.add(0, count)
    end = world.latest(StreamOffset({queue: 0}))
    assert end.queues == {queue: count} and end.seen_ms == int(1000 * world.clock)
    return queue, StreamOffset.from_json(end.to_json())


def made_again(world: World, queue: MessageQueue, count: int) -> None:
    """An hour later the topic is deleted and made again, with `count` messages."""
    world.clock += 3600.0
    world.broker.queues_[queue] = StubQueue(
        [record(index, store_timestamp=STORED_MS + 3_600_000) for index in range(count)]
    )


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [found.message for found in caplog.records if found.levelno == logging.WARNING]


def test_a_topic_made_again_is_read_from_its_beginning(caplog: pytest.LogCaptureFixture) -> None:
    world = World(fail_on_data_loss=False, max_offsets=3)
    queue, start = read(world, 3)
    made_again(world, queue, 2)
    end = world.latest(start)
    assert spans(start, end) == [Span(queue, 0, 2)]
    assert warnings_of(caplog) == [
        f"queue {queue} was read up to offset 3 and has offsets 0 to 1 now: its topic was deleted and "
        f"recreated, and begins at offset 0; continuing at offset 0 because of failOnDataLoss=false"
    ]
    world.broker.append(queue, 4)
    following = world.latest(end)
    assert spans(end, following) == [Span(queue, 2, 5)] and following.since == {}
    assert len(warnings_of(caplog)) == 1


def test_a_topic_made_again_and_still_empty_is_read_from_its_first_message() -> None:
    world = World(fail_on_data_loss=False)
    queue, start = read(world, 3)
    made_again(world, queue, 0)
    end = world.latest(start)
    assert end.queues == {queue: 0} and not any(map(len, spans(start, end)))
    world.broker.append(queue, 50)
    assert spans(end, world.latest(end)) == [Span(queue, 0, 50)]


def test_a_topic_made_again_waits_for_a_minimum_of_messages(caplog: pytest.LogCaptureFixture) -> None:
    world = World(fail_on_data_loss=False, min_offsets=5, max_trigger_delay=1e9)
    queue, start = read(world, 5)
    made_again(world, queue, 2)
    for _ in range(3):
        assert world.latest(start) is start
    world.broker.append(queue, 3)
    assert spans(start, world.latest(start)) == [Span(queue, 0, 5)]


@pytest.mark.parametrize("count", [3, 40])
def test_a_topic_made_again_that_passed_the_place_meanwhile_is_found_at_the_next_start(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(fail_on_data_loss=False, max_offsets=100)
    queue, start = read(world, 3)
    made_again(world, queue, count)
    world.restart()
    end = world.latest(start)
    assert spans(start, end) == [Span(queue, 0, count)]
    world.restart()
    assert world.latest(StreamOffset.from_json(end.to_json())).queues == end.queues
    assert len(warnings_of(caplog)) == 1
    careful = World()
    careful.broker, careful.clock = world.broker, world.clock
    careful.lookup = Lookup(careful.broker, careful.broker.admin, careful.options, lambda: careful.time)
    with pytest.raises(DataLossError, check=about(value=OffsetReset(queue, 3, 0, count, recreated=True))):
        careful.latest(start)


def test_the_last_message_of_a_batch_is_compared_before_the_next() -> None:
    world = World()
    queue, idle = world.broker.add(0, 5), world.broker.add(1, 2)
    end = world.latest(StreamOffset({queue: 0, idle: 2}, initial=True))
    assert world.broker.pulls == [(queue, 4, 1)]
    world.broker.append(queue, 5)
    assert world.latest(end).queues == {queue: 10, idle: 2}
    assert world.broker.pulls[1:] == [(queue, 9, 1), (queue, 4, 1)]
    assert set(world.broker.asked) == {"master"}


@pytest.mark.parametrize("count", [0, 2, 40])
def test_a_batch_that_runs_again_reads_nothing_of_a_topic_made_again(
    count: int, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(fail_on_data_loss=False)
    queue, end = read(world, 3)
    other = world.broker.add(1, 3)
    end = world.latest(end, after=DISCOVERY_SECONDS)
    assert world.follower.replaced(end, end) == frozenset()
    made_again(world, queue, count)
    world.restart()
    assert world.follower.replaced(end, end) == {queue}, "the other one is read as planned"
    following = [span for span in spans(end, world.latest(end)) if len(span)]
    assert following == ([Span(queue, 0, count)] if count else []) and other in end.queues
    careful = World()
    careful.broker, careful.clock = world.broker, world.clock
    careful.lookup = Lookup(careful.broker, careful.broker.admin, careful.options, lambda: careful.time)
    lost = Span(queue, count, 3) if count < 3 else OffsetReset(queue, 3, 0, count, recreated=True)
    with pytest.raises(DataLossError, check=about(value=lost)):
        careful.follower.replaced(end, end)


def test_a_queue_that_only_grew_is_the_same_at_the_next_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World(fail_on_data_loss=False)
    queue, start = read(world, 3)
    world.broker.append(queue, 2)
    world.clock += 3600.0
    world.restart()
    assert spans(start, world.latest(start)) == [Span(queue, 3, 5)]
    assert not warnings_of(caplog)


def test_a_lost_tail_is_passed_over_and_nothing_comes_twice(caplog: pytest.LogCaptureFixture) -> None:
    world = World(fail_on_data_loss=False)
    queue, start = read(world, 8)
    world.clock += 3600.0
    world.broker.truncate(queue, 5)
    end = world.latest(start)
    assert end.queues == {queue: 5} and not any(map(len, spans(start, end)))
    (warning,) = warnings_of(caplog)
    assert "was read up to offset 8 and has offsets 0 to 4 now: its broker lost the end" in warning
    assert "continuing at offset 5" in warning
    world.broker.append(queue, 5)
    assert spans(end, world.latest(end)) == [Span(queue, 5, 10)]


def test_a_lost_queue_whose_broker_is_away_is_looked_at_later() -> None:
    world = World(fail_on_data_loss=False)
    queue, start = read(world, 8)
    made_again(world, queue, 2)
    away = [True]
    world.broker.fault = lambda queue, offset: ConnectionLostError("gone") if away and offset == 0 else None
    assert world.latest(start) is start
    away.clear()
    assert spans(start, world.latest(start)) == [Span(queue, 0, 2)]


def test_a_time_with_a_broker_away_is_not_one_when_all_was_seen() -> None:
    world = World()
    queue, start = read(world, 3)
    other = world.broker.add(1, 3)
    both = world.latest(start, after=DISCOVERY_SECONDS)
    assert both.queues == {queue: 3, other: 3} and both.seen_ms == int(1000 * world.clock)
    seen = both.seen_ms
    world.clock += 60.0
    world.broker.fault = lambda asked, offset: ConnectionLostError("gone") if asked == other else None
    world.broker.append(queue, 1)
    assert world.latest(both).seen_ms == seen


def regrown(world: World, queue: MessageQueue, lost_at: int, count: int, seconds: int = 10) -> None:
    """The broker loses the messages from `lost_at` on, and stores `count` others some seconds later."""
    world.broker.truncate(queue, lost_at)
    later = STORED_MS + 1000 * seconds
    world.broker.queues_[queue].records += [
        record(lost_at + index, store_timestamp=later + index) for index in range(count)
    ]


def careless(world: World) -> World:
    """The same cluster, read with failOnDataLoss=false."""
    other = World(fail_on_data_loss=False)
    other.broker, other.clock = world.broker, world.clock
    other.restart()
    return other


@pytest.mark.parametrize("is_restart", [False, True])
def test_a_queue_that_lost_its_end_and_has_grown_past_it_is_an_error(
    is_restart: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    queue, start = read(world, 8)
    other = world.broker.add(1, 3)
    start = world.latest(start, after=DISCOVERY_SECONDS)
    regrown(world, queue, 5, 9)
    if is_restart:
        world.restart()
        start = StreamOffset.from_json(start.to_json())
    with pytest.raises(DataLossError, check=about(value=OffsetReset(queue, 8, 0, 14, recreated=False))):
        world.latest(start)
    passing = careless(world)
    end = passing.latest(start)
    assert spans(start, end) == [Span(queue, 8, 14)] and end.queues[other] == 3
    (warning,) = warnings_of(caplog)
    assert warning.endswith("continuing at offset 8 because of failOnDataLoss=false")
    passing.broker.append(queue, 2)
    assert spans(end, passing.latest(end)) == [Span(queue, 14, 16)]
    assert len(warnings_of(caplog)) == 1


def test_one_message_of_each_topic_and_broker_is_compared() -> None:
    world = World()
    queues = [world.broker.add(number, 5 + number) for number in range(4)]
    other = world.broker.add(0, 3, topic="t", broker="broker-b")
    end = world.latest(StreamOffset(dict.fromkeys([*queues, other], 0)))
    for queue in [*queues[:3], other]:
        world.broker.append(queue, 1)
    world.broker.pulls.clear()
    world.latest(end)
    ends, starts = world.broker.pulls[:4], world.broker.pulls[4:]
    assert [queue for queue, _, _ in ends] == [*queues[:3], other]
    assert sorted(starts) == [(queues[2], 6, 1), (other, 2, 1)], "the last one in the broker's log"


@pytest.mark.parametrize("is_expired", [False, True])
def test_if_the_newest_message_is_another_one_all_queues_are_compared(is_expired: bool) -> None:
    world = World(fail_on_data_loss=False)
    older, newer = world.broker.add(0, 5), world.broker.add(1, 9)
    start = world.latest(StreamOffset({older: 0, newer: 0}))
    regrown(world, older, 3, 5)
    if is_expired:
        world.broker.append(newer, 2)
        world.broker.delete_before(newer, 10)
    else:
        regrown(world, newer, 6, 8)
    world.broker.pulls.clear()
    end = world.latest(start)
    compared = [(queue, offset) for queue, offset, _ in world.broker.pulls]
    assert {(newer, 8), (older, 4)} <= set(compared)
    assert Span(older, 5, 8) in spans(start, end) and end.since.keys() >= {older}


def test_nothing_is_compared_where_nothing_is_known() -> None:
    world = World()
    queue, start = read(world, 8)
    regrown(world, queue, 5, 9)
    assert world.latest(replace(start, marks={})).queues == {queue: 14}, "an offset of an earlier release"
    queue, start = read(World(), 8)
    world = World()
    world.broker.add(0, 12)
    world.broker.delete_before(queue, 8)
    assert world.latest(start).queues == {queue: 12}, "the message has expired"


def test_a_loss_between_the_looks_at_end_and_start_is_found() -> None:
    world = World()
    queue, start = read(world, 8)
    world.broker.append(queue, 4)

    def fault(_: MessageQueue, offset: int) -> None:
        if offset == 11:
            world.broker.fault = lambda queue, offset: None
            regrown(world, queue, 5, 20)

    world.broker.fault = fault
    with pytest.raises(DataLossError, check=about(value=OffsetReset(queue, 8, 0, 12, recreated=False))):
        world.latest(start)


def test_a_loss_after_the_look_at_the_start_is_found_at_the_next_batch() -> None:
    world = World()
    queue, start = read(world, 8)
    world.broker.append(queue, 4)
    end = world.latest(start)
    regrown(world, queue, 10, 20)
    with pytest.raises(DataLossError, check=about(value=OffsetReset(queue, 12, 0, 30, recreated=False))):
        world.latest(end)


def test_a_new_query_compares_where_it_begins() -> None:
    world = World()
    queue = world.broker.add(0, 8)
    start = world.follower.initial()
    assert start.queues == {queue: 8}
    regrown(world, queue, 5, 9)
    with pytest.raises(DataLossError, check=about(value=OffsetReset(queue, 8, 0, 14, recreated=False))):
        world.latest(start)


def test_a_topic_made_again_is_found_while_the_query_runs(caplog: pytest.LogCaptureFixture) -> None:
    world = World(fail_on_data_loss=False)
    queue, start = read(world, 3)
    made_again(world, queue, 40)
    end = world.latest(start)
    assert spans(start, end) == [Span(queue, 0, 40)]
    assert "its topic was deleted and recreated" in warnings_of(caplog)[0]


def test_a_batch_that_runs_again_is_refused_in_a_queue_with_other_messages() -> None:
    world = World()
    queue, end = read(world, 8)
    regrown(world, queue, 5, 9)
    world.restart()
    with pytest.raises(DataLossError, check=about(value=OffsetReset(queue, 8, 0, 14, recreated=False))):
        world.follower.replaced(end, end)
    assert careless(world).follower.replaced(end, end) == frozenset(), "what is there now is read"


@pytest.mark.parametrize("offset", [7, 11])
def test_a_queue_whose_last_message_cannot_be_read_now_waits(offset: int) -> None:
    world = World()
    queue, start = read(world, 8)
    other = world.broker.add(1, 3)
    world.broker.append(queue, 4)
    world.broker.fault = lambda _, asked: ConnectionLostError("gone") if asked == offset else None
    end = world.latest(start, after=DISCOVERY_SECONDS)
    assert end.queues == {queue: 8, other: 3}
    assert world.latest(end) is end
    world.broker.fault = lambda queue, offset: None
    assert world.latest(end).queues == {queue: 12, other: 3}


def test_a_fault_that_does_not_pass_is_raised() -> None:
    world = World()
    queue = world.broker.add(0, 5)
    world.broker.fault = lambda _, offset: BrokerError(16, "no permission") if offset == 4 else None
    with pytest.raises(BrokerError, check=about(code=16, remark="no permission")):
        world.latest(StreamOffset({queue: 0}))


def test_a_target_is_waited_for_as_long_as_a_broker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_HELD_PAUSE", 0.0)
    world = World(broker_timeout=60.0)
    queue = world.broker.add(0, 5)
    asked: list[int] = []

    def fault(_: MessageQueue, offset: int) -> ConnectionLostError | None:
        if offset != 4:
            return None
        world.time += 10.0
        asked.append(offset)
        return ConnectionLostError("gone") if len(asked) < 9 else None

    world.follower.fix_target()
    world.broker.fault = fault
    with pytest.raises(TransportError, check=about(value=[queue], limit=60.0)):
        world.latest(StreamOffset({queue: 0}))
    assert len(asked) == 6
    assert world.latest(StreamOffset({queue: 0})).queues == {queue: 5}


def test_a_target_becomes_shorter_with_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "_HELD_PAUSE", 0.0)
    world = World()
    queue, start = read(world, 3)
    world.broker.append(queue, 6)
    world.follower.fix_target()
    world.broker.truncate(queue, 5)
    end = world.latest(start)
    assert end.queues == {queue: 5}
    world.broker.append(queue, 1)
    assert world.latest(end) is end


def test_of_very_many_queues_a_sample_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "MARKED_MAX", 3)
    world = World()
    queues = [world.broker.add(number, 2) for number in range(8)]
    start = StreamOffset(dict.fromkeys(queues, 0))
    end = world.latest(start)
    assert set(end.marks) == {queues[0], queues[3], queues[6]}
    assert len(world.broker.pulls) == 3
    world.broker.pulls.clear()
    assert len(world.follower.initial().marks) == 3
    world.restart()
    world.follower.replaced(end, end)
    assert len(world.broker.pulls) == 6 + 1, "and the oldest one of the topic"
