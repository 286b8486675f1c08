"""Numbered sends of a task against a broker's own table: tries that repeat, stop, change their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrowmq.columnar.encode import MessageColumns
from sparrowmq.core.errors import BrokerError, SequenceTooOldError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import SendResult, SendStatus
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.producer_mark import first_of_run, known_from
from sparrowmq.spark import numbered
from sparrowmq.spark.identity import STEPS_MAX, RowIdentity
from sparrowmq.spark.loop import LoopThread
from sparrowmq.spark.numbered import NumberedSender
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.queue_choice import QueueChoice
from sparrowmq.store.producer_state import Finding, ProducerTable

Q0, Q1 = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
IDENTITY = RowIdentity("query", 7, 3)
CODES = {Finding.GAP: 90001, Finding.FENCED: 90004, Finding.UNKNOWN: 90005, Finding.LIMIT: 90006}


@dataclass
class JudgingBroker:
    """Judges as a broker does; `dies_after` batches it answers nothing more."""

    table: ProducerTable = field(default_factory=ProducerTable)
    held: dict[MessageQueue, list[bytes]] = field(default_factory=lambda: {Q0: [], Q1: []})
    dies_after: int | None = None
    judges: bool = True
    sends: int = 0

    async def send_encoded_batch(
        self,
        topic: str,
        body: bytes,
        count: int,
        *,
        queue: MessageQueue | None = None,
        numbered: bool = False,
    ) -> SendResult:
        assert queue is not None and numbered
        if self.dies_after is not None and self.sends >= self.dies_after:
            raise SparrowError("the task was killed")
        self.sends += 1
        items = decode_batch(body)
        assert len(items) == count
        mark, _ = first_of_run(own for _, _, own in items)
        assert mark is not None
        verdict = self.table.judge(topic, queue.queue_id, mark, count, 0)
        if verdict.finding is Finding.TOO_OLD:
            raise SequenceTooOldError(90002, "", known_from=known_from(verdict.text) or 0)
        if verdict.finding is not Finding.TAKE:
            raise BrokerError(CODES[verdict.finding], verdict.text)
        held = self.held[queue]
        bodies = [item for _, item, _ in items]
        for offset, sent in zip(verdict.repeated, bodies, strict=False):
            if held[offset] != sent:
                raise BrokerError(90003, "another message")
        known = len(verdict.repeated)
        if known < count:
            later = mark._replace(sequence=mark.sequence + known)
            self.table.note(topic, queue.queue_id, later, count - known, len(held), 0)
            held += bodies[known:]
        return SendResult(SendStatus.SEND_OK, "", "", queue, 0, idempotent=self.judges)

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [Q0, Q1]

    def disturb(self, queue: MessageQueue) -> None:
        """Another producer's message, so that ranges do not join."""
        self.held[queue].append(b"foreign")

    @property
    def own(self) -> Counter[bytes]:
        return Counter(body for held in self.held.values() for body in held if body != b"foreign")


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


def task(
    loop: LoopThread,
    broker: JudgingBroker,
    rows: Sequence[bytes],
    *,
    piece: int = 3,
    identity: RowIdentity = IDENTITY,
    disturbed: bool = False,
) -> NumberedSender:
    """One try of a task: `piece` rows a send, the queues in turn."""
    options = WriteOptions(name_server="stub:1", topic="t", max_in_flight=1, retries=0)
    sender = NumberedSender(loop, broker, options, identity, None)
    try:
        for number, start in enumerate(range(0, len(rows), piece)):
            queue = (Q0, Q1)[number % 2]
            if disturbed:
                sender.finish()
                broker.disturb(queue)
            sender.submit_rows(queue, MessageColumns(body=pa.array(rows[start : start + piece], pa.binary())))
        sender.finish()
    except BaseException:
        sender.cancel()
        raise
    return sender


def rows_of(count: int) -> list[bytes]:
    return [b"r%d" % number for number in range(count)]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 120), st.lists(st.integers(0, 40), max_size=3), st.booleans())
def test_tries_that_stop_anywhere_store_every_row_once(
    loop: LoopThread, count: int, stops: list[int], disturbed: bool
) -> None:
    broker, rows = JudgingBroker(), rows_of(count)
    for stop in stops:
        broker.sends, broker.dies_after = 0, stop
        try:
            task(loop, broker, rows, disturbed=disturbed)
        except SparrowError:
            continue
    broker.dies_after = None
    sender = task(loop, broker, rows, disturbed=disturbed)
    assert broker.own == Counter(rows) and sender.exactly_once
    assert sender.sent["t"] == count


@settings(max_examples=40, deadline=None)
@given(st.permutations(rows_of(50)), st.integers(0, 20), st.booleans())
def test_rows_in_another_order_are_never_lost(
    loop: LoopThread, other: list[bytes], stop: int, disturbed: bool
) -> None:
    broker = JudgingBroker(dies_after=stop)
    try:
        task(loop, broker, rows_of(50), disturbed=disturbed)
    except SparrowError:
        pass
    broker.dies_after = None
    task(loop, broker, other, disturbed=disturbed)
    assert set(broker.own) == set(rows_of(50))


def test_pieces_of_another_size_are_the_same_rows(loop: LoopThread) -> None:
    broker, rows = JudgingBroker(), rows_of(60)
    options = WriteOptions(name_server="stub:1", topic="t", retries=0)
    for pieces in (7, 60, 1):
        sender = NumberedSender(loop, broker, options, IDENTITY, None)
        for start in range(0, 60, pieces):
            sender.finish()
            broker.disturb(Q0)
            columns = MessageColumns(body=pa.array(rows[start : start + pieces], pa.binary()))
            sender.submit_rows(Q0, columns)
        sender.finish()
        assert sender.exactly_once
    assert broker.own == Counter(rows)


def test_other_rows_are_told_and_sent_under_a_later_epoch(
    loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    broker = JudgingBroker()
    task(loop, broker, rows_of(6))
    sender = task(loop, broker, [b"x%d" % number for number in range(6)])
    assert not sender.exactly_once and broker.own.total() == 12
    assert caplog.text.count("are not those of an earlier try") == 1
    assert "option idempotenceKey" in caplog.text
    held = broker.table.find(IDENTITY.producer_id("t"), "t", 0)
    assert held is not None and held.epoch == IDENTITY.epoch(1)
    task(loop, broker, [b"x%d" % number for number in range(6)])
    assert broker.own.total() == 12, "a third try finds the second one's rows"


def test_the_next_batch_is_another_epoch_of_the_same_producer(loop: LoopThread) -> None:
    broker = JudgingBroker()
    task(loop, broker, rows_of(6))
    task(loop, broker, rows_of(6), identity=RowIdentity("query", 8, 3))
    assert broker.own.total() == 12 and len(broker.table) == 2


def test_a_try_of_an_earlier_batch_gives_up(loop: LoopThread) -> None:
    broker = JudgingBroker()
    task(loop, broker, rows_of(3), identity=RowIdentity("query", 8, 3))
    with pytest.raises(BrokerError) as caught:
        task(loop, broker, rows_of(3))
    assert caught.value.code == 90004 and broker.sends == 1 + STEPS_MAX


def test_what_cannot_be_compared_is_bounded(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, rows = JudgingBroker(), rows_of(120)
    task(loop, broker, rows, disturbed=True)
    monkeypatch.setattr(numbered, "DOUBTFUL_BYTES_MAX", 5)
    with pytest.raises(SparrowError, match="cannot be compared; use more partitions"):
        task(loop, broker, rows)
    assert broker.own == Counter(rows)


def test_brokers_that_do_not_judge_make_it_at_least_once(loop: LoopThread) -> None:
    assert not task(loop, JudgingBroker(judges=False), rows_of(3)).exactly_once


def test_the_queues_are_those_of_the_choice(loop: LoopThread) -> None:
    options = WriteOptions(name_server="stub:1", topic="t")
    chosen = QueueChoice(7, "t", (Q1,))
    sender = NumberedSender(loop, JudgingBroker(), options, IDENTITY, chosen)
    assert (list(sender.queues("t")), list(sender.queues("u"))) == ([Q1], [Q0, Q1])
    assert sender.partition == 3
