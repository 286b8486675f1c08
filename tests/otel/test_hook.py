"""Spans of sends, ends of transactions and consumption, as OpenTelemetry's exporter gets them."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from tests.client.fake import FakeCluster, answer
from tests.client.producing import SEND, flow
from tests.support import until, until_sync

import sparrowmq as mq
from sparrowmq.client.producer.producer import Producer
from sparrowmq.otel import OpenTelemetryHook, hook
from sparrowmq.protocol import properties
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.testing import LocalCluster


@dataclass
class Telemetry:
    """A hook, and the spans it made."""

    exporter: InMemorySpanExporter
    provider: TracerProvider
    hook: OpenTelemetryHook

    @property
    def tracer(self) -> trace.Tracer:
        return self.provider.get_tracer("test")

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


@pytest.fixture
def telemetry() -> Telemetry:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Telemetry(exporter, provider, OpenTelemetryHook(provider))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan | trace.Span) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def trace_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.trace_id


@pytest.mark.proves("client:B-120")
def test_a_message_s_way_is_one_trace(cluster: LocalCluster, telemetry: Telemetry) -> None:
    got: list[mq.ReceivedMessage] = []
    producing = mq.ProducerSettings(namesrv=cluster.namesrv, hooks=[telemetry.hook])
    message = mq.Message("Way", b"hello", tags="A", keys=["k1", "k2"])
    with (
        mq.Producer("p", settings=producing) as producer,
        telemetry.tracer.start_as_current_span("order") as order,
    ):
        result = producer.send(message)
    assert "traceparent" not in message.properties, "the caller's message stays as it was"
    consuming = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", hooks=[telemetry.hook])
    with mq.PushConsumer("c", settings=consuming) as consumer:
        consumer.subscribe("Way", handler=got.append)
        until_sync(lambda: telemetry.spans("From_Way"))
    (sent,), (received,) = telemetry.spans("To_Way"), telemetry.spans("From_Way")
    assert (sent.kind, received.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent_of(sent) == id_of(order) and parent_of(received) == id_of(sent)
    assert trace_of(received) == order.get_span_context().trace_id
    assert sent.attributes is not None and received.attributes is not None
    for span in (sent.attributes, received.attributes):
        assert (span["rocketmq.tags"], span["rocketmq.keys"]) == ("A", "k1 k2")
        assert span["rocketmq.mgs_id"] == result.message_id and span["rocketmq.success"] is True
        assert span["rocketmq.region_id"] == "DefaultRegion"
    assert f"{id_of(sent):016x}" in got[0].properties["traceparent"]
    in_handler = telemetry.tracer.start_span("billing", context=telemetry.hook.context_of(got[0]))
    assert parent_of(in_handler) == id_of(sent)  # type: ignore[arg-type]


@pytest.mark.proves("client:B-120")
def test_each_thread_s_sends_belong_to_its_own_span(cluster: LocalCluster, telemetry: Telemetry) -> None:
    settings = mq.ProducerSettings(namesrv=cluster.namesrv, hooks=[telemetry.hook])
    expected: dict[str, int] = {}

    def work(name: str) -> None:
        with telemetry.tracer.start_as_current_span(name) as span:
            expected[name] = id_of(span)
            for _ in range(5):
                producer.send(mq.Message("Threads", b"x", keys=name))
            producer.send_async(mq.Message("Threads", b"x", keys=name)).result(10)
            producer.send(mq.Message("Threads", b"x", keys=name), hash_key=name)

    with mq.Producer("p", settings=settings) as producer:
        threads = [threading.Thread(target=work, args=(f"t{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    spans = telemetry.spans("To_Threads")
    assert len(spans) == 28
    for span in spans:
        assert span.attributes is not None
        assert parent_of(span) == expected[str(span.attributes["rocketmq.keys"])]


@pytest.mark.proves("client:B-120")
@pytest.mark.parametrize("way", ["poll", "pull"])
def test_pull_consumers_have_spans_as_well(cluster: LocalCluster, telemetry: Telemetry, way: str) -> None:
    topic = f"Pull_{way}"
    settings = mq.ProducerSettings(namesrv=cluster.namesrv, hooks=[telemetry.hook])
    with mq.Producer("p", settings=settings) as producer:
        result = producer.send(mq.Message(topic, b"x"))
    pulling = mq.PullSettings(namesrv=cluster.namesrv, hooks=[telemetry.hook])
    with mq.PullConsumer(topic, settings=pulling) as consumer:
        if way == "poll":
            consumer.assign([result.queue])
            consumer.seek_to_begin(result.queue)
            assert len(consumer.poll(10)) == 1
        else:
            consumer.queues(topic)
            assert len(consumer.pull(result.queue, result.queue_offset).messages) == 1
    (sent,), (received,) = telemetry.spans(f"To_{topic}"), telemetry.spans(f"From_{topic}")
    assert parent_of(received) == id_of(sent)


class Decides:
    """Commits when asked to check, and leaves it open or commits at first."""

    def __init__(self, first: mq.TransactionState) -> None:
        self.first = first

    def execute(self, message: mq.HalfMessage, argument: Any) -> mq.TransactionState:
        return self.first

    def check(self, message: mq.ReceivedMessage) -> mq.TransactionState:
        return mq.TransactionState.COMMIT


@pytest.mark.proves("client:B-120")
def test_the_end_of_a_transaction_is_part_of_the_trace(telemetry: Telemetry) -> None:
    made = LocalCluster(transaction_time_out=200, transaction_check_interval=200)
    with made as cluster:
        settings = mq.ProducerSettings(namesrv=cluster.namesrv, hooks=[telemetry.hook])
        listener = Decides(mq.TransactionState.UNKNOWN)
        with mq.Producer("p", settings=settings, transaction_listener=listener) as producer:
            producer.send_in_transaction(mq.Message("Tx", b"x"))
            until_sync(lambda: len(telemetry.spans("EndTransaction")) >= 2)
    (half,) = telemetry.spans("To_Tx")
    assert half.attributes is not None and half.attributes["rocketmq.mgs_type"] == "Trans_Msg_Half"
    first, checked, *_ = telemetry.spans("EndTransaction")
    for span, state, from_check in ((first, "UNKNOW", False), (checked, "COMMIT_MESSAGE", True)):
        assert parent_of(span) == id_of(half), "also when a broker asked, as the message carries it"
        assert span.attributes is not None and span.kind is SpanKind.PRODUCER
        assert span.attributes["rocketmq.transaction_state"] == state
        assert span.attributes["rocketmq.is_from_transaction_check"] is from_check
        assert span.attributes["rocketmq.mgs_id"] == half.attributes["rocketmq.mgs_id"]
        assert span.attributes["rocketmq.mgs_type"] == "Trans_msg_Commit"
    assert not telemetry.hook._halves


def test_half_messages_that_are_never_ended_are_bounded(
    telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook, "HALVES_MAX", 2)
    queue = mq.MessageQueue("T", "b", 0)
    for number in range(4):
        sent = mq.SendContext(
            group="g",
            mode=mq.SendMode.SYNC,
            messages=[mq.Message("T", b"x")],
            message_id=f"M{number}",
            queue=queue,
            address="a:1",
            client_address="c",
            message_type=mq.MessageType.HALF,
        )
        telemetry.hook.before_send(sent)
        sent.result = mq.SendResult(mq.SendStatus.SEND_OK, f"M{number}", "off", queue, 0)
        telemetry.hook.after_send(sent)
    assert list(telemetry.hook._halves) == ["M2", "M3"]
    ended = mq.EndTransactionContext(
        group="g",
        message=mq.Message("T", b"x"),
        message_id="M0",
        transaction_id="M0",
        address="a:1",
        state="COMMIT_MESSAGE",
        from_check=False,
    )
    telemetry.hook.end_transaction(ended)
    (span,) = telemetry.spans("EndTransaction")
    assert span.parent is None


def test_each_try_has_a_span_with_what_came_of_it(telemetry: Telemetry) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        answers = [answer(1, remark="no room"), answer(13, remark="illegal")]
        cluster.broker.on[SEND] = lambda conn, c: answers.pop(0)
        with pytest.raises(mq.BrokerError, match="illegal"), telemetry.tracer.start_as_current_span("o") as o:
            await producer.send(mq.Message("T", b"x"))
        first, second = telemetry.spans("To_T")
        for span, text in ((first, "no room"), (second, "illegal")):
            assert parent_of(span) == id_of(o) and span.status.status_code is StatusCode.ERROR
            assert text in str(span.status.description) and span.events[0].name == "exception"
            assert span.attributes is not None and span.attributes["rocketmq.success"] is False
        parents = [sent.ext["i"].split("traceparent\x01")[1] for sent in cluster.broker.requests(SEND)]
        assert [one.split("-")[2] for one in parents] == [f"{id_of(one):016x}" for one in (first, second)]

    flow(test, hooks=[telemetry.hook])


def test_one_way_sends_and_batches_have_a_span(telemetry: Telemetry) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        await producer.send_oneway(mq.Message("T", b"x"))
        await until(lambda: cluster.broker.requests(SEND))
        await producer.send_batch([mq.Message("T", b"x"), mq.Message("T", b"y")])
        oneway, batch = telemetry.spans("To_T")
        assert oneway.attributes is not None and "rocketmq.success" not in oneway.attributes
        assert batch.attributes is not None and batch.attributes["messaging.batch.message_count"] == 2
        assert "traceparent" in cluster.broker.requests(SEND)[0].ext["i"]
        (request,) = cluster.broker.requests(320)
        members = [properties.decode(own)["traceparent"] for _, _, own in decode_batch(request.body)]
        assert [one.split("-")[2] for one in members] == [f"{id_of(batch):016x}"] * 2
        assert "traceparent" not in request.ext["i"], "the batch itself is no message"

    flow(test, hooks=[telemetry.hook])


def test_a_context_that_a_message_brings_along_is_the_parent_and_is_replaced(telemetry: Telemetry) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        with telemetry.tracer.start_as_current_span("ignored"):
            await producer.send(mq.Message("T", b"x", properties={"traceparent": given, "other": "1"}))
        (span,) = telemetry.spans("To_T")
        assert parent_of(span) == 0xB7AD6B7169203331
        assert f"{trace_of(span):032x}" in given
        (text,) = (sent.ext["i"] for sent in cluster.broker.requests(SEND))
        assert text.count("traceparent") == 1 and f"{id_of(span):016x}" in text and "other\x011" in text
        await producer.send(mq.Message("T", b"x", properties={"traceparent": "nonsense"}))
        assert telemetry.spans("To_T")[1].parent is None

    flow(test, hooks=[telemetry.hook])


@pytest.mark.proves("client:B-120", "client:B-77")
def test_messages_that_are_gathered_carry_the_span_of_their_batch(
    cluster: LocalCluster, telemetry: Telemetry
) -> None:
    got: list[mq.ReceivedMessage] = []
    settings = mq.ProducerSettings(namesrv=cluster.namesrv, hooks=[telemetry.hook], linger=0.05)
    with mq.Producer("p", settings=settings) as producer:
        for sent in [producer.send_async(mq.Message("Gathered", b"%d" % n)) for n in range(5)]:
            sent.result(10)
    consuming = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", hooks=[telemetry.hook])
    with mq.PushConsumer("gathered", settings=consuming) as consumer:
        consumer.subscribe("Gathered", handler=got.append)
        until_sync(lambda: len(telemetry.spans("From_Gathered")) == 5)
    batches = {id_of(span) for span in telemetry.spans("To_Gathered")}
    assert {parent_of(span) for span in telemetry.spans("From_Gathered")} == batches
    assert len({one.message_id for one in got}) == 5


def test_what_is_not_sampled_still_travels(cluster: LocalCluster) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=ALWAYS_OFF)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = mq.ProducerSettings(namesrv=cluster.namesrv, hooks=[OpenTelemetryHook(provider)])
    with mq.Producer("p", settings=settings) as producer:
        result = producer.send(mq.Message("Quiet", b"x"))
    with mq.PullConsumer(namesrv=cluster.namesrv) as consumer:
        consumer.queues("Quiet")
        (message,) = consumer.pull(result.queue, result.queue_offset).messages
    assert not int(message.properties["traceparent"].rpartition("-")[2], 16) & 1
    assert not exporter.get_finished_spans()


def test_another_propagator_and_the_client_s_own_traces(cluster: LocalCluster, telemetry: Telemetry) -> None:
    mine = OpenTelemetryHook(telemetry.provider, W3CBaggagePropagator())
    settings = mq.ProducerSettings(namesrv=cluster.namesrv, hooks=[mine, telemetry.hook], trace=True)
    token = context.attach(baggage.set_baggage("tenant", "a b"))
    try:
        with mq.Producer("p", settings=settings) as producer:
            result = producer.send(mq.Message("Both", b"x"))
            tracing = producer._inner._tracing
    finally:
        context.detach(token)
    assert tracing is not None and tracing.sent + tracing.dropped == 1
    assert len(telemetry.spans("To_Both")) == 2
    with mq.PullConsumer(namesrv=cluster.namesrv) as consumer:
        consumer.queues("Both")
        (message,) = consumer.pull(result.queue, result.queue_offset).messages
    assert "traceparent" in message.properties
    assert baggage.get_baggage("tenant", mine.context_of(message)) == "a b"


def test_a_handler_that_fails_is_an_error_of_its_span(cluster: LocalCluster, telemetry: Telemetry) -> None:
    def handle(message: mq.ReceivedMessage) -> None:
        raise ValueError("bad")

    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send(mq.Message("Bad", b"x"))
    consuming = mq.ConsumerSettings(
        namesrv=cluster.namesrv, consume_from="first", hooks=[telemetry.hook], max_reconsume_times=0
    )
    with mq.PushConsumer("bad", settings=consuming) as consumer:
        consumer.subscribe("Bad", handler=handle)
        until_sync(lambda: telemetry.spans("From_Bad"))
    (span,) = telemetry.spans("From_Bad")
    assert span.parent is None and span.status.status_code is StatusCode.ERROR
    assert span.status.description == "RECONSUME_LATER"
    assert span.attributes is not None and span.attributes["rocketmq.success"] is False


def test_without_opentelemetry_the_extra_is_named() -> None:
    code = "import sys; sys.modules['opentelemetry'] = None\nimport sparrowmq\nimport sparrowmq.otel"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "sparrowmq.otel needs OpenTelemetry's API: pip install 'sparrowmq[otel]'" in done.stderr
