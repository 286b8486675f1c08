from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest
from tests.support import about

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import BrokerError, ConnectionLostError, NoRouteError, SparrowError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.loops.event_loop import LoopThread, loop_thread
from sparrowmq.spark.cluster import retry
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write import log_once
from sparrowmq.spark.write.routing import Destination
from sparrowmq.spark.write.send import TaskSender

Q0, Q1 = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
OPTIONS = WriteOptions(name_server="stub:1", topic="t", max_in_flight=4)


@dataclass
class StubProducer:
    """Stores bodies in the order they come; `faults` are raised by the next sends."""

    faults: list[SparrowError] = field(default_factory=list)
    stored: list[tuple[MessageQueue | None, bytes]] = field(default_factory=list)
    in_flight: int = 0
    peak: int = 0
    queues_asked: int = 0
    left: list[MessageQueue] = field(default_factory=list)
    """Queues that the topic no longer has."""
    unrouted: bool = False
    """Whether the client knows that."""

    async def send_encoded_batch(
        self, topic: str, body: bytes, count: int, *, queue: MessageQueue | None = None
    ) -> SendResult:
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        try:
            for _ in range(3):
                await asyncio.sleep(0)
            if self.faults:
                raise self.faults.pop(0)
            if queue in self.left:
                refused = BrokerError(1, f"request queueId[{queue.queue_id}] is illegal")
                raise NoRouteError(f"no queue {queue}") if self.unrouted else refused
        finally:
            self.in_flight -= 1
        self.stored.append((queue, body))
        return SendResult(SendStatus.SEND_OK, "", "", queue or Q0, 0)

    async def send(self, message: Message, *, queue: MessageQueue | None = None) -> SendResult:
        return await self.send_encoded_batch(message.topic, message.body, 1, queue=queue)

    async def queues(self, topic: str) -> list[MessageQueue]:
        self.queues_asked += 1
        return [queue for queue in (Q0, Q1) if not self.unrouted or queue not in self.left]


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopThread]:
    monkeypatch.setattr(retry, "BACKOFF", Backoff(first=0.0001, most=0.0001))
    thread = LoopThread()
    yield thread
    thread.close()


def test_sends_are_bounded_and_counted(loop: LoopThread) -> None:
    producer = StubProducer()
    sender = TaskSender(loop, producer, OPTIONS)
    for index in range(50):
        sender.submit(Destination("t" if index % 2 else "s"), b"%d" % index, 10)
    sender.finish()
    assert 1 < producer.peak <= 4
    assert len(producer.stored) == 50
    assert sender.sent == {"t": 250, "s": 250}


def test_sends_to_one_queue_keep_their_order(loop: LoopThread) -> None:
    producer = StubProducer(faults=[ConnectionLostError("gone"), ConnectionLostError("gone")])
    sender = TaskSender(loop, producer, OPTIONS)
    for index in range(40):
        sender.submit(Destination("t", (Q0, Q1)[index % 2]), b"%02d" % index, 1)
    sender.finish()
    for queue in (Q0, Q1):
        bodies = [body for found, body in producer.stored if found == queue]
        assert bodies == sorted(bodies)
        assert len(bodies) == 20


def test_a_fault_that_stays_ends_the_task(loop: LoopThread) -> None:
    for destination in (Destination("t", Q0), Destination("t")):
        producer = StubProducer(faults=[ConnectionLostError("gone for good") for _ in range(10_000)])
        sender = TaskSender(loop, producer, replace(OPTIONS, broker_timeout=0.02))
        sender.submit(destination, b"x", 1)
        with pytest.raises(ConnectionLostError, check=about(args=("gone for good",))) as failed:
            sender.finish()
        assert "option brokerTimeoutMs is 20" in failed.value.__notes__[0]
        assert 1 < 10_000 - len(producer.faults) < 10_000
        assert sender.sent == {}
        assert producer.stored == []


@pytest.mark.parametrize("destination", [Destination("t", Q0), Destination("t")])
def test_a_broker_may_be_away_for_many_tries(loop: LoopThread, destination: Destination) -> None:
    producer = StubProducer(faults=[ConnectionLostError("gone")] * 50)
    sender = TaskSender(loop, producer, OPTIONS)
    sender.submit(destination, b"x", 1)
    sender.finish()
    assert producer.stored == [(destination.queue, b"x")]


def test_a_topic_that_lost_its_route_is_waited_for_and_one_that_never_had_any_is_not(
    loop: LoopThread,
) -> None:
    producer = StubProducer(faults=[NoRouteError("no route")])
    sender = TaskSender(loop, producer, OPTIONS)
    sender.submit(Destination("t"), b"x", 1)
    with pytest.raises(NoRouteError):
        sender.finish()
    sender.submit(Destination("t"), b"y", 1)
    sender.finish()
    producer.faults = [NoRouteError("no route")]
    sender.submit(Destination("t"), b"z", 1)
    sender.submit(Destination("t", Q1), b"q", 1)
    sender.finish()
    assert sorted(body for _, body in producer.stored) == [b"q", b"y", b"z"]


def test_a_lasting_fault_is_not_tried_again(loop: LoopThread) -> None:
    producer = StubProducer(faults=[BrokerError(16, "no permission")])
    sender = TaskSender(loop, producer, OPTIONS)
    sender.submit(Destination("t", Q0), b"x", 1)
    with pytest.raises(BrokerError, check=about(code=16, remark="no permission")):
        sender.finish()
    assert producer.stored == []


def test_a_failure_shows_while_more_is_submitted(loop: LoopThread) -> None:
    producer = StubProducer(faults=[BrokerError(16, "no permission")])
    sender = TaskSender(loop, producer, OPTIONS)
    with pytest.raises(BrokerError, check=about(code=16, remark="no permission")):
        for _ in range(10):
            sender.submit(Destination("t"), b"x", 1)
    sender.cancel()
    sender.finish()


def test_a_topics_queues_are_asked_for_once(loop: LoopThread) -> None:
    producer = StubProducer()
    sender = TaskSender(loop, producer, OPTIONS)
    assert sender.queues("t") == sender.queues("t") == [Q0, Q1]
    assert producer.queues_asked == 1


def test_messages_for_later_go_alone_and_are_tried_again(loop: LoopThread) -> None:
    stub = StubProducer(faults=[ConnectionLostError("gone")])
    sender = TaskSender(loop, stub, OPTIONS)
    sender.submit_delayed(Destination("t", Q1), Message("t", b"a", delay_level=1))
    sender.finish()
    sender.submit_delayed(Destination("t"), Message("t", b"b", delay_level=1))
    sender.finish()
    assert stub.stored == [(Q1, b"a"), (None, b"b")]
    assert sender.sent == {"t": 2}


@pytest.mark.parametrize("unrouted", [False, True])
def test_what_a_queue_does_not_take_because_it_left_goes_to_another(
    loop: LoopThread, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, unrouted: bool
) -> None:
    monkeypatch.setitem(loop_thread()._kept, log_once._Logged, log_once._Logged())
    stub = StubProducer(unrouted=unrouted)
    sender = TaskSender(loop, stub, OPTIONS)
    assert Q1 in sender.queues("t")
    stub.left = [Q1]
    for body in (b"a", b"b"):
        sender.submit(Destination("t", Q1), body, 1)
    sender.submit_delayed(Destination("t", Q1), Message("t", b"c", delay_level=1))
    sender.finish()
    assert sorted(stub.stored) == [(Q0, b"a"), (Q0, b"b"), (Q0, b"c")]
    assert caplog.text.count("the rest of the rows for t/b/1 go to t/b/0: queue t/b/1 takes no messages") == 1


def test_a_queue_that_a_row_names_and_its_topic_never_had_is_an_error(loop: LoopThread) -> None:
    sender = TaskSender(loop, StubProducer(left=[Q1]), replace(OPTIONS, broker_timeout=0.02))
    sender.submit(Destination("t", Q1), b"a", 1)
    with pytest.raises(BrokerError, check=about(code=1)):
        sender.finish()
