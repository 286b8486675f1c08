"""Live knobs in consumers that run: what a coordinator says counts from the next message, pull or try on."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest
from tests.client import fake
from tests.client.consuming import PULL, SEND_BACK, committed, consumer_of, flow, numbers, put
from tests.client.fake import NOW_MS, FakeCluster, answer
from tests.support import run, until

from sparrowmq.client import aging
from sparrowmq.client.knobs import Changed, LiveKnobs
from sparrowmq.client.outcomes import Retry
from sparrowmq.client.push_consumer import PushConsumer
from sparrowmq.client.settings import ConsumerSettings, PullSettings
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.knobs import Place, Setting, Unable
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.names import retry_topic

ALL = Place()
QUEUE = MessageQueue("T", "broker-a", 0)


def live(*told: Setting, **own: Any) -> LiveKnobs:
    found = LiveKnobs(ConsumerSettings(**own), lambda: 1000)
    found.take(1, told)
    return found


def tell(consumer: PushConsumer, **values: Any) -> None:
    """What its coordinator would tell a running member."""
    member = consumer._member
    assert member is not None
    settings = [Setting(name, ALL, value) for name, value in values.items()]
    member.apply_knobs(member.knobs.revision + 1, settings)


class Handlers:
    """Counts handlers at work, and keeps them until `gate` is open."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.sizes: list[int] = []
        self.open = threading.Event()
        self._lock = threading.Lock()

    def _begin(self, argument: Any) -> None:
        with self._lock:
            self.sizes.append(len(argument) if isinstance(argument, list) else 0)
            self.running += 1
            self.most = max(self.most, self.running)

    def plain(self, argument: Any) -> None:
        self._begin(argument)
        self.open.wait(20)
        self.running -= 1

    async def coroutine(self, argument: Any) -> None:
        self._begin(argument)
        await until(self.open.is_set)
        self.running -= 1


def test_without_a_coordinator_s_word_the_own_settings_count() -> None:
    knobs = live(threads=3, batch=2, consume_timeout=7.0, max_reconsume_times=5, pull_interval=0.5)
    assert (knobs.threads, knobs.batch, knobs.takes_lists) == (3, 2, True)
    assert (knobs.consume_timeout, knobs.max_reconsume_times) == (7.0, 5)
    assert (knobs.pull("T").batch, knobs.pull("T").behind, knobs.pull("T").interval) == (32, 512, 0.5)
    assert (knobs.retry_seconds(3), knobs.is_paused(QUEUE), knobs.tags, knobs.text) == (None, False, {}, "")


def test_what_is_told_counts_and_what_is_not_told_any_more_is_the_own_again() -> None:
    knobs = LiveKnobs(ConsumerSettings(threads=3), lambda: 1000)
    assert knobs.pull("T").delay == 0
    told = [Setting("threads", ALL, 8), Setting("delay", Place("T"), 2), Setting("pull_batch", ALL, 5)]
    assert knobs.take(9, told) == Changed(True, frozenset({"T"}), frozenset(), [])
    assert (knobs.revision, knobs.threads, knobs.pull("T").delay) == (9, 8, 2.0)
    assert (knobs.pull("T").batch, knobs.pull("T").behind) == (5, 5), "not more while it is behind"
    assert (knobs.pull("U").delay, knobs.pull(retry_topic("g")).delay) == (0.0, 0.0)
    assert knobs.text == "threads=8 (*), delay=2 (T), pull_batch=5 (*)"
    assert "threads=8" in repr(knobs)
    assert knobs.take(10, told) == Changed(False, frozenset(), frozenset(), [])
    changed = knobs.take(11, [])
    assert (changed.threads, changed.pulls >= {"T"}) == (True, True)
    assert (knobs.threads, knobs.pull("T").batch, knobs.pull("T").behind) == (3, 32, 512)


def test_whole_numbers_in_settings_do_not_cut_what_is_told() -> None:
    knobs = live(Setting("consume_timeout", ALL, 0.5), consume_timeout=60)
    assert knobs.consume_timeout == 0.5
    told = [Setting("pull_interval", ALL, 0.25), Setting("retry_delay", ALL, 2), Setting("threads", ALL, 3)]
    knobs.take(2, told)
    assert (knobs.pull("T").interval, knobs.retry_seconds(0), knobs.threads) == (0.25, 2.0, 3)
    assert isinstance(knobs.threads, int)


def test_pauses_end_by_the_coordinator_s_clock_however_wrong_the_own_is() -> None:
    wall, elapsed = [9_000_000], [50.0]
    knobs = LiveKnobs(ConsumerSettings(), lambda: wall[0], lambda: elapsed[0])
    knobs.take(1, [Setting("pause", ALL, True, until=1_060_000)], 1_000_000)
    assert knobs.is_paused(QUEUE), "an hour too fast, it would be over"
    wall[0] = 0
    elapsed[0] += 59.9
    assert knobs.is_paused(QUEUE)
    elapsed[0] += 0.2
    assert not knobs.is_paused(QUEUE), "an hour too slow, it would last"
    knobs.take(2, [Setting("pause", ALL, True, until=1)])
    assert knobs.is_paused(QUEUE), "by the own one when the coordinator does not say what time it has"


def test_a_pull_consumer_s_own_values_are_those_of_its_settings() -> None:
    knobs = LiveKnobs(PullSettings(pull_batch=7, max_reconsume_times=3), lambda: 1000)
    assert (knobs.pull("T").batch, knobs.pull("T").told, knobs.batch_max) == (7, False, 7)
    assert (knobs.pull("T").interval, knobs.max_reconsume_times) == (0.0, 3)
    knobs.take(1, [Setting("pull_batch", ALL, 5), Setting("pull_batch", Place("T"), 20)])
    assert (knobs.pull("T").batch, knobs.pull("U").batch, knobs.pull("T").told) == (20, 5, True)
    assert knobs.batch_max == 20


def test_whoever_sleeps_is_woken_by_other_knobs() -> None:
    async def main() -> None:
        knobs = LiveKnobs(ConsumerSettings(), lambda: 1000)
        sleeping = [asyncio.ensure_future(knobs.sleep(seconds)) for seconds in (3600, math.inf)]
        await asyncio.sleep(0)
        knobs.take(1, [])
        await asyncio.wait_for(asyncio.gather(*sleeping), 20)
        await knobs.sleep(0.001)
        knobs.take(2, [])

    run(main())


@pytest.mark.parametrize(
    ("own", "handler", "unable"),
    [
        ({}, True, {"batch": Unable.SINGLE}),
        ({"batch": 2}, True, {}),
        ({"batch": 2, "ordered": True}, True, {"consume_timeout": Unable.ORDERED}),
        ({}, False, {"batch": Unable.ITERATED, "threads": Unable.ITERATED}),
    ],
)
def test_a_member_says_which_knobs_it_cannot_go_by_and_why(
    own: dict[str, Any], handler: bool, unable: dict[str, Unable], caplog: pytest.LogCaptureFixture
) -> None:
    async def test(cluster: FakeCluster) -> None:
        async with consumer_of(cluster, **own) as consumer:
            member = consumer._member
            assert member is not None
            consumer.subscribe("T", handler=print if handler else None)
            assert member.unable() == {}, "nothing is set"
            tell(consumer, threads=4, batch=5, consume_timeout=60.0, retries=1)
            assert member.unable() == unable
            shown = consumer.running_info().properties.get("liveKnobsNotFollowed", "")
            assert shown == "; ".join(f"{name}: {why.text}" for name, why in sorted(unable.items()))
            told = [one.getMessage() for one in caplog.records if "cannot go by knobs" in one.getMessage()]
            assert len(told) == bool(unable)
            member.apply_knobs(9, [], 0, ["thoughts"])
            assert member.unable() == {"thoughts": Unable.UNKNOWN}

    flow(test)


def test_retries_are_not_held_up_by_a_delay_of_all() -> None:
    knobs = live(Setting("delay", ALL, 2))
    assert (knobs.pull("T").delay, knobs.pull(retry_topic("g")).delay) == (2.0, 0.0)


def test_a_batch_is_for_handlers_that_take_lists() -> None:
    assert live(Setting("batch", ALL, 20)).batch == 1
    assert live(Setting("batch", ALL, 20), batch=2).batch == 20
    knobs = live(Setting("batch", ALL, 1), batch=2)
    assert (knobs.batch, knobs.takes_lists) == (1, True)


@pytest.mark.parametrize(
    ("place", "until", "paused"),
    [(ALL, 0, True), (ALL, 1001, True), (ALL, 1000, False), (Place("T"), 0, True), (Place("U"), 0, False),
     (Place("T", 0), 0, True), (Place("T", 1), 0, False), (Place("T", 0, "broker-a"), 0, True),
     (Place("T", 0, "broker-b"), 0, False)],
)  # fmt: skip
def test_pauses_of_groups_topics_and_queues_end_by_themselves(place: Place, until: int, paused: bool) -> None:
    assert live(Setting("pause", place, True, until)).is_paused(QUEUE) == paused


def test_tries_come_later_each_time() -> None:
    knobs = live(Setting("retry_delay", ALL, 2), Setting("retry_growth", ALL, 3))
    assert [knobs.retry_seconds(tries) for tries in (0, 1, 2)] == [2, 6, 18]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_more_handlers_work_at_once(kind: str) -> None:
    async def test(cluster: FakeCluster) -> None:
        handlers = Handlers()
        async with consumer_of(cluster, threads=2) as consumer:
            consumer.subscribe("T", handler=getattr(handlers, kind))
            await until(lambda: handlers.running == 2)
            tell(consumer, threads=8)
            await until(lambda: handlers.running == 8)
            handlers.open.set()
            await until(lambda: len(handlers.sizes) == 60)

    flow(test, 60)


def test_running_handlers_end_and_then_never_more_run_than_the_knob_says() -> None:
    async def test(cluster: FakeCluster) -> None:
        lock, work, gate = threading.Lock(), [0, 0, 0], threading.Semaphore(0)

        def handle(message: ReceivedMessage) -> None:
            with lock:
                work[0] += 1
                work[1] = max(work[1], work[0])
            gate.acquire(timeout=20)
            with lock:
                work[0] -= 1
                work[2] += 1

        async with consumer_of(cluster, threads=8) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: work[0] == 8)
            tell(consumer, threads=2)
            gate.release(8)
            await until(lambda: work[2] == 8)
            await until(lambda: work[0] == 2)
            with lock:
                work[1] = work[0]
            gate.release(200)
            await until(lambda: work[2] == 60)
            assert work[1] <= 2

    flow(test, 60)


def test_ordered_handlers_become_fewer_while_their_queues_are_not_empty() -> None:
    async def test(cluster: FakeCluster) -> None:
        work = [0, 0, 0]

        async def handle(message: ReceivedMessage) -> None:
            work[0] += 1
            work[1] = max(work[1], work[0])
            work[2] += 1
            await asyncio.sleep(0.001)
            work[0] -= 1

        async with consumer_of(cluster, threads=4, ordered=True) as consumer:
            consumer.subscribe("T", handler=handle)
            await until(lambda: work[1] == 4)
            tell(consumer, threads=1)
            await until(lambda: work[0] <= 1)
            await until(lambda: len(consumer._member.service._active) <= 1)  # type: ignore[union-attr]
            work[1] = 0
            done = work[2]
            await until(lambda: work[2] > done + 20)
            assert work[1] == 1
            tell(consumer, threads=4)
            await until(lambda: work[1] > 1)

    flow(test, 4000, queues=4)


@pytest.mark.parametrize(("kind", "ordered"), [("plain", False), ("coroutine", False), ("plain", True)])
def test_the_next_calls_get_as_many_messages_as_the_knob_says(kind: str, ordered: bool) -> None:
    async def test(cluster: FakeCluster) -> None:
        handlers = Handlers()
        async with consumer_of(cluster, threads=1, batch=2, ordered=ordered) as consumer:
            consumer.subscribe("T", handler=getattr(handlers, kind))
            await until(lambda: handlers.sizes == [2])
            await until(lambda: in_hand(consumer) == 80)
            tell(consumer, batch=20)
            handlers.open.set()
            await until(lambda: sum(handlers.sizes) == 80)
            assert 20 in handlers.sizes[1 if not ordered else 0 :]
            tell(consumer, batch=1)
            for number in range(100, 104):
                put(cluster, number)
            await until(lambda: sum(handlers.sizes) == 84)
            assert handlers.sizes[-4:] == [1, 1, 1, 1]

    flow(test, 80)


def in_hand(consumer: PushConsumer) -> int:
    found = consumer.running_info().queues.values()
    return sum(one.cached_msg_count + one.transaction_msg_count for one in found)


def test_pulls_ask_for_as_many_as_the_knob_says_and_those_that_wait_are_made_anew() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.holds = True
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, pull_hold=15.0) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: sizes(cluster)[-1:] == ["32"])
            tell(consumer, pull_batch=5)
            await until(lambda: sizes(cluster)[-2:] == ["5", "5"])
            for number in range(20):
                put(cluster, number)
            cluster.broker.release()
            await until(lambda: len(got) == 20)
            assert set(sizes(cluster)[-4:]) == {"5"}

    flow(test)


def sizes(cluster: FakeCluster) -> list[str]:
    found = [one.ext for one in cluster.broker.requests(PULL) if one.ext["topic"] == "T"]
    return [one["maxMsgNums"] for one in found]


def test_queues_rest_between_pulls_until_the_knob_is_unset() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, pull_hold=0.02) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(sizes(cluster)) > 2)
            tell(consumer, pull_interval=60)
            put(cluster, 0)
            put(cluster, 1)
            await until(lambda: len(got) == 2)
            before = len(sizes(cluster))
            put(cluster, 2)
            put(cluster, 3)
            await asyncio.sleep(0.02)
            assert (len(sizes(cluster)), len(got)) == (before, 2)
            tell(consumer)
            await until(lambda: len(got) == 4)

    flow(test)


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_a_handler_over_the_limit_is_sent_to_retry_and_others_go_on(kind: str) -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()
        done: list[int] = []
        gate = threading.Event()

        def plain(message: ReceivedMessage) -> None:
            if message.body == b"0":
                gate.wait(20)
            done.append(int(message.body))

        async def coroutine(message: ReceivedMessage) -> None:
            if message.body == b"0":
                await until(gate.is_set)
            done.append(int(message.body))

        async with consumer_of(cluster, threads=2, consume_timeout=2.0) as consumer:
            consumer.subscribe("T", handler=plain if kind == "plain" else coroutine)
            await until(lambda: len(done) == 9)
            assert committed(cluster).get(0, 0) == 0
            tell(consumer, consume_timeout=0.1)
            (request,) = await until(lambda: cluster.broker.requests(SEND_BACK))
            assert request.ext["offset"] == "0"
            await until(lambda: committed(cluster) == {0: 5, 1: 5})
            gate.set()

    flow(test, 10)


def test_tries_and_their_delays_are_those_of_the_knobs() -> None:
    async def test(cluster: FakeCluster) -> None:
        cluster.broker.on[SEND_BACK] = lambda conn, c: answer()

        def handle(message: ReceivedMessage) -> None:
            raise Retry(after=60) if message.body == b"1" else ValueError("bad")

        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", handler=handle)
            tell(consumer, retries=3, retry_delay=20.0)
            put(cluster, 0)
            put(cluster, 1)
            await until(lambda: len(cluster.broker.requests(SEND_BACK)) == 2)
            found = {one.ext["delayLevel"]: one.ext for one in cluster.broker.requests(SEND_BACK)}
            assert set(found) == {"4", "5"}, "30 s is the level after 20 s; what a handler says goes first"
            assert {one["maxReconsumeTimes"] for one in found.values()} == {"3"}
            tell(consumer)
            put(cluster, 2)
            await until(lambda: len(cluster.broker.requests(SEND_BACK)) == 3)
            last = cluster.broker.requests(SEND_BACK)[-1].ext
            assert (last["delayLevel"], last["maxReconsumeTimes"]) == ("0", "16")

    flow(test)


def test_an_ordered_queue_rests_as_long_as_the_knob_says() -> None:
    async def test(cluster: FakeCluster) -> None:
        tries: list[int] = []

        def handle(message: ReceivedMessage) -> None:
            tries.append(message.reconsume_times)
            if len(tries) < 3:
                raise ValueError("bad")

        async with consumer_of(cluster, ordered=True, suspend_time=30.0) as consumer:
            consumer.subscribe("T", handler=handle)
            tell(consumer, retry_delay=0.01)
            put(cluster, 0)
            await until(lambda: tries == [0, 1, 2])

    flow(test)


def test_tags_are_replaced_at_the_broker_and_here_and_come_back() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", "A", got.append)
            await until(lambda: len(got) == 10)
            member = consumer._member
            assert member is not None
            member.apply_knobs(1, [Setting("tags", Place("T"), "B || C")])
            (mine,) = [one for one in member.heartbeat_data().subscriptions if one.topic == "T"]
            assert (mine.expression, mine.tags) == ("B || C", {"B", "C"})
            for number in range(30, 33):
                put(cluster, number, tag="ABC"[number % 3])
            await until(lambda: {one.tags for one in got[10:]} == {"B", "C"})
            member.apply_knobs(0, [])
            (mine,) = [one for one in member.heartbeat_data().subscriptions if one.topic == "T"]
            assert mine.expression == "A"
            put(cluster, 40, tag="A")
            await until(lambda: 40 in numbers(got))
            assert 30 not in numbers(got)

    flow(test, 30, tags=("A", "B", "C"))


def test_paused_queues_are_not_pulled_until_they_are_resumed() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster, pull_hold=0.02) as consumer:
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(sizes(cluster)) > 2)
            member = consumer._member
            assert member is not None
            member.apply_knobs(1, [Setting("pause", Place("T", 0), True)])
            member.queues.pull_anew({"T"})
            put(cluster, 0)
            put(cluster, 1)
            await until(lambda: numbers(got) == [1])
            member.apply_knobs(0, [])
            await until(lambda: numbers(got) == [0, 1])

    flow(test)


class StandingClock(SystemClock):
    """Wall time stands until a test moves it."""

    ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms


def test_no_message_is_handed_out_before_it_is_as_old_as_the_knob_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aging, "STEP_SECONDS", 0.005)

    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        clock = StandingClock()
        async with consumer_of(cluster, pull_hold=0.02) as consumer:
            member = consumer._member
            assert member is not None
            member.instance.clock = clock
            consumer.subscribe("T", handler=got.append)
            await until(lambda: len(sizes(cluster)) > 2)
            tell(consumer, delay=60)
            put(cluster, 0)
            await until(lambda: cluster.broker.requests(PULL)[-1].ext["topic"] == "T")
            for age in (0, 30_000, 59_999):
                clock.ms = NOW_MS + age
                await asyncio.sleep(0.02)
                assert got == []
            clock.ms = NOW_MS + 60_000
            await until(lambda: numbers(got) == [0])
            clock.ms = NOW_MS
            put(cluster, 2)
            await asyncio.sleep(0.02)
            tell(consumer)
            await until(lambda: numbers(got) == [0, 2]), "what was held is pulled again"

    flow(test)


def test_of_what_was_pulled_together_the_old_ones_are_handed_out_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(aging, "STEP_SECONDS", 0.005)

    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        clock = StandingClock()
        async with consumer_of(cluster) as consumer:
            member = consumer._member
            assert member is not None
            member.instance.clock = clock
            tell(consumer, delay=60)
            for number in range(3):
                monkeypatch.setattr(fake, "NOW_MS", NOW_MS + number * 1000)
                put(cluster, number, queues=1)
            consumer.subscribe("T", handler=got.append)
            for number in range(3):
                clock.ms = NOW_MS + number * 1000 + 60_000
                await until(lambda count=number + 1: len(got) == count)
            assert numbers(got) == [0, 1, 2]
            assert len([one for one in sizes(cluster) if one]) >= 1

    flow(test, queues=1)
