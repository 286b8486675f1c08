"""Metrics of sends and consumption, as OpenTelemetry's reader gets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from tests.client.fake import FakeCluster, answer
from tests.client.producing import SEND, flow
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.client.producer.producer import Producer
from sparrowmq.hooks import PopContext, PullLoopContext, SettleContext
from sparrowmq.otel import MeterHook
from sparrowmq.otel import invisible as invisible_messages
from sparrowmq.otel.invisible import InvisibleMessages
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.pop.receipts import Receipt
from sparrowmq.testing import LocalCluster

SENT = "messaging.client.sent.messages"
OPERATION = "messaging.client.operation.duration"
CONSUMED = "messaging.client.consumed.messages"
PROCESS = "messaging.process.duration"
SENDING = "sparrowmq.client.messages.sending"
IN_HAND = "sparrowmq.client.messages.in_hand"
PULLED = "sparrowmq.client.messages.pulled"
HELD_UP = "sparrowmq.client.pull.held_up"
SETTLED = "sparrowmq.client.messages.settled"
INVISIBLE = "sparrowmq.client.messages.invisible"


@dataclass
class Meters:
    """A hook, and what it measured."""

    reader: InMemoryMetricReader
    hook: MeterHook

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        found = [] if data is None else [one for by in data.resource_metrics for one in by.scope_metrics]
        return [
            point
            for scope in found
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def by_error(self, name: str) -> dict[str | None, float]:
        """Counts or numbers of durations, by `error.type`."""
        return {
            one.attributes.get("error.type"): one.count if isinstance(one, HistogramDataPoint) else one.value
            for one in self.points(name)
        }


@pytest.fixture
def meters() -> Meters:
    reader = InMemoryMetricReader()
    return Meters(reader, MeterHook(MeterProvider([reader], shutdown_on_exit=False)))


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as running:
        yield running


def test_sends_and_handler_calls_are_measured(cluster: LocalCluster, meters: Meters) -> None:
    in_hand: list[float] = []

    def handle(message: mq.ReceivedMessage) -> None:
        in_hand.append(sum(one.value for one in meters.points(IN_HAND)))
        if message.body == b"bad":
            raise ValueError("bad")

    producing = mq.ProducerSettings(namesrv=cluster.namesrv, hooks=[meters.hook])
    with mq.Producer("p", settings=producing) as producer:
        producer.send(mq.Message("Measured", b"bad"))
        producer.send_batch([mq.Message("Measured", b"good") for _ in range(4)])
    assert meters.by_error(SENT) == {None: 5}
    assert meters.by_error(SENDING) == {None: 0}
    (sent,) = meters.points(OPERATION)
    host, _, port = cluster.broker_address.rpartition(":")
    assert sent.count == 2 and 0 < sent.sum < 10
    assert sent.explicit_bounds[0] == 0.005, "seconds, not the default bounds"
    assert sent.attributes == {
        "messaging.system": "rocketmq",
        "messaging.destination.name": "Measured",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "server.address": host,
        "server.port": int(port),
    }
    consuming = mq.ConsumerSettings(namesrv=cluster.namesrv, consume_from="first", hooks=[meters.hook])
    with mq.PushConsumer("c", settings=consuming) as consumer:
        consumer.subscribe("Measured", handler=handle)
        until_sync(lambda: sum(meters.by_error(PROCESS).values()) >= 5)
    assert meters.by_error(PROCESS) == {None: 4, "RECONSUME_LATER": 1}
    assert sum(one.value for one in meters.points(CONSUMED)) == 5
    assert min(in_hand) >= 1, "at least the handler's own"
    assert sum(one.value for one in meters.points(IN_HAND)) == 0
    assert {one.attributes["messaging.consumer.group.name"] for one in meters.points(CONSUMED)} == {"c"}


def test_each_attempt_counts_with_its_error(meters: Meters) -> None:
    async def test(cluster: FakeCluster, producer: Producer) -> None:
        ext = {"msgId": "M", "queueId": "0", "queueOffset": "0"}
        answers = [answer(ResponseCode.SYSTEM_ERROR), answer(ResponseCode.FLUSH_DISK_TIMEOUT, ext=ext)]
        cluster.broker.on[SEND] = lambda conn, c: answers.pop(0)
        await producer.send(mq.Message("T", b"x"))

    flow(test, hooks=[meters.hook])
    assert meters.by_error(SENT) == {"BrokerError": 1, "FLUSH_DISK_TIMEOUT": 1}
    assert meters.by_error(OPERATION) == meters.by_error(SENT)
    assert meters.by_error(SENDING) == {None: 0}


@pytest.mark.parametrize("polls", [False, True])
def test_pulls_are_measured(cluster: LocalCluster, meters: Meters, polls: bool) -> None:
    topic = f"Pulled{polls}"
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message(topic, b"x") for _ in range(7)])
    shared: dict[str, Any] = {"namesrv": cluster.namesrv, "consume_from": "first", "hooks": [meters.hook]}

    def pulled() -> float:
        return float(sum(one.value for one in meters.points(PULLED)))

    if polls:
        with mq.PullConsumer("c", **shared) as poller:
            poller.subscribe(topic)
            until_sync(lambda: (poller.poll(0.1) and pulled() == 7) or pulled() == 7)
    else:
        with mq.PushConsumer("c", **shared) as consumer:
            consumer.subscribe(topic, handler=lambda message: None)
            until_sync(lambda: pulled() == 7)
    (point,) = [one for one in meters.points(PULLED) if one.value]
    assert point.attributes["messaging.destination.name"] == topic
    assert point.attributes["messaging.operation.type"] == "receive"
    assert any(one.attributes["messaging.operation.type"] == "receive" for one in meters.points(OPERATION))


def test_a_failed_pull_has_its_error_and_a_loop_that_waited_its_time(meters: Meters) -> None:
    queue = mq.MessageQueue("T", "b", 0)
    meters.hook.after_pull(PullLoopContext(group="g", queue=queue, seconds=0.5, held_up=2.5))
    meters.hook.after_pull(
        PullLoopContext(group="g", queue=queue, seconds=3.0, error=mq.RequestTimeoutError("x"))
    )
    assert meters.by_error(OPERATION) == {None: 1, "RequestTimeoutError": 1}
    (held_up,) = meters.points(HELD_UP)
    assert held_up.value == 2.5
    assert held_up.attributes["messaging.consumer.group.name"] == "g"


def test_pops_and_what_becomes_of_their_messages_are_measured(cluster: LocalCluster, meters: Meters) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message("Popped", b"x") for _ in range(3)])
    with mq.SimpleConsumer("c", namesrv=cluster.namesrv, hooks=[meters.hook]) as consumer:
        consumer.subscribe("Popped")
        found = until_sync(lambda: consumer.receive(3, wait=5.0))
        while len(found) < 3:
            found += consumer.receive(3, wait=5.0)
        assert (pulled(meters), invisible(meters)) == (3, {("Popped", "c"): 3})
        consumer.ack(found[0])
        consumer.change_invisible(found[1], 60.0)
        consumer.ack(found[1])
        consumer.change_invisible(found[2], 0)
        assert invisible(meters) == {}
    operations = {
        (one.attributes["messaging.operation.type"], one.attributes["messaging.operation.name"]): one
        for one in meters.points(OPERATION)
    }
    assert set(operations) == {("receive", "receive"), ("settle", "ack"), ("settle", "change_invisible")}
    assert operations["settle", "ack"].count == operations["settle", "change_invisible"].count == 2
    assert operations["settle", "ack"].attributes["messaging.consumer.group.name"] == "c"
    settled = {one.attributes["messaging.operation.name"]: one.value for one in meters.points(SETTLED)}
    assert settled == {"ack": 2, "change_invisible": 2}


def test_push_consumer_that_uses_pop_is_measured(cluster: LocalCluster, meters: Meters) -> None:
    with mq.Producer("p", namesrv=cluster.namesrv) as producer:
        producer.send_batch([mq.Message("PushPopped", b"x") for _ in range(3)])
    with mq.Admin(namesrv=cluster.namesrv) as admin:
        admin.groups.set_request_mode("pp", "PushPopped", "POP")
    given: dict[str, Any] = {"server_assignment": True, "rebalance_interval_min": 0.1}
    with mq.PushConsumer(
        "pp", namesrv=cluster.namesrv, consume_from="first", hooks=[meters.hook], **given
    ) as consumer:
        consumer.subscribe("PushPopped", handler=lambda message: None)
        until_sync(lambda: sum(one.value for one in meters.points(SETTLED)) == 3)
        until_sync(lambda: invisible(meters) == {})
    assert pulled(meters) == 3


def test_failed_pops_and_acknowledgements_have_their_error(meters: Meters) -> None:
    receipt = Receipt(0, 0, 0, 0, "0", "b", 0)
    error = mq.RequestTimeoutError("x")
    queue = mq.MessageQueue("T", "b", -1)
    meters.hook.after_pop(
        PopContext(group="g", queue=queue, seconds=1.0, invisible=30.0, held_up=2.5, error=error)
    )
    meters.hook.after_settle(SettleContext(group="g", topic="T", receipt=receipt, seconds=1.0, error=error))
    assert meters.by_error(OPERATION) == {"RequestTimeoutError": 1}
    assert meters.by_error(SETTLED) == {"RequestTimeoutError": 1}
    (held_up,) = meters.points(HELD_UP)
    assert held_up.value == 2.5


def test_messages_are_invisible_until_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    messages = InvisibleMessages(lambda: now[0])

    def popped(*offsets: int, invisible: float = 10.0) -> None:
        receipts = [Receipt(0, 0, 0, 0, "0", "b", 0, offset) for offset in offsets]
        queue = mq.MessageQueue("T", "b", -1)
        messages.popped(
            PopContext(group="g", queue=queue, seconds=0.1, invisible=invisible, receipts=receipts)
        )

    popped(0, 1)
    popped(2, invisible=30.0)
    assert messages.counts() == {("T", "g"): 3}
    now[0] += 10.0
    assert messages.counts() == {("T", "g"): 1}
    popped()
    assert len(messages._until) == 1, "they are forgotten"
    monkeypatch.setattr(invisible_messages, "MESSAGES_MAX", 2)
    popped(3, 4)
    assert messages.counts() == {("T", "g"): 2}


def pulled(meters: Meters) -> float:
    return float(sum(one.value for one in meters.points(PULLED)))


def invisible(meters: Meters) -> dict[tuple[str, str], float]:
    """By topic and group."""
    names = ("messaging.destination.name", "messaging.consumer.group.name")
    return {
        (one.attributes[names[0]], one.attributes[names[1]]): one.value
        for one in meters.points(INVISIBLE)
        if one.value
    }
