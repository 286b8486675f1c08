"""Send attempts with hooks, the latency strategy and RocketMQ's own properties, with a scripted cluster."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer
from tests.client.producing import SEND, flow, sends
from tests.support import about, until

from sparrowmq.client.base.hooks import (
    CheckForbiddenContext,
    CheckForbiddenHook,
    MessageType,
    RpcHook,
    SendContext,
    SendHook,
    SendMode,
)
from sparrowmq.client.producer.producer import Producer
from sparrowmq.client.send import sender
from sparrowmq.client.send.attempts import share
from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    InvalidMessageError,
    NoRoomError,
)
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.protocol.batch import encode_batch
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.compression import compress
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command


class Watcher(CheckForbiddenHook, SendHook, RpcHook):
    """Records the order of calls; tests set what `before_send` adds and `check_forbidden` raises."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.contexts: list[SendContext] = []
        self.checks: list[CheckForbiddenContext] = []
        self.adds: dict[str, str] = {}
        self.refuses: set[str] = set()

    def check_forbidden(self, context: CheckForbiddenContext) -> None:
        self.calls.append("check")
        self.checks.append(context)
        if context.queue.broker_name in self.refuses:
            raise ClientError(f"{context.queue.broker_name} is forbidden")

    def before_send(self, context: SendContext) -> None:
        self.calls.append("before")
        self.contexts.append(context)
        context.properties |= self.adds

    def after_send(self, context: SendContext) -> None:
        self.calls.append("after")

    def before_request(self, address: str, command: Command) -> None:
        if command.code in (SEND, 320):
            self.calls.append("request")

    def after_response(self, address: str, command: Command, answer: Command) -> None:
        if command.code in (SEND, 320):
            self.calls.append("answer")


@pytest.mark.proves("client:B-46", "client:B-47", "client:B-50", "client:A-75")
def test_one_send_calls_the_hooks_in_order() -> None:
    hook = Watcher()

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        hook.adds = {"trace": "t1"}
        result = await producer.send(Message("T", b"hello", delay_level=2))
        assert hook.calls == ["check", "before", "request", "answer", "after"]
        (context,), (check,) = hook.contexts, hook.checks
        assert (context.group, context.mode, context.body_bytes) == ("g", SendMode.SYNC, 5)
        assert context.message_type is MessageType.DELAY
        assert context.message_id == result.message_id and context.result == result and not context.error
        assert context.address == check.address == cluster.broker.server.address
        assert context.client_address in producer.client_id
        assert context.unit_mode and check.unit_mode and check.namesrv == cluster.namesrv
        (sent,) = sends(cluster)
        assert sent.unit_mode
        assert "trace\x01t1\x02" in (sent.properties or "") and "DELAY\x012\x02" in (sent.properties or "")

    flow(test, hooks=(hook,), unit_mode=True)


@pytest.mark.proves("client:B-51")
def test_every_way_of_sending_calls_the_hooks_and_ends_once() -> None:
    hook = Watcher()

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        queue = (await producer.queues("T"))[1]
        await producer.send(Message("T", b"1"), queue=queue)
        done: list[Any] = []
        producer.submit(Message("T", b"2"), lambda result, error: done.append((result, error)))
        await until(lambda: done)
        assert done[0][0].message_id == hook.contexts[-1].message_id
        await producer.send_oneway(Message("T", b"3"))
        await producer.send_batch([Message("T", b"4"), Message("T", b"5")])
        await producer.send_encoded_batch("T", encode_batch([(0, b"6", b"")]), 1)
        modes = [SendMode.SYNC, SendMode.ASYNC, SendMode.ONEWAY, SendMode.SYNC, SendMode.SYNC]
        assert [context.mode for context in hook.contexts] == modes
        assert hook.calls.count("before") == hook.calls.count("after") == 5
        oneway, batch = hook.contexts[2:4]
        assert oneway.result is None and oneway.error is None
        assert [m.body for m in batch.messages] == [b"4", b"5"] and batch.message.body == b"4"
        await until(lambda: len(sends(cluster)) == 5)
        single = [s.properties or "" for s in sends(cluster) if not s.batch]
        assert all("more\x01yes" in text for text in single)

    hook.adds = {"more": "yes"}
    flow(test, hooks=(hook,))


@pytest.mark.proves("client:B-37", "client:B-43", "client:B-46")
def test_refused_send_is_tried_at_another_broker_and_raises_the_last_code() -> None:
    hook = Watcher()

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        hook.refuses = {"broker-a"}
        for _ in range(4):
            assert (await producer.send(Message("T", b"x"))).queue.broker_name == "broker-b"
        hook.refuses = {"broker-a", "broker-b"}
        with pytest.raises(ClientError, check=about(code=10003)) as caught:
            await producer.send(Message("T", b"x"))
        assert "tried 3 times" in caught.value.__notes__[0]
        with pytest.raises(ClientError, match="is forbidden"):
            await producer.send_oneway(Message("T", b"x"))

    flow(test, brokers=2, hooks=(hook,))


def test_hooks_see_errors_and_illegal_properties_fail_the_send() -> None:
    hook = Watcher()

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = lambda conn, c: answer(13, remark="illegal")
        with pytest.raises(BrokerError, check=about(code=13, remark="illegal")):
            await producer.send(Message("T", b"x"))
        assert isinstance(hook.contexts[-1].error, BrokerError)
        del cluster.broker.on[SEND]
        for bad in ({"KEYS": "x"}, {"a": "b\x01c"}):
            hook.adds = bad
            with pytest.raises(InvalidMessageError):
                await producer.send(Message("T", b"x"))
            assert isinstance(hook.contexts[-1].error, InvalidMessageError)
            with pytest.raises(InvalidMessageError):
                await producer.send_oneway(Message("T", b"x"))

    flow(test, hooks=(hook,))


@pytest.mark.proves("client:B-26", "client:B-27", "client:B-28", "client:G-06")
def test_asynchronous_send_is_repeated_only_after_transport_failures() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.queues("T")
        cluster.broker.on[SEND] = lambda conn, c: answer(2, remark="busy")
        cluster.brokers["broker-b"].on[SEND] = lambda conn, c: answer(2, remark="busy")
        done: list[tuple[SendResult | None, BaseException | None]] = []
        producer.submit(Message("T", b"x"), lambda *outcome: done.append(outcome))
        await until(lambda: done)
        assert isinstance(done[0][1], BrokerError)
        assert len(sends(cluster)) + len(sends(cluster, "broker-b")) == 1, "an answer is a result"

        def unflushed(conn: Any, command: Command) -> Command:
            stored = cluster.broker.send(conn, command)
            stored.code = 10
            return stored

        for broker in cluster.brokers.values():
            broker.on[SEND] = unflushed
        producer.submit(Message("T", b"x"), lambda *outcome: done.append(outcome))
        await until(lambda: len(done) == 2)
        assert done[1][0] is not None and done[1][0].status is SendStatus.FLUSH_DISK_TIMEOUT
        before = [len(sends(cluster, name)) for name in cluster.brokers]
        for broker in cluster.brokers.values():
            broker.on[SEND] = lambda conn, c: conn.abort()
        producer.submit(Message("T", b"x"), lambda *outcome: done.append(outcome))
        await until(lambda: len(done) == 3)
        assert isinstance(done[2][1], ConnectionLostError)
        tried = [sends(cluster, name)[count:] for name, count in zip(cluster.brokers, before, strict=True)]
        assert sorted(map(len, tried)) == [1, 2], "the first try and two more, from broker to broker"
        assert len({header.queue_id for part in tried for header in part}) == 1, "chosen once"

    flow(test, brokers=2)


@pytest.mark.proves("client:B-29", "client:B-32", "client:B-30")
def test_asynchronous_retry_sends_the_same_body_to_the_same_queue_id_at_the_next_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    packed: list[bytes] = []
    monkeypatch.setattr(sender, "compress", lambda *given: packed.append(given[0]) or compress(*given))

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        def lose(conn: Any, command: Command) -> None:
            conn.abort()

        cluster.broker.on[SEND] = lose
        body = b"compressible " * 1000
        done: list[tuple[SendResult | None, BaseException | None]] = []
        message = Message("T", body)
        for _ in range(8):
            producer.submit(message, lambda *outcome: done.append(outcome))
        await until(lambda: len(done) == 8)
        assert message.body is body and len(packed) == 8, "compressed once, however often it is tried"
        assert all(result is not None for result, _ in done)
        lost = {s.properties: s for s in sends(cluster)}
        stored = {s.properties: s for s in sends(cluster, "broker-b")}
        assert lost and len(stored) == 8
        for text, first in lost.items():
            assert (
                stored[text].queue_id == first.queue_id and stored[text].sys_flag == first.sys_flag == 0x301
            )
        bodies = {c.body for c in cluster.brokers["broker-b"].seen if c.code == SEND}
        assert len(bodies) == 1, "compressed alike"

    flow(test, brokers=2)


@pytest.mark.proves("client:B-29")
def test_asynchronous_send_to_a_queue_stays_there() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        fails = iter([True, True, False])

        def sometimes(conn: Any, command: Command) -> Command | None:
            if next(fails):
                conn.abort()
                return None
            return cluster.broker.send(conn, command)

        cluster.broker.on[SEND] = sometimes
        done: list[tuple[SendResult | None, BaseException | None]] = []
        queue = MessageQueue("T", "broker-a", 2)
        producer.submit(Message("T", b"x"), lambda *outcome: done.append(outcome), queue=queue)
        await until(lambda: done)
        assert done[0][0] is not None and done[0][0].queue == queue
        assert len(sends(cluster)) == 3 and not sends(cluster, "broker-b")

        cluster.broker.on[SEND] = lambda conn, c: conn.abort()
        producer.submit(Message("T", b"x"), lambda *outcome: done.append(outcome), queue=queue)
        await until(lambda: len(done) == 2)
        assert isinstance(done[1][1], ConnectionLostError)
        assert len(sends(cluster)) == 6, "retries_async tries after the first"

    flow(test, brokers=2)


@pytest.mark.proves("client:G-05")
def test_one_attempt_can_be_limited_while_others_remain() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        async def never(conn: Any, command: Command) -> None:
            await asyncio.Event().wait()

        await producer.queues("T")
        cluster.broker.on[SEND] = never
        results = [await producer.send(Message("T", b"x")) for _ in range(2)]
        assert {result.queue.broker_name for result in results} == {"broker-b"}

    flow(test, brokers=2, queues=1, try_timeout=0.05, send_timeout=60.0)


def test_sends_to_a_frozen_broker_reach_another_one_within_their_time() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        async def never(conn: Any, command: Command) -> None:
            await asyncio.Event().wait()

        await producer.queues("T")
        cluster.broker.on[SEND] = never
        results = [await producer.send(Message("T", b"x")) for _ in range(2)]
        done: list[Any] = []
        for _ in range(2):
            producer.submit(Message("T", b"y"), lambda *outcome: done.append(outcome[0]))
        await until(lambda: len(done) == 2)
        assert {result.queue.broker_name for result in [*results, *done]} == {"broker-b"}
        assert sends(cluster), "it was tried"

    flow(test, brokers=2, queues=1, send_timeout=1.0)


@pytest.mark.parametrize(
    ("left", "more", "seconds"),
    [(3, 2, 1), (30, 2, 10), (30, 60, 1), (0.6, 2, 0.3), (3, 0, 3)],
)
def test_attempt_leaves_time_for_others_but_is_not_cut_short(left: float, more: int, seconds: float) -> None:
    assert share(left, more) == pytest.approx(seconds)


@pytest.mark.parametrize(("brokers", "seconds"), [(1, 600), (2, 200)])
def test_only_attempts_at_other_brokers_shorten_one(brokers: int, seconds: float) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        queue = (await producer.queues("T"))[0]
        assert producer._sender is not None
        remoting, limits = producer._sender.instance.remoting, []
        now, slow = remoting.call_encoded_nowait, remoting.call_encoded

        def noted(call: Any) -> Any:
            def noting(address: str, opaque: int, data: Any, timeout: float, code: int) -> Any:
                if code == SEND:
                    limits.append(timeout)
                return call(address, opaque, data, timeout, code)

            return noting

        remoting.call_encoded_nowait, remoting.call_encoded = noted(now), noted(slow)
        while len(limits) < 2:
            await producer.send(Message("T", b"x"))
        assert limits == [pytest.approx(seconds, abs=60)] * len(limits)
        limits.clear()
        await producer.send(Message("T", b"x"), queue=queue)
        assert limits == [pytest.approx(600, abs=60)] * len(limits)

    flow(test, brokers=brokers, send_timeout=600.0)


@pytest.mark.proves("client:B-57", "client:B-65", "client:B-36")
def test_fault_strategy_avoids_a_failed_broker() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = lambda conn, c: answer(2, remark="busy")
        for _ in range(12):
            assert (await producer.send(Message("T", b"x"))).queue.broker_name == "broker-b"
        assert len(sends(cluster)) <= 1
        cluster.broker.on.clear()
        async with asyncio.timeout(30):
            while (await producer.send(Message("T", b"x"))).queue.broker_name == "broker-b":
                pass  # until it has rested

    flow(test, brokers=2, queues=1, latency_fault=True, latency_max=(0, 9000), not_available=(0, 300))


def test_waiting_for_room_does_not_count_against_a_broker() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        release = asyncio.Event()

        async def slow_once(conn: Any, command: Command) -> Command:
            cluster.broker.on.clear()
            await release.wait()
            return cluster.broker.send(conn, command)

        cluster.broker.on[SEND] = slow_once

        class Clock:
            now = asyncio.get_running_loop().time()

            def time(self) -> float:
                return self.now

        engine, clock = producer._sender, Clock()
        assert engine is not None and engine.faults is not None
        engine._attempts._loop = clock
        slow, quick = (MessageQueue("T", name, 0) for name in ("broker-a", "broker-b"))
        first = asyncio.create_task(producer.send(Message("T", b"x"), queue=slow))
        await until(lambda: len(sends(cluster)) == 1)
        second = asyncio.create_task(producer.send(Message("T", b"x"), queue=quick))
        await until(lambda: engine.gate.waiting == 1)
        clock.now += 50
        release.set()
        await asyncio.gather(first, second)
        assert {name: item.latency_ms for name, item in engine.faults.items.items()} == {
            "broker-a": pytest.approx(50_000),
            "broker-b": 0,
        }

    flow(test, brokers=2, latency_fault=True, in_flight_max=1, send_timeout=600.0)


@pytest.mark.proves("client:B-25", "client:B-108")
def test_send_without_room_counts_against_no_broker() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        engine = producer._sender
        assert engine is not None and engine.faults is not None
        await producer.queues("T")  # so that the time is not spent on the route
        assert engine.gate.try_enter(1)
        with pytest.raises(NoRoomError, check=about(limit=1)):
            await producer.send(Message("T", b"x"), timeout=0.3)
        engine.gate.leave(1)
        assert not engine.faults.items

    flow(test, latency_fault=True, in_flight_max=1)


@pytest.mark.proves("client:B-55")
def test_equal_hash_keys_stay_together_despite_the_fault_strategy() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        first = await producer.send(Message("T", b"x"), hash_key="order-1")
        engine = producer._sender
        assert engine is not None and engine.faults is not None
        now = asyncio.get_running_loop().time() * 1000
        engine.faults.note(first.queue.broker_name, 60_000, now, ConnectionLostError("gone"))
        others = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(4)))
        assert first.queue.broker_name not in {result.queue.broker_name for result in others}
        assert (await producer.send(Message("T", b"x"), hash_key="order-1")).queue == first.queue

    flow(test, brokers=2, latency_fault=True)


@pytest.mark.proves("client:B-58", "client:G-02")
def test_round_robin_is_the_default() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        assert not producer.settings.latency_fault
        cluster.broker.on[SEND] = lambda conn, c: answer(2, remark="busy")
        for _ in range(12):
            await producer.send(Message("T", b"x"))
        assert len(sends(cluster)) >= 2, "it is not avoided"

    flow(test, brokers=2)


@pytest.mark.proves("client:B-41", "client:G-01")
@pytest.mark.parametrize(("compat", "tries"), [("5.x", 3), ("4.9", 1)])
def test_busy_broker_is_tried_again_only_in_the_new_mode(compat: str, tries: int) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.broker.on[SEND] = lambda conn, c: answer(2, remark="busy")
        with pytest.raises(BrokerError):
            await producer.send(Message("T", b"x"))
        assert len(sends(cluster)) == tries

    flow(test, compat=compat)


@pytest.mark.proves("client:G-26", "client:B-105")
def test_delivery_times_go_only_to_brokers_that_support_them() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"x", delay=2.5))
        await producer.send(Message("T", b"x", deliver_at=1_700_000_000))
        texts = [sent.properties or "" for sent in sends(cluster)]
        assert "TIMER_DELAY_MS\x012500\x02" in texts[0]
        assert "TIMER_DELIVER_MS\x011700000000000\x02" in texts[1]

        def beat(conn: Any, command: Command) -> Command:
            old = answer()
            old.version = 409
            return old

        cluster.broker.on[RequestCode.HEART_BEAT] = beat
        assert producer._sender is not None
        await producer._sender.instance.heartbeat()
        with pytest.raises(ClientError, check=about(what="delay", value="broker-a")):
            await producer.send(Message("T", b"x", delay=2.5))
        await producer.send(Message("T", b"x", delay_level=1))

    flow(test)


@pytest.mark.proves("client:G-26")
@pytest.mark.parametrize("vip", [False, True])
def test_first_message_with_a_time_queries_the_broker_version(vip: bool) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        engine = producer._sender
        assert engine is not None

        def old(conn: Any, command: Command) -> Command:
            return Command(0, flag=FLAG_RESPONSE, version=409)

        cluster.broker.on[int(RequestCode.HEART_BEAT)] = old
        await producer.queues("T")
        engine.instance.broker_versions.clear()
        with pytest.raises(ClientError, check=about(what="delay", value="broker-a")):
            await producer.send(Message("T", b"x", delay=2.5))
        assert not sends(cluster)

    flow(test, vip_channel=vip, retries=0)


@pytest.mark.proves("client:B-49")
@pytest.mark.parametrize("when", ["before_request", "after_response"])
def test_failing_request_hook_fails_sends_and_uses_no_room(when: str) -> None:
    class Broken(RpcHook):
        wrong = False

        def before_request(self, address: str, command: Command) -> None:
            self.fail("before_request", command)

        def after_response(self, address: str, command: Command, answer: Command) -> None:
            self.fail("after_response", command)

        def fail(self, now: str, command: Command) -> None:
            if self.wrong and now == when and command.code == SEND:
                raise ValueError("a hook's fault")

    hook = Broken()

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"x"))
        hook.wrong = True
        errors: list[BaseException | None] = []
        for count in range(1, 4):
            with pytest.raises(ValueError, check=about(args=("a hook's fault",))):
                await producer.send(Message("T", b"x"))
            try:
                producer.submit(Message("T", b"x"), lambda result, error: errors.append(error))
            except ValueError as error:
                errors.append(error)
            await until(lambda count=count: len(errors) == count)
        assert [str(error) for error in errors] == ["a hook's fault"] * 3
        hook.wrong = False
        assert producer.in_flight == 0
        await producer.send(Message("T", b"x"))

    flow(test, hooks=(hook,), in_flight_max=2)


def test_delivery_times_are_refused_in_the_old_mode() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        with pytest.raises(ClientError, check=about(what="delay", value="broker-a")):
            await producer.send_oneway(Message("T", b"x", delay=2.5))
        assert not sends(cluster)

    flow(test, compat="4.9")


@pytest.mark.parametrize(("compat", "has_id"), [("5.x", True), ("4.9", False)])
@pytest.mark.parametrize("linger", [0.0, 0.01])
def test_batch_has_its_own_id_only_in_the_new_mode(compat: str, has_id: bool, linger: float) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        messages = [Message("T", b"1"), Message("T", b"2")]
        if not linger:
            await producer.send_batch(messages)
        else:
            await asyncio.gather(*map(producer.send, messages))
        (sent,) = sends(cluster)
        assert sent.batch and ("UNIQ_KEY" in (sent.properties or "")) == has_id

    flow(test, compat=compat, linger=linger)


@pytest.mark.proves("client:A-43", "client:G-08")
@pytest.mark.parametrize(("compat", "template"), [("5.x", "TBW102"), ("4.9", "Mine")])
def test_template_of_an_unknown_topic_is_configurable_only_in_the_old_mode(
    compat: str, template: str
) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic("TBW102", 8)
        cluster.add_topic("Mine", 8)
        await producer.send(Message("New", b"x"))
        asked = {c.ext["topic"] for c in cluster.seen if c.code == RequestCode.GET_ROUTEINFO_BY_TOPIC}
        assert asked & {"TBW102", "Mine"} == {template}
        assert sends(cluster)[0].default_topic == "Mine"

    flow(test, compat=compat, create_topic_key="Mine")


@pytest.mark.proves("client:A-66", "client:A-67")
def test_urgent_requests_can_use_the_vip_port() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        address = cluster.broker.server.address
        host, _, port = address.rpartition(":")
        with pytest.raises(ConnectError, check=about(address=f"{host}:{int(port) - 2}")):
            await producer.send(Message("T", b"x"))

    flow(test, vip_channel=True, retries=0)


@pytest.mark.proves("client:B.13")
def test_strategy_is_off_by_default_and_versions_differ() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        assert producer._sender is not None and producer._sender.faults is None

    async def on(cluster: FakeCluster, producer: Producer) -> None:
        assert producer._sender is not None and producer._sender.faults is not None
        faults = producer._sender.faults
        faults.note("b", 20_000, 0)
        rest = 600_000 if producer.settings.compat == "4.9" else 30_000
        assert not faults.is_available("b", rest - 1) and faults.is_available("b", rest)

    flow(test)
    flow(on, latency_fault=True)
    flow(on, latency_fault=True, compat="4.9")


@pytest.mark.proves("client:B.9-10", "client:B-66", "client:B-25")
def test_timeout_is_checked_before_each_attempt_in_every_mode() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.queues("T")

        class Slow(SendHook):
            def before_send(self, context: SendContext) -> None:
                time.sleep(0.03)  # longer than the sends below may take

        assert producer._sender is not None
        producer._sender.hooks.send = (Slow(),)
        producer._sender._attempts.is_watched, producer._sender._may_go_fast = True, False
        message = Message("T", b"x")
        done: list[Any] = []
        producer.submit(message, lambda *outcome: done.append(outcome[1]), timeout=0.01)
        with pytest.raises(NoRoomError, check=about(what="timeout")):
            await producer.send(message, timeout=0.01)
        with pytest.raises(NoRoomError, check=about(what="timeout")):
            await producer.send_oneway(message, timeout=0.01)
        await until(lambda: done)
        assert isinstance(done[0], NoRoomError)
        assert not sends(cluster)

    flow(test)


@pytest.mark.proves("client:B-31")
def test_exception_of_a_callback_affects_no_other_caller() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        told: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, what: told.append(what["message"]))

        def fails(result: SendResult | None, error: BaseException | None) -> None:
            raise ValueError("a callback's fault")

        await producer.queues("T")
        producer.submit(Message("T", b"x"), fails)
        producer.submit(Message("T", b"x" * 10_000), fails)
        await until(lambda: len(sends(cluster)) == 2)
        assert (await producer.send(Message("T", b"y"))).status is SendStatus.SEND_OK
        await until(lambda: producer.in_flight == 0)
        await until(lambda: told)

    flow(test)


def test_throttling_broker_is_tried_again_until_the_timeout() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        refused = iter([True] * 30)

        def throttle(conn: Any, command: Command) -> Command:
            return (
                answer(2, remark="[TIMEOUT_CLEAN_QUEUE]") if next(refused, False) else stored(conn, command)
            )

        stored = cluster.broker.send
        cluster.broker.on[SEND] = throttle
        results = await asyncio.gather(*(producer.send(Message("T", b"%d" % n)) for n in range(10)))
        assert len({(r.queue, r.queue_offset) for r in results}) == 10

    flow(test, retries=60, send_timeout=60.0)


def test_sends_survive_a_broker_that_repeatedly_loses_its_connections() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        results: list[SendResult] = []

        async def saw() -> None:
            for cut in range(5):
                await until(lambda cut=cut: len(results) >= 30 * cut)
                for conn in list(cluster.broker.server.connections):
                    conn.abort()

        async def send_many(number: int) -> None:
            for index in range(40):
                results.append(await producer.send(Message("T", b"%d %d" % (number, index))))

        await asyncio.gather(saw(), *(send_many(number) for number in range(5)))
        stored = {c.body for c in cluster.broker.seen if c.code == SEND}
        assert len(results) == 200 and stored >= {b"%d %d" % (n, i) for n in range(5) for i in range(40)}

    flow(test, retries=60, send_timeout=60.0)


def test_a_send_whose_time_is_over_before_it_is_written_is_not_sent() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send(Message("T", b"warm"))
        for timeout in (1e-9, 1e-12):
            with pytest.raises(NoRoomError, match="before it was written"):
                await producer.send(Message("T", b"late"), timeout=timeout)
        await producer.send(Message("T", b"after"))
        assert len(sends(cluster)) == 2

    flow(test)
