"""Numbered sends of a task against a broker's own table: tries that repeat, stop, change their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.columnar.records import record
from tests.support import about

from sparrowmq.aio import ProducerState
from sparrowmq.columnar.encode import MessageColumns
from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import (
    BrokerError,
    NoRouteError,
    ProducerFencedError,
    SequenceTooOldError,
    SparrowError,
)
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.core.results import PullStatus, RawBatch, SendResult, SendStatus
from sparrowmq.loops.event_loop import LoopThread
from sparrowmq.protocol.batch import decode_batch
from sparrowmq.protocol.producer_mark import begins_at, fenced_at, first_of_run, known_from
from sparrowmq.spark.cluster import retry
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write import idempotent_send as numbered
from sparrowmq.spark.write.idempotent_send import LookupClients, NumberedSender
from sparrowmq.spark.write.identity import RowIdentity
from sparrowmq.spark.write.queue_choice import QueueChoice, stand_in
from sparrowmq.spark.write.refusals import WriteRefusedError
from sparrowmq.spark.write.routing import Destination
from sparrowmq.store.tables.producer_state import ProducerStates, SequenceFinding

Q0, Q1 = MessageQueue("t", "b", 0), MessageQueue("t", "b", 1)
LEFT = MessageQueue("t", "b", 3)
IDENTITY = RowIdentity("query", 7, 3)
CODES = {
    SequenceFinding.GAP: 90001,
    SequenceFinding.FENCED: 90004,
    SequenceFinding.UNKNOWN: 90005,
    SequenceFinding.LIMIT: 90006,
}


@dataclass
class JudgingBroker:
    """Judges as a broker does; `dies_after` batches it answers nothing more."""

    table: ProducerStates = field(default_factory=ProducerStates)
    held: dict[MessageQueue, list[tuple[bytes, bytes]]] = field(default_factory=lambda: {Q0: [], Q1: []})
    """Bodies and properties by queue and offset."""
    deleted: int = 0
    """The first offsets of each queue that are gone."""
    reads: int = 0
    busy: bool = False
    """Whether others send while somebody reads."""
    read_messages_max: int = 7
    dies_after: int | None = None
    judges: bool = True
    sends: int = 0
    left: frozenset[MessageQueue] = frozenset()
    """Queues that the topic no longer has."""
    noted: frozenset[MessageQueue] = frozenset()
    """Queues that it did not have when the driver planned a try of the batch."""
    leaves_after: int | None = None
    """After so many batches the topic loses a queue."""
    unrouted: bool = False
    """Whether the client already knows what the topic lost."""

    async def send_encoded_batch(
        self,
        topic: str,
        body: bytes,
        count: int,
        *,
        queue: MessageQueue | None = None,
        numbered: bool = False,
    ) -> SendResult:
        assert queue is not None and numbered and queue not in self.noted
        if self.leaves_after is not None and self.sends >= self.leaves_after:
            self.left = frozenset({LEFT})
        if queue in self.left and self.unrouted:
            raise NoRouteError(f"topic {topic!r} has no writable queue {queue}")
        if queue in self.left:
            raise BrokerError(29, f"request queueId[{queue.queue_id}] is illegal")
        if self.dies_after is not None and self.sends >= self.dies_after:
            raise SparrowError("the task was killed")
        self.sends += 1
        items = decode_batch(body)
        assert len(items) == count
        mark, _ = first_of_run(own for _, _, own in items)
        assert mark is not None
        verdict = self.table.judge(topic, queue.queue_id, mark, count, 0)
        if verdict.finding is SequenceFinding.TOO_OLD:
            raise SequenceTooOldError(
                90002, "", known_from=known_from(verdict.text) or 0, begins_at=begins_at(verdict.text)
            )
        if verdict.finding is SequenceFinding.FENCED:
            raise ProducerFencedError(90004, verdict.text, current=fenced_at(verdict.text))
        if verdict.finding is not SequenceFinding.TAKE:
            raise BrokerError(CODES[verdict.finding], verdict.text)
        held = self.held[queue]
        messages = [(item, own) for _, item, own in items]
        for number, (offset, sent) in enumerate(zip(verdict.repeated, messages, strict=False)):
            if offset < self.deleted:
                raise SequenceTooOldError(90002, "gone", known_from=mark.sequence + number + 1)
            if held[offset] != sent:
                raise BrokerError(90003, "another message")
        known = len(verdict.repeated)
        if known < count:
            later = mark._replace(sequence=mark.sequence + known)
            self.table.note(topic, queue.queue_id, later, count - known, len(held), 0)
            held += messages[known:]
        return SendResult(SendStatus.SEND_OK, "", "", queue, 0, idempotent=self.judges)

    async def queues(self, topic: str) -> list[MessageQueue]:
        return [Q0, Q1]

    async def publish_queues(self, topic: str) -> list[MessageQueue]:
        return [queue for queue in (Q0, Q1, LEFT) if queue not in self.left]

    async def producer_state(self, queue: MessageQueue, producer: str) -> ProducerState | None:
        held = self.table.find(producer, queue.topic, queue.queue_id)
        return None if held is None else ProducerState(held.epoch, held.last, held.begins_at or 0)

    async def fetch_raw(
        self, queue: MessageQueue, offset: int, *, max_bytes: int, max_messages: int
    ) -> RawBatch:
        self.reads += 1
        assert self.reads < 10_000, "reading goes on for ever"
        held = self.held[queue]
        for _ in range(self.read_messages_max if self.busy else 0):
            self.disturb(queue)
        if not self.deleted <= offset < len(held):
            status = PullStatus.OFFSET_ILLEGAL if offset < len(held) else PullStatus.NO_NEW_MESSAGE
            return RawBatch(status, b"", offset, self.deleted, len(held))
        stop = min(len(held), offset + self.read_messages_max)
        records = [
            record(at, *held[at], topic=queue.topic.encode(), queue_id=queue.queue_id)
            for at in range(offset, stop)
        ]
        return RawBatch(PullStatus.FOUND, b"".join(records), stop, self.deleted, len(held))

    def disturb(self, queue: MessageQueue) -> None:
        """Another producer's message, so that ranges do not join."""
        self.held[queue].append((b"foreign", b""))

    @property
    def own(self) -> Counter[bytes]:
        return Counter(body for held in self.held.values() for body, _ in held if body != b"foreign")


@pytest.fixture(scope="module")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


def sender_of(
    loop: LoopThread,
    broker: JudgingBroker,
    options: WriteOptions,
    identity: RowIdentity = IDENTITY,
    choice: QueueChoice | None = None,
) -> NumberedSender:
    async def itself() -> JudgingBroker:
        return broker

    return NumberedSender(
        loop, broker, options, identity, choice, LookupClients(itself, broker.producer_state)
    )


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
    sender = sender_of(loop, broker, options, identity)
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
        sender = sender_of(loop, broker, options)
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
    assert caplog.text.count("differ from an earlier attempt") == 1
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
    with pytest.raises(WriteRefusedError, check=about(value=90004)) as caught:
        task(loop, broker, rows_of(3))
    assert "batch 7, partition 3" in str(caught.value) and broker.sends == 2


def test_what_was_stored_is_compared_by_reading_it_back(loop: LoopThread) -> None:
    broker, rows = JudgingBroker(), rows_of(300)
    task(loop, broker, rows, disturbed=True)
    reads = broker.reads
    for _ in range(3):
        sender = task(loop, broker, rows)
        assert sender.exactly_once and sender.sent["t"] == 300
    assert broker.own == Counter(rows)
    stored = sum(map(len, broker.held.values()))
    assert 0 < broker.reads - reads <= 3 * (stored // broker.read_messages_max + 2), "each queue once a try"


def test_rows_found_different_by_reading_back_are_sent_again(loop: LoopThread) -> None:
    broker, rows = JudgingBroker(), rows_of(300)
    task(loop, broker, rows, disturbed=True)
    other = [b"x" if number == 31 else row for number, row in enumerate(rows)]
    sender = task(loop, broker, other)
    assert not sender.exactly_once
    assert broker.own[b"x"] == 1 and broker.own[b"r30"] == 1, "what is before it in its queue is trusted"
    assert set(broker.own) == {*rows, b"x"}
    assert {broker.own[row] for row in rows_of(30)} == {1}


def test_rows_that_were_deleted_since_are_not_sent_again(loop: LoopThread) -> None:
    broker, rows = JudgingBroker(), rows_of(300)
    task(loop, broker, rows, disturbed=True)
    for broker.deleted in (20, 150, 10_000):
        sender = task(loop, broker, rows)
        assert sender.exactly_once and sender.sent["t"] == 300
    assert broker.own == Counter(rows)


def test_reading_back_ends_where_the_queue_ended_while_others_send(loop: LoopThread) -> None:
    broker, rows = JudgingBroker(), rows_of(300)
    task(loop, broker, rows, disturbed=True)
    broker.deleted, broker.busy = max(map(len, broker.held.values())), True
    assert task(loop, broker, rows).sent["t"] == 300
    assert broker.own == Counter(rows)


def test_rows_that_cannot_be_compared_do_not_end_the_task(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker, rows = JudgingBroker(), rows_of(120)
    task(loop, broker, rows, disturbed=True)
    broker.deleted = 10_000
    monkeypatch.setattr(numbered, "DOUBTFUL_BYTES_MAX", 5)
    assert not task(loop, broker, rows).exactly_once
    assert broker.own == Counter(dict.fromkeys(rows, 2))
    assert "they have been deleted, so they cannot be compared" in caplog.text


@pytest.mark.parametrize(("lost", "code"), [(3, 90001), (9, 90005)])
def test_a_broker_that_lost_acknowledged_rows_ends_the_try_and_the_next_one_stores_them(
    loop: LoopThread, lost: int, code: int
) -> None:
    broker, rows = JudgingBroker(), rows_of(12)
    options = WriteOptions(name_server="stub:1", topic="t", retries=0)
    sender = sender_of(loop, broker, options)
    columns = [MessageColumns(body=pa.array(rows[start : start + 3], pa.binary())) for start in (0, 3, 6, 9)]
    for part in columns[:3]:
        sender.submit_rows(Q0, part)
    sender.finish()
    table, kept = ProducerStates(), 9 - lost
    if kept:
        mark, _ = first_of_run(own for _, own in broker.held[Q0][:kept])
        assert mark is not None
        table.note("t", 0, mark, kept, 0, 0)
    broker.table, broker.held[Q0] = table, broker.held[Q0][:kept]
    with pytest.raises(WriteRefusedError, check=about(value=code)):
        sender.submit_rows(Q0, columns[3])
        sender.finish()
    sender.cancel()
    again = sender_of(loop, broker, options)
    for part in columns:
        again.submit_rows(Q0, part)
    again.finish()
    assert again.exactly_once and broker.own == Counter(rows)


def test_a_full_table_of_producers_says_what_to_do(loop: LoopThread) -> None:
    broker = JudgingBroker(ProducerStates(producers_max=1))
    with pytest.raises(WriteRefusedError, check=about(value=90006)):
        task(loop, broker, rows_of(6))
    broker.table.producers_max = 2
    assert task(loop, broker, rows_of(6)).exactly_once and broker.own == Counter(rows_of(6))


def test_rows_that_must_not_be_stored_twice_end_the_task(loop: LoopThread) -> None:
    broker, rows = JudgingBroker(), rows_of(12)
    task(loop, broker, rows)
    strict = WriteOptions(name_server="stub:1", topic="t", delivery="exactlyOnce")
    other = MessageColumns(body=pa.array([b"x"], pa.binary()))
    for judges, where in ((True, Q0), (False, Q0.broker_name)):
        broker.judges = judges
        sender = sender_of(loop, broker, strict, IDENTITY if judges else RowIdentity("new", 0, 0))
        with pytest.raises(WriteRefusedError, check=about(what="delivery", value=where)):
            sender.submit_rows(Q0, other)
            sender.finish()
        sender.cancel()
    assert broker.own == Counter([*rows, b"x"]), "only what a broker took that does not judge"


def test_brokers_that_do_not_judge_make_it_at_least_once(loop: LoopThread) -> None:
    assert not task(loop, JudgingBroker(judges=False), rows_of(3)).exactly_once


def test_the_queues_are_those_of_the_choice(loop: LoopThread) -> None:
    options = WriteOptions(name_server="stub:1", topic="t")
    chosen = QueueChoice(7, "t", (Q1,))
    sender = sender_of(loop, JudgingBroker(), options, choice=chosen)
    assert (list(sender.queues("t")), list(sender.queues("u"))) == ([Q1], [Q0, Q1])
    assert sender.partition == 3


LOST = MessageQueue("t", "gone", 7)


@pytest.mark.parametrize("written", [True, False])
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 100), st.integers(0, 30), st.integers(0, 30))
def test_rows_of_a_lost_broker_go_elsewhere_and_all_others_keep_their_numbers(
    loop: LoopThread, written: bool, count: int, stop: int, second_stop: int
) -> None:
    """A batch over two brokers; one is lost for good in mid-batch, and further tries are cut short, too.

    Its queues were `written` down at the first try, or the rows name them.
    """
    left, gone = JudgingBroker(), JudgingBroker()
    gone.held[LOST] = []
    rows = rows_of(count)

    class Both(JudgingBroker):
        async def send_encoded_batch(
            self,
            topic: str,
            body: bytes,
            count: int,
            *,
            queue: MessageQueue | None = None,
            numbered: bool = False,
        ) -> SendResult:
            self.sends += 1
            if self.dies_after is not None and self.sends > self.dies_after:
                raise SparrowError("the task was killed")
            at = gone if queue == LOST else left
            return await at.send_encoded_batch(topic, body, count, queue=queue, numbered=numbered)

    def attempt(dies_after: int | None, lost: frozenset[str]) -> NumberedSender:
        named = frozenset() if written else lost
        options = WriteOptions(name_server="stub:1", topic="t", max_in_flight=1, lost_brokers=named)
        queues = (Q0, LOST, Q1)
        choice = QueueChoice(7, "t", queues, lost=lost) if written else None
        sender = sender_of(loop, Both(dies_after=dies_after), options, choice=choice)
        try:
            for number, start in enumerate(range(0, len(rows), 3)):
                part = pa.array(rows[start : start + 3], pa.binary())
                sender.submit_rows(queues[number % 3], MessageColumns(body=part))
            sender.finish()
        except SparrowError:
            sender.cancel()
        return sender

    attempt(stop, frozenset())
    stored_there = len(gone.held[LOST])
    for dies_after in (second_stop, None, None):
        sender = attempt(dies_after, frozenset({"gone"}))
    assert left.own == Counter(rows), "each row once on the brokers that are left"
    assert len(gone.held[LOST]) == stored_there
    assert sender.exactly_once == (count <= 3), "what the lost one stored is there twice if it comes back"


def shrunk(
    loop: LoopThread,
    broker: JudgingBroker,
    rows: Sequence[bytes],
    *,
    dies_after: int | None = None,
    delivery: str = "",
    identity: RowIdentity = IDENTITY,
) -> NumberedSender:
    """A try of a batch that began with a queue that left its topic, if the broker says so."""
    broker.sends, broker.dies_after = 0, dies_after
    broker.held.setdefault(LEFT, [])
    options = WriteOptions(name_server="stub:1", topic="t", max_in_flight=1, delivery=delivery)
    choice = QueueChoice(7, "t", (Q0, LEFT, Q1), left=broker.noted)
    sender = sender_of(loop, broker, options, identity, choice)
    try:
        for number, start in enumerate(range(0, len(rows), 3)):
            part = pa.array(rows[start : start + 3], pa.binary())
            sender.submit_rows((Q0, LEFT, Q1)[number % 3], MessageColumns(body=part))
        sender.finish()
    except BaseException:
        sender.cancel()
        raise
    return sender


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 100), st.integers(0, 30), st.integers(0, 30), st.booleans())
def test_rows_of_a_queue_that_left_its_topic_are_stored_once(
    loop: LoopThread, count: int, stop: int, second_stop: int, disturbed: bool
) -> None:
    """A topic is shrunk in mid-batch, further tries are cut short, too, and then the shrink is undone."""
    broker, rows = JudgingBroker(), rows_of(count)
    for dies_after, left in ((stop, False), (second_stop, True), (None, True), (None, False), (None, True)):
        broker.left = frozenset({LEFT} if left else ())
        broker.noted |= broker.left
        try:
            sender = shrunk(loop, broker, rows, dies_after=dies_after)
        except SparrowError:
            assert dies_after is not None
        if disturbed:
            broker.disturb(LEFT)
        if dies_after is None:
            assert broker.own == Counter(rows) and sender.exactly_once
            assert sender.sent["t"] == count


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 100),
    st.integers(0, 30),
    st.integers(0, 30),
    st.integers(0, 30),
    st.booleans(),
    st.booleans(),
)
def test_rows_of_a_queue_that_leaves_its_topic_under_a_task_are_stored_once(
    loop: LoopThread,
    count: int,
    stop: int,
    leaves_after: int,
    second_stop: int,
    disturbed: bool,
    unrouted: bool,
) -> None:
    """The driver does not know it at first, and further tries are cut short, too."""
    broker, rows = JudgingBroker(unrouted=unrouted), rows_of(count)
    tries = [(stop, None), (second_stop, leaves_after), (None, leaves_after), (None, 0)]
    for dies_after, broker.leaves_after in tries:
        try:
            sender = shrunk(loop, broker, rows, dies_after=dies_after)
        except SparrowError:
            assert dies_after is not None
        if disturbed:
            broker.disturb(LEFT)
        if dies_after is None:
            assert broker.own == Counter(rows) and sender.exactly_once
            assert sender.sent["t"] == count
    broker.noted = broker.left
    assert shrunk(loop, broker, rows).exactly_once and broker.own == Counter(rows)


def test_a_queue_that_the_producer_does_not_know_yet_has_not_left(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name server has it, so the producer is asked again."""
    monkeypatch.setattr(retry, "BACKOFF", Backoff(first=0.0001, most=0.0001))
    broker, asked = JudgingBroker(unrouted=True, left=frozenset({LEFT})), 0

    async def known(topic: str) -> list[MessageQueue]:
        nonlocal asked
        asked += 1
        broker.left = frozenset()
        return [Q0, LEFT, Q1]

    monkeypatch.setattr(broker, "publish_queues", known)
    assert shrunk(loop, broker, rows_of(9)).exactly_once and asked == 1
    assert len(broker.held[LEFT]) == 3


def test_a_queue_that_left_after_numbers_began_anew(loop: LoopThread) -> None:
    broker, rows, other = JudgingBroker(), rows_of(18), [b"x%d" % number for number in range(18)]
    shrunk(loop, broker, other)
    broker.leaves_after = 4
    assert not shrunk(loop, broker, rows).exactly_once
    assert len(broker.held[LEFT]) == 9, "three rows had new numbers there when it left"
    assert set(rows) <= set(broker.own)


def test_other_rows_than_those_of_a_queue_that_left_are_not_lost(
    loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    broker, rows, other = JudgingBroker(), rows_of(18), [b"x%d" % number for number in range(18)]
    shrunk(loop, broker, rows)
    broker.left = broker.noted = frozenset({LEFT})
    with pytest.raises(WriteRefusedError, check=about(what="delivery", value=LEFT)):
        shrunk(loop, broker, [*rows[:3], *other[3:6], *rows[6:]], delivery="exactlyOnce")
    for _ in range(2):
        assert not shrunk(loop, broker, [*rows[:3], *other[3:6], *rows[6:]]).exactly_once
    assert {broker.own[row] for row in other[3:6]} == {1} and set(rows) <= set(broker.own)
    assert "sent again, and some may be stored twice" in caplog.text


@dataclass
class DelayingBroker(JudgingBroker):
    """Takes single messages as well, which are for later."""

    later: Counter[MessageQueue] = field(default_factory=Counter)

    async def send(self, message: Message, *, queue: MessageQueue) -> SendResult:
        if queue in self.left:
            raise BrokerError(29, f"request queueId[{queue.queue_id}] is illegal")
        self.later[queue] += 1
        return SendResult(SendStatus.SEND_OK, "", "", queue, 0)


def test_delayed_rows_of_a_queue_that_is_gone_go_to_the_one_that_gets_its_rows(loop: LoopThread) -> None:
    broker = DelayingBroker(left=frozenset({LEFT, LOST}))
    options = WriteOptions(name_server="stub:1", topic="t")
    choice = QueueChoice(
        7, "t", (Q0, LEFT, Q1, LOST), lost=frozenset({LOST.broker_name}), left=frozenset({LEFT})
    )
    sender = sender_of(loop, broker, options, IDENTITY, choice)
    for queue in (Q0, LEFT, LOST):
        sender.submit_delayed(Destination("t", queue), Message("t", b"x", delay_level=1))
    sender.finish()
    others = Counter(stand_in(queue, (Q0, Q1), choice.lost) for queue in (LEFT, LOST))
    assert broker.later == Counter([Q0]) + others and not sender.exactly_once


def test_delayed_rows_of_a_queue_that_leaves_under_a_task(loop: LoopThread) -> None:
    broker = DelayingBroker(left=frozenset({LEFT}))
    choice = QueueChoice(7, "t", (Q0, LEFT, Q1))
    sender = sender_of(loop, broker, WriteOptions(name_server="stub:1", topic="t"), IDENTITY, choice)
    sender.submit_delayed(Destination("t", LEFT), Message("t", b"x", delay_level=1))
    sender.finish()
    assert broker.later == Counter([Q0])


def test_a_queue_that_left_with_a_later_batch_or_later_numbers(loop: LoopThread) -> None:
    broker, rows = JudgingBroker(), rows_of(9)
    shrunk(loop, broker, rows)
    shrunk(loop, broker, [b"x%d" % number for number in range(9)])  # of another order: numbers of step 1
    broker.left = broker.noted = frozenset({LEFT})
    with pytest.raises(WriteRefusedError, check=about(what="delivery", value=LEFT)):
        shrunk(loop, broker, rows, delivery="exactlyOnce")
    assert not shrunk(loop, broker, rows).exactly_once and set(rows) <= set(broker.own)
    broker.left = broker.noted = frozenset()
    shrunk(loop, broker, rows, identity=RowIdentity("query", 8, 3))
    choice = QueueChoice(7, "t", (Q0, LEFT, Q1), left=frozenset({LEFT}))
    sender = sender_of(loop, broker, WriteOptions(name_server="stub:1", topic="t"), choice=choice)
    with pytest.raises(WriteRefusedError, check=about(value=90004)):
        sender.submit_rows(LEFT, MessageColumns(body=pa.array(rows, pa.binary())))
