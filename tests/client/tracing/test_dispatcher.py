"""Tracing of producers and consumers: what is recorded, how it is sent, what is dropped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.client.fake import FakeCluster, answer, fake_cluster
from tests.client.producing import SEND, flow
from tests.support import run, until

from sparrowmq.client.base.hooks import ConsumeContext, ConsumeHook, RpcHook, SendHook
from sparrowmq.client.base.settings import ClientSettings, ConsumerSettings
from sparrowmq.client.producer.producer import Producer
from sparrowmq.client.push.push_consumer import PushConsumer
from sparrowmq.client.tracing import dispatcher
from sparrowmq.client.tracing.dispatcher import Tracing, trace_messages
from sparrowmq.client.tracing.on_demand import hooks_with, tracing_of
from sparrowmq.core.message import Message, MessageQueue, ReceivedMessage
from sparrowmq.protocol import properties
from sparrowmq.protocol.record import decode_records
from sparrowmq.protocol.trace import (
    PubTrace,
    RecallTrace,
    SubAfterTrace,
    SubBeforeTrace,
    Trace,
    decode_trace_bodies,
)

TOPIC = "RMQ_SYS_TRACE_TOPIC"


def stored(cluster: FakeCluster, topic: str = TOPIC) -> list[Any]:
    return [
        record
        for (name, _), held in sorted(cluster.broker.queues.items())
        if name == topic
        for part in held
        for record in decode_records(part)
    ]


def traces(cluster: FakeCluster) -> list[Trace]:
    return decode_trace_bodies(record.body for record in stored(cluster))


def received(number: int, **found: str) -> ReceivedMessage:
    found = {"UNIQ_KEY": f"M{number}", "KEYS": f"k{number}", "MSG_REGION": "R", **found}
    return ReceivedMessage(
        MessageQueue("T", "b", 0), number, 0, "T", b"x", found, 0, 0, 0, "", 0, "", 2, 0, 0, "id"
    )


@pytest.mark.proves("client:B-110", "client:B-112", "client:B-113", "client:B-118")
def test_producers_sends_are_recorded_by_a_separate_producer() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic(TOPIC, 1)
        result = await producer.send(Message("T", b"hello", tags="A", keys=["k1", "k2"]))
        await until(lambda: len(traces(cluster)) == 1)
        (trace,) = traces(cluster)
        assert isinstance(trace, PubTrace)
        assert (trace.group, trace.topic, trace.tags, trace.keys) == ("g", "T", "A", "k1 k2")
        assert (trace.message_id, trace.offset_message_id) == (result.message_id, result.offset_message_id)
        assert (trace.body_bytes, trace.success, trace.message_type) == (5, True, 0)
        assert trace.store_host == cluster.broker.server.address and trace.region == "DefaultRegion"
        (record,) = stored(cluster)
        keys = properties.decode(record.properties)["KEYS"].split()
        assert set(keys) == {result.message_id, "k1", "k2"}
        (group,) = {c.ext["a"] for c in cluster.broker.seen if c.code == SEND and c.ext["b"] == TOPIC}
        assert group.startswith("_INNER_TRACE_PRODUCER-g-PRODUCE-")
        beats = {beat.client_id for beat in cluster.broker.heartbeats}
        assert len(beats | {producer.client_id}) == 2, "an instance of its own"

    flow(test, trace=True, trace_batch=1)


@pytest.mark.proves("client:B-113")
@pytest.mark.parametrize("region", [{"TRACE_ON": "false"}, {}])
def test_untraced_and_failed_sends_are_not_recorded(region: dict[str, str]) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic(TOPIC, 1)

        def handle(conn: Any, command: Any) -> Any:
            if not region:
                return answer(13, remark="no")
            done = cluster.broker.send(conn, command)
            done.ext |= region
            return done

        cluster.broker.on[SEND] = handle
        for _ in range(2):
            await asyncio.gather(producer.send(Message("T", b"x")), return_exceptions=True)
        await producer.send_oneway(Message("T", b"x"))
        del cluster.broker.on[SEND]
        await producer.send(Message(TOPIC, b"x"))
        last = await producer.send(Message("T", b"x"))
        await until(lambda: len(stored(cluster)) == 2)
        (trace,) = (t for t in traces(cluster) if isinstance(t, PubTrace))
        assert trace.message_id == last.message_id

    flow(test, trace=True, trace_batch=1)


@pytest.mark.proves("client:B-116", "client:B-111", "client:B-113")
def test_consumers_messages_are_recorded_before_and_after_with_one_request() -> None:
    async def main() -> None:
        async with fake_cluster(TOPIC, queues=1) as cluster:
            settings = ConsumerSettings(namesrv=cluster.namesrv, trace=True)
            traced = tracing_of("g", settings, "CONSUME")
            assert traced is not None
            traced.start()
            messages = [received(1), received(2, TRACE_ON="false"), received(3)]
            context = ConsumeContext(group="g", queue=messages[0].queue, messages=messages)
            traced.hook.before_consume(context)
            context.success, context.properties["ConsumeContextType"] = False, "EXCEPTION"
            traced.hook.after_consume(context)
            off = ConsumeContext(group="g", queue=messages[0].queue, messages=messages[1:2])
            traced.hook.before_consume(off)
            traced.hook.after_consume(off)
            await traced.close()
            found = traces(cluster)
            before = [t for t in found if isinstance(t, SubBeforeTrace)]
            after = [t for t in found if isinstance(t, SubAfterTrace)]
            assert [t.message_id for t in before] == [t.message_id for t in after] == ["M1", "M3"]
            assert len({t.request_id for t in before + after}) == 1
            assert {(t.region, t.group, t.retry_times) for t in before} == {("R", "g", 2)}
            assert {(t.success, t.context_code, t.group) for t in after} == {(False, 2, "g")}
            assert (traced.sent, traced.dropped) == (4, 0)

    run(main())


@pytest.mark.proves("client:B-13", "client:B-112", "client:B-118")
@pytest.mark.parametrize("way", ["handler", "iterating", "ordered"])
def test_tracing_consumer_writes_when_it_closes_and_not_about_traces(way: str) -> None:
    async def main() -> None:
        async with fake_cluster("T", TOPIC, queues=1) as cluster:
            async with Producer("p", namesrv=cluster.namesrv) as producer:
                sent = await producer.send(Message("T", b"x", keys="k"))
                await producer.send(Message(TOPIC, b"Odd"))
            settings = ConsumerSettings(
                namesrv=cluster.namesrv, trace=True, consume_from="first", ordered=way == "ordered"
            )
            seen: list[str] = []

            async def handle(message: ReceivedMessage) -> None:
                seen.append(message.topic)

            async with PushConsumer("g", settings=settings) as consumer:
                for topic in ("T", TOPIC):
                    consumer.subscribe(topic, handler=None if way == "iterating" else handle)
                if way == "iterating":
                    async for message in consumer:
                        await handle(message)
                        await message.ack()
                        if len(seen) == 2:
                            break
                await until(lambda: len(seen) == 2)
            found = [t for t in traces(cluster) if isinstance(t, SubBeforeTrace | SubAfterTrace)]
            assert [type(t) for t in found] == [SubBeforeTrace, SubAfterTrace]
            assert {(t.message_id, t.keys, t.group) for t in found} == {(sent.message_id, "k", "g")}
            groups = {c.ext["a"] for c in cluster.broker.seen if c.code == SEND and c.ext["b"] == TOPIC}
            assert any(group.startswith("_INNER_TRACE_PRODUCER-g-CONSUME-") for group in groups)

    run(main())


def test_consumers_of_one_instance_have_separate_hooks() -> None:
    class Count(ConsumeHook):
        def __init__(self) -> None:
            self.groups: list[str] = []

        def after_consume(self, context: ConsumeContext) -> None:
            self.groups.append(context.group)

    async def main() -> None:
        async with fake_cluster("T", queues=1) as cluster:
            async with Producer("p", namesrv=cluster.namesrv) as producer:
                await producer.send(Message("T", b"x"))
            hooks = [Count(), Count()]
            consumers = []
            for number, hook in enumerate(hooks):
                settings = ConsumerSettings(
                    namesrv=cluster.namesrv, instance_name="me", consume_from="first", hooks=(hook,)
                )
                consumer = PushConsumer(f"g{number}", settings=settings)
                consumer.subscribe("T", handler=lambda message: None)
                await consumer.start()
                consumers.append(consumer)
            await until(lambda: all(hook.groups for hook in hooks))
            for consumer in consumers:
                await consumer.close()
            assert [hook.groups for hook in hooks] == [["g0"], ["g1"]]

    run(main())


@pytest.mark.proves("client:B-114")
@pytest.mark.parametrize(
    ("kind", "success", "code"),
    [
        ("SUCCESS", True, 0),
        ("TIME_OUT", False, 1),
        ("EXCEPTION", False, 2),
        ("RETURNNULL", False, 3),
        ("FAILED", False, 4),
        ("", True, 0),
        ("", False, 4),
    ],
)
def test_outcomes_have_javas_codes(kind: str, success: bool, code: int) -> None:
    async def main() -> None:
        traced = Tracing("g", ClientSettings(namesrv="127.0.0.1:1", trace=True), "CONSUME")
        context = ConsumeContext(group="g", queue=received(1).queue, messages=[received(1)])
        traced.hook.before_consume(context)
        context.success, context.properties = success, {"ConsumeContextType": kind} if kind else {}
        traced.hook.after_consume(context)
        _, last = traced._waiting[-1]
        assert isinstance(last, SubAfterTrace) and last.context_code == code
        await traced.close()
        assert traced.dropped == 2

    run(main())


@pytest.mark.proves("client:B-117", "client:B-13")
def test_records_are_bounded_and_dropped_when_the_topic_is_unavailable(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "DRAIN_SECONDS", 0.5)

    async def test(cluster: FakeCluster, producer: Producer) -> None:
        traced = producer._tracing
        assert traced is not None
        assert await producer.send(Message("T", b"x"))
        await until(lambda: traced.dropped == 1)
        assert (
            "'RMQ_SYS_TRACE_TOPIC' are dropped: no broker has that topic; set traceTopicEnable" in caplog.text
        )
        record = RecallTrace(time=1, region="", group="", topic="T", message_id="m")
        traced.put("R", *[record] * (dispatcher.QUEUE_MAX + 10))
        assert traced.dropped == 11
        assert "dropped=11" in repr(traced)
        await producer.send(Message("T", b"x"))

    flow(test, trace=True, trace_batch=1)


@pytest.mark.proves("client:B-119", "client:B-13")
def test_closing_sends_waiting_records() -> None:
    async def main() -> None:
        async with fake_cluster("T", TOPIC) as cluster:
            settings = ClientSettings(namesrv=cluster.namesrv, trace=True)
            traced = Tracing("g", settings, "PRODUCE")
            traced.start()
            traced.hook.recalled("g", "T", "m", True)
            assert not traces(cluster), "a batch is not full"
            await traced.close()
            assert [t.message_id for t in traces(cluster)] == ["m"]
            traced.hook.recalled("g", "T", "late", True)
            assert traced.dropped == 1

    run(main())


@pytest.mark.proves("client:B-110", "client:G-28")
def test_clouds_traces_go_to_the_topic_of_their_region() -> None:
    async def main() -> None:
        async with fake_cluster("rmq_sys_TRACE_DATA_R", "rmq_sys_TRACE_DATA_S", TOPIC, queues=1) as cluster:
            settings = ConsumerSettings(namesrv=cluster.namesrv, trace=True, access_channel="cloud")
            traced = Tracing("g", settings, "CONSUME")
            traced.start()
            inner = received(9)
            inner.topic = "rmq_sys_TRACE_DATA_R"
            messages = [received(1), received(2, MSG_REGION="S"), inner]
            context = ConsumeContext(group="g", queue=messages[0].queue, messages=messages)
            traced.hook.before_consume(context)
            context.success = True
            traced.hook.after_consume(context)
            await traced.close()
            assert not stored(cluster)
            for region, number in (("R", 1), ("S", 2)):
                (record,) = stored(cluster, f"rmq_sys_TRACE_DATA_{region}")
                before, after = decode_trace_bodies([record.body])
                assert (before.message_id, after.message_id) == (f"M{number}", f"M{number}")
                assert isinstance(after, SubAfterTrace) and (after.time, after.group) == (0, "")
            assert traced.sent == 4

    run(main())


@pytest.mark.proves("client:B-110")
def test_region_without_a_topic_loses_its_traces_and_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        traced = producer._tracing
        assert traced is not None
        await producer.send(Message("T", b"x"))
        await until(lambda: traced.dropped == 1)
        assert "'rmq_sys_TRACE_DATA_DefaultRegion' are dropped: no broker" in caplog.text
        assert "traceTopicEnable" not in caplog.text, "which would not help"

    flow(test, trace=True, trace_batch=1, access_channel="cloud")


@pytest.mark.proves("client:B-117")
def test_messages_with_many_or_large_records_are_split() -> None:
    record = PubTrace(time=1, region="R", group="g", topic="T", message_id="m" * 32, tags="t" * 70_000)
    small = RecallTrace(time=1, region="R", group="g", topic="T", message_id="id")
    made = trace_messages(TOPIC, [small, record, record, record, small])
    assert sum(count for _, count in made) == 5 and len(made) > 2
    assert all(len(message.body) <= dispatcher.MESSAGE_BYTES_MAX for message, _ in made)
    assert decode_trace_bodies(message.body for message, _ in made) == [small, record, record, record, small]
    assert trace_messages(TOPIC, []) == []
    ((message, count),) = trace_messages(TOPIC, [small] * 20)
    assert count == 20 and list(message.keys) == ["id"]


@pytest.mark.proves("client:B-112", "client:B-117")
def test_keys_of_trace_messages_fit_properties_whatever_is_traced() -> None:
    ids = [f"{number:032}" for number in range(2000)]
    batch = PubTrace(time=1, region="R", group="g", topic="T", message_id=",".join(ids), keys="k" * 40_000)
    other = PubTrace(time=1, region="R", group="g", topic="T", message_id="other")
    (message, _), (last, _) = trace_messages(TOPIC, [batch, other])
    assert set(message.keys) <= set(ids) and 800 < len(set(message.keys)) < 1000
    assert len(message.keys_text) <= dispatcher.KEYS_BYTES_MAX and list(last.keys) == ["other"]


@pytest.mark.proves("client:B-112")
def test_each_lingering_message_can_be_found() -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        cluster.add_topic(TOPIC, 1)
        await asyncio.gather(*(producer.send(Message("T", b"x", keys=f"k{n}")) for n in range(3)))
        await until(lambda: traces(cluster))
        (trace,) = traces(cluster)
        assert isinstance(trace, PubTrace) and trace.keys == "k0 k1 k2"
        ids = trace.message_id.split(",")
        (record,) = stored(cluster)
        keys = properties.decode(record.properties)["KEYS"].split()
        assert set(keys) == {"k0", "k1", "k2", *ids} and len(keys) == 6

    flow(test, trace=True, trace_batch=1, linger=0.02)


@pytest.mark.proves("client:B-118", "client:B-70")
def test_trace_producer_accepts_only_request_hooks_and_is_off_by_default() -> None:
    async def main() -> None:
        class Rpc(RpcHook):
            pass

        class Send(SendHook):
            pass

        rpc, send = Rpc(), Send()
        given = {"hooks": (send, rpc), "instance_name": "x", "namespace": "ns"}
        settings = ClientSettings(namesrv="127.0.0.1:1", trace=True, **given)
        traced = Tracing("g", settings, "PRODUCE")
        made = traced._producer_settings()
        assert (made.hooks, made.trace, made.instance_name) == ((rpc,), False, None)
        assert made.namespace is None, "all name spaces share one trace topic"
        assert (made.send_timeout, made.message_bytes_max) == (5.0, 128_000)
        assert hooks_with(settings, traced) == (send, rpc, traced.hook)
        assert hooks_with(settings, None) == (send, rpc)
        assert tracing_of("g", ClientSettings(namesrv="127.0.0.1:1"), "PRODUCE") is None
        await traced.close()

    run(main())
