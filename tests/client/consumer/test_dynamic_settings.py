"""Dynamic settings in running consumers: a change applies from the next message, pull or retry."""

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

from sparrowmq.client.base.settings import ConsumerSettings, PullSettings
from sparrowmq.client.consumer import min_age
from sparrowmq.client.consumer.dynamic_settings import Changed, DynamicSettings
from sparrowmq.client.consumer.outcomes import Retry
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.dynamic_settings import SettingPlace, SettingValue, Unable
from sparrowmq.core.message import MessageQueue, ReceivedMessage
from sparrowmq.core.names import retry_topic

ALL = SettingPlace()
QUEUE = MessageQueue("T", "broker-a", 0)


def live(*told: SettingValue, **own: Any) -> DynamicSettings:
    found = DynamicSettings(ConsumerSettings(**own), lambda: 1000)
    found.take(1, told)
    return found


def tell(consumer: PushConsumer, **values: Any) -> None:
    """Send settings to a member, as its coordinator would."""
    member = consumer._member
    assert member is not None
    settings = [SettingValue(name, ALL, value) for name, value in values.items()]
    member.apply_dynamic_settings(member.dynamic.revision + 1, settings)


class Handlers:
    """Counts running handlers, and holds them until `gate` is open."""

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


def test_own_settings_apply_without_a_coordinator() -> None:
    dynamic = live(threads=3, batch=2, consume_timeout=7.0, max_reconsume_times=5, pull_interval=0.5)
    assert (dynamic.threads, dynamic.batch, dynamic.takes_lists) == (3, 2, True)
    assert (dynamic.consume_timeout, dynamic.max_reconsume_times) == (7.0, 5)
    assert (dynamic.pull("T").batch, dynamic.pull("T").behind, dynamic.pull("T").interval) == (32, 512, 0.5)
    assert (dynamic.retry_seconds(3), dynamic.is_paused(QUEUE), dynamic.tags, dynamic.text) == (
        None,
        False,
        {},
        "",
    )


def test_dynamic_settings_apply_and_revert_to_the_own_values() -> None:
    dynamic = DynamicSettings(ConsumerSettings(threads=3), lambda: 1000)
    assert dynamic.pull("T").delay == 0
    told = [
        SettingValue("threads", ALL, 8),
        SettingValue("delay", SettingPlace("T"), 2),
        SettingValue("pull_batch", ALL, 5),
    ]
    assert dynamic.take(9, told) == Changed(True, frozenset({"T"}), frozenset(), [])
    assert (dynamic.revision, dynamic.threads, dynamic.pull("T").delay) == (9, 8, 2.0)
    assert (dynamic.pull("T").batch, dynamic.pull("T").behind) == (5, 5), "not more while it is behind"
    assert (dynamic.pull("U").delay, dynamic.pull(retry_topic("g")).delay) == (0.0, 0.0)
    assert dynamic.text == "threads=8 (*), delay=2 (T), pull_batch=5 (*)"
    assert "threads=8" in repr(dynamic)
    assert dynamic.take(10, told) == Changed(False, frozenset(), frozenset(), [])
    changed = dynamic.take(11, [])
    assert (changed.threads, changed.pulls >= {"T"}) == (True, True)
    assert (dynamic.threads, dynamic.pull("T").batch, dynamic.pull("T").behind) == (3, 32, 512)


def test_integer_settings_do_not_truncate_dynamic_values() -> None:
    dynamic = live(SettingValue("consume_timeout", ALL, 0.5), consume_timeout=60)
    assert dynamic.consume_timeout == 0.5
    told = [
        SettingValue("pull_interval", ALL, 0.25),
        SettingValue("retry_delay", ALL, 2),
        SettingValue("threads", ALL, 3),
    ]
    dynamic.take(2, told)
    assert (dynamic.pull("T").interval, dynamic.retry_seconds(0), dynamic.threads) == (0.25, 2.0, 3)
    assert isinstance(dynamic.threads, int)


def test_pauses_end_by_the_coordinators_clock_however_wrong_the_local_one() -> None:
    wall, elapsed = [9_000_000], [50.0]
    dynamic = DynamicSettings(ConsumerSettings(), lambda: wall[0], lambda: elapsed[0])
    dynamic.take(1, [SettingValue("pause", ALL, True, until=1_060_000)], 1_000_000)
    assert dynamic.is_paused(QUEUE), "an hour too fast, it would be over"
    wall[0] = 0
    elapsed[0] += 59.9
    assert dynamic.is_paused(QUEUE)
    elapsed[0] += 0.2
    assert not dynamic.is_paused(QUEUE), "an hour too slow, it would last"
    dynamic.take(2, [SettingValue("pause", ALL, True, until=1)])
    assert dynamic.is_paused(QUEUE), "by the own one when the coordinator does not say what time it has"


def test_pull_consumers_own_values_are_its_settings() -> None:
    dynamic = DynamicSettings(PullSettings(pull_batch=7, max_reconsume_times=3), lambda: 1000)
    assert (dynamic.pull("T").batch, dynamic.pull("T").told, dynamic.batch_max) == (7, False, 7)
    assert (dynamic.pull("T").interval, dynamic.max_reconsume_times) == (0.0, 3)
    dynamic.take(1, [SettingValue("pull_batch", ALL, 5), SettingValue("pull_batch", SettingPlace("T"), 20)])
    assert (dynamic.pull("T").batch, dynamic.pull("U").batch, dynamic.pull("T").told) == (20, 5, True)
    assert dynamic.batch_max == 20


def test_changed_settings_wake_waiting_tasks() -> None:
    async def main() -> None:
        dynamic = DynamicSettings(ConsumerSettings(), lambda: 1000)
        sleeping = [asyncio.ensure_future(dynamic.sleep(seconds)) for seconds in (3600, math.inf)]
        await asyncio.sleep(0)
        dynamic.take(1, [])
        await asyncio.wait_for(asyncio.gather(*sleeping), 20)
        await dynamic.sleep(0.001)
        dynamic.take(2, [])

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
def test_member_reports_which_settings_it_cannot_apply_and_why(
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
            shown = consumer.running_info().properties.get("dynamicSettingsNotApplied", "")
            assert shown == "; ".join(f"{name}: {why.text}" for name, why in sorted(unable.items()))
            told = [
                one.getMessage()
                for one in caplog.records
                if "cannot apply dynamic settings" in one.getMessage()
            ]
            assert len(told) == bool(unable)
            member.apply_dynamic_settings(9, [], 0, ["thoughts"])
            assert member.unable() == {"thoughts": Unable.UNKNOWN}

    flow(test)


def test_retries_are_not_delayed_by_a_general_delay() -> None:
    dynamic = live(SettingValue("delay", ALL, 2))
    assert (dynamic.pull("T").delay, dynamic.pull(retry_topic("g")).delay) == (2.0, 0.0)


def test_batch_size_needs_handlers_that_accept_lists() -> None:
    assert live(SettingValue("batch", ALL, 20)).batch == 1
    assert live(SettingValue("batch", ALL, 20), batch=2).batch == 20
    dynamic = live(SettingValue("batch", ALL, 1), batch=2)
    assert (dynamic.batch, dynamic.takes_lists) == (1, True)


@pytest.mark.parametrize(
    ("place", "until", "paused"),
    [(ALL, 0, True), (ALL, 1001, True), (ALL, 1000, False), (SettingPlace("T"), 0, True),
     (SettingPlace("U"), 0, False), (SettingPlace("T", 0), 0, True), (SettingPlace("T", 1), 0, False),
     (SettingPlace("T", 0, "broker-a"), 0, True), (SettingPlace("T", 0, "broker-b"), 0, False)],
)  # fmt: skip
def test_pauses_of_groups_topics_and_queues_expire(place: SettingPlace, until: int, paused: bool) -> None:
    assert live(SettingValue("pause", place, True, until)).is_paused(QUEUE) == paused


def test_retry_delays_grow() -> None:
    dynamic = live(SettingValue("retry_delay", ALL, 2), SettingValue("retry_growth", ALL, 3))
    assert [dynamic.retry_seconds(tries) for tries in (0, 1, 2)] == [2, 6, 18]


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_more_handlers_run_at_once(kind: str) -> None:
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


def test_fewer_threads_apply_after_running_handlers_end() -> None:
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


def test_number_of_ordered_handlers_decreases_while_queues_have_messages() -> None:
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
def test_next_calls_get_batches_of_the_new_size(kind: str, ordered: bool) -> None:
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


def test_changed_pull_batch_restarts_waiting_pulls() -> None:
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


def test_push_queues_wait_between_pulls_until_the_interval_is_unset() -> None:
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
def test_message_over_the_processing_limit_is_retried_and_others_continue(kind: str) -> None:
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


def test_retries_and_their_delays_follow_the_dynamic_settings() -> None:
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
            assert last["delayLevel"] == "0"
            assert "maxReconsumeTimes" not in last, "the group's own limit applies"

    flow(test)


def test_ordered_queue_waits_for_the_set_retry_delay() -> None:
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


def test_tags_are_replaced_at_the_broker_and_locally_and_restored() -> None:
    async def test(cluster: FakeCluster) -> None:
        got: list[ReceivedMessage] = []
        async with consumer_of(cluster) as consumer:
            consumer.subscribe("T", "A", got.append)
            await until(lambda: len(got) == 10)
            member = consumer._member
            assert member is not None
            member.apply_dynamic_settings(1, [SettingValue("tags", SettingPlace("T"), "B || C")])
            (mine,) = [one for one in member.heartbeat_data().subscriptions if one.topic == "T"]
            assert (mine.expression, mine.tags) == ("B || C", {"B", "C"})
            for number in range(30, 33):
                put(cluster, number, tag="ABC"[number % 3])
            await until(lambda: {one.tags for one in got[10:]} == {"B", "C"})
            member.apply_dynamic_settings(0, [])
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
            member.apply_dynamic_settings(1, [SettingValue("pause", SettingPlace("T", 0), True)])
            member.queues.pull_anew({"T"})
            put(cluster, 0)
            put(cluster, 1)
            await until(lambda: numbers(got) == [1])
            member.apply_dynamic_settings(0, [])
            await until(lambda: numbers(got) == [0, 1])

    flow(test)


class StandingClock(SystemClock):
    """Wall time is stopped until a test moves it."""

    ms = NOW_MS

    def now_ms(self) -> int:
        return self.ms


def test_no_message_is_delivered_before_the_set_delay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(min_age, "STEP_SECONDS", 0.005)

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


def test_old_messages_of_a_pulled_batch_are_delivered_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(min_age, "STEP_SECONDS", 0.005)

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
