"""Batch sends of one task as those of an idempotent producer: a row that was stored is not stored again.

Rows are numbered per queue in the order they come. A further try sends the same numbers; the broker checks
that they are the same messages and stores the new ones. Each answer of the broker moves a chunk of rows to
another state; `row_states` has the table.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import numpy as np
import pyarrow.compute as pc

from sparrowmq.columnar.encode import MessageColumns, encode_batches, encode_messages, mark_column
from sparrowmq.columnar.marks import sent_messages
from sparrowmq.core.errors import BrokerError, ProducerFencedError, SequenceTooOldError, SparrowError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.loops.event_loop import LoopThread
from sparrowmq.spark.cluster.faults import is_illegal_queue
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write.identity import STEPS_MAX, RowIdentity
from sparrowmq.spark.write.queue_choice import QueueChoice, missing, stand_in
from sparrowmq.spark.write.read_back import Compared, QueueRead, Reader, StoredRun
from sparrowmq.spark.write.refusals import (
    REUSED,
    QueueLeftError,
    WriteRefusedError,
    event_of,
    final,
    next_step,
)
from sparrowmq.spark.write.routing import Destination
from sparrowmq.spark.write.row_states import RowEvent, RowState, after
from sparrowmq.spark.write.send import BatchProducer, TaskSender, retried, say_left

if TYPE_CHECKING:
    from sparrowmq.aio import ProducerState

log = logging.getLogger("sparrowmq.spark")

DOUBTFUL_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of messages that were stored and deleted since; they are kept in case they must be sent again."""


@dataclass(slots=True)
class Chunk:
    """Messages for one queue; the first has number `first` among the task's. `body` is for the first step."""

    messages: MessageColumns
    first: int
    body: bytes | None = None
    state: RowState = RowState.NUMBERED

    def move(self, event: RowEvent) -> RowState:
        """The state after an event."""
        self.state = after(self.state, event)
        return self.state

    def slice(self, start: int, stop: int, state: RowState = RowState.NUMBERED) -> Chunk:
        """A part of it."""
        return Chunk(self.messages.slice(start, stop - start), self.first + start, state=state)


@dataclass(slots=True)
class QueueNumbers:
    """One queue's numbers: `rows` were assigned; step `step` began with row `base`.

    A queue that left its topic keeps the first `room` rows, which it has stored; `rest` gets the others.
    """

    queue: MessageQueue
    producer: str = ""
    """The owner of the numbers."""
    rows: int = 0
    step: int = 0
    base: int = 0
    unplaced: int = 0
    """Rows below this one are stored, but the broker does not know their positions."""
    stored: StoredRun | None = None
    """Reads them back."""
    doubtful: list[Chunk] = field(default_factory=list)
    """Certainly stored, but not compared with another attempt's."""
    doubtful_bytes: int = 0
    room: int = 0
    rest: QueueNumbers | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def next_step(self, step: int, first: int) -> None:
        """Assign new numbers from row `first` on; those of a queue that left are for another queue."""
        if self.rest is not None and not self.step:
            self.queue, self.producer = self.rest.queue, f"{self.rest.producer}_anew"
        self.step, self.base = step, first
        self.unplaced, self.stored = 0, None
        self.doubtful, self.doubtful_bytes = [], 0

    def trust(self) -> None:
        """Later rows were equal or are new, so those in doubt must be equal, too."""
        for chunk in self.doubtful:
            chunk.move(RowEvent.FOLLOWED)
        self.doubtful, self.doubtful_bytes = [], 0


class QueueFinder(Reader, Protocol):
    """What a sender needs of `aio.PullConsumer`."""

    async def publish_queues(self, topic: str) -> Sequence[MessageQueue]:
        """The writable queues of a topic, as a name server knows them now."""


class LookupClients(NamedTuple):
    """Calls with which to find out what is stored, and where. `producer_state` is what a queue has of a
    producer.
    """

    reader: Callable[[], Awaitable[QueueFinder]]
    producer_state: Callable[[MessageQueue, str], Awaitable[ProducerState | None]]


class NumberedSender(TaskSender):
    """Sends rows by number; `exactly_once` until a broker does not check, or a task had to start
    new numbers.
    """

    def __init__(
        self,
        loop: LoopThread,
        producer: BatchProducer,
        options: WriteOptions,
        identity: RowIdentity,
        choice: QueueChoice | None,
        clients: LookupClients,
    ) -> None:
        super().__init__(loop, producer, options)
        self._clients = clients
        self._identity = identity
        self._choice = choice
        self._lines: dict[MessageQueue, QueueNumbers] = {}
        self.exactly_once = True

    @property
    def partition(self) -> int:
        """The task's partition."""
        return self._identity.partition

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of this batch: those chosen at its first attempt."""
        if self._choice is not None and self._choice.topic == topic:
            return self._choice.queues
        return super().queues(topic)

    def submit_rows(self, queue: MessageQueue, messages: MessageColumns) -> None:
        """Send messages to a queue; waits while too many are in flight. Raises the error of an
        earlier send.
        """
        line = self._lines.get(queue) or self._begin(queue)
        first = line.rows
        line.rows += len(messages)
        marked = self._marked(line, messages, first, step=0, base=0)
        for encoded in encode_batches(marked, bytes_max=self._options.batch_bytes):
            part = messages.slice(encoded.start, encoded.count)
            self._start(self._send_chunk(line, Chunk(part, first + encoded.start, encoded.body)))

    @property
    def _gone(self) -> tuple[frozenset[str], frozenset[MessageQueue]]:
        """Brokers that are lost for good, and queues that left the topic."""
        if self._choice is None:
            return self._options.lost_brokers, frozenset()
        return self._options.lost_brokers | self._choice.lost, self._choice.left

    def _begin(self, queue: MessageQueue) -> QueueNumbers:
        """The numbers of a queue. Rows of a lost broker's queue go elsewhere with separate numbers, so other
        rows keep theirs. That holds in every batch for rows that name a lost queue, for others only in the
        current one. Rows of a queue that left its topic do, too, as far as it has not stored them.
        """
        lost, left = self._gone
        line = QueueNumbers(queue, self._identity.producer_id(queue.topic))
        if queue.broker_name in lost:
            self.exactly_once = False
            other = stand_in(queue, self.queues(queue.topic), lost, left)
            line = QueueNumbers(other, self._identity.stand_in_id(queue))
        elif queue in left:
            self._loop.run(self._leave(line, self._rest_of(line), 0))
        self._lines[queue] = line
        return line

    def _rest_of(self, line: QueueNumbers) -> QueueNumbers:
        """The numbers of the rows that a queue which left its topic does not have."""
        queue, (lost, left) = line.queue, self._gone
        producer = self._identity.producer_id(queue.topic)
        own = self._identity.stand_in_id(queue) if line.producer == producer else f"{line.producer}_left"
        return QueueNumbers(stand_in(queue, self._known(queue.topic), lost, left), own)

    async def _leave(self, line: QueueNumbers, rest: QueueNumbers, sent: int) -> None:
        """A queue left its topic, which acknowledged `sent` rows in this attempt: what it has is compared,
        the others go to `rest`.
        """

        async def ask() -> ProducerState | None:
            return await self._clients.producer_state(line.queue, line.producer)

        what = f"asking what {line.queue} has of producer {line.producer}"
        state = await retried(self._options, what, ask, routed=True)
        epoch = self._identity.epoch(0)
        if state is not None and state.epoch > epoch:
            error = ProducerFencedError(90004, f"the queue is at {state.epoch}", current=state.epoch)
            if event_of(error, self._identity, 0) is RowEvent.BATCH_BEGUN:
                raise final(error, line.queue, self._identity)
            self._may_double(line, f"it left its topic after an attempt began anew there ({error})")
        line.rest, line.room = rest, sent
        if state is None or state.epoch != epoch:
            return
        line.room = line.unplaced = state.last + 1
        if line.stored is None:
            read = QueueRead(self._clients.reader, line.queue, state.begins_at, self._options)
            line.stored = StoredRun(read, line.producer, epoch)

    def _known(self, topic: str) -> Sequence[MessageQueue]:
        if self._choice is not None and self._choice.topic == topic:
            return self._choice.queues
        return super()._known(topic)

    async def _has_left(self, queue: MessageQueue, error: SparrowError) -> bool:
        """The producer may not know queues that are new, so a name server is asked for them."""
        if is_illegal_queue(error):
            return True
        try:
            return queue in missing([queue], await (await self._clients.reader()).publish_queues(queue.topic))
        except SparrowError:
            return False

    def submit_delayed(self, destination: Destination, message: Message) -> None:
        """Like `TaskSender.submit_delayed`: such a message has no number. If its queue is gone, the one that
        gets other rows of it gets the message.
        """
        self.exactly_once = False
        (lost, left), queue = self._gone, destination.queue
        if queue is not None and (queue.broker_name in lost or queue in left):
            destination = Destination(queue.topic, stand_in(queue, self.queues(queue.topic), lost, left))
        super().submit_delayed(destination, message)

    def _marked(
        self, line: QueueNumbers, messages: MessageColumns, first: int, *, step: int, base: int
    ) -> MessageColumns:
        queue = line.queue
        head = mark_column(
            line.producer,
            self._identity.epoch(step),
            queue.topic,
            queue.queue_id,
            np.arange(first - base, first - base + len(messages)),
        )
        return replace(messages, marks=head)

    async def _send_chunk(self, line: QueueNumbers, chunk: Chunk) -> None:
        await self._store(line, chunk)
        self.sent[line.queue.topic] += len(chunk.messages)

    async def _store(self, line: QueueNumbers, chunk: Chunk) -> None:
        async with line.lock:
            work = deque([chunk])
            while work:  # ends: at most STEPS_MAX steps, a queue leaves once, and parts only become smaller
                one = work.popleft()
                if line.rest is not None and one.first >= line.room:
                    await self._store(line.rest, Chunk(one.messages, one.first - line.room))
                elif one.first < line.unplaced:
                    await self._compare(line, one, work)
                else:
                    await self._send_numbered(line, one, work)

    async def _send_numbered(self, line: QueueNumbers, chunk: Chunk, work: deque[Chunk]) -> None:
        """Send rows, and put them back into `work` if that is not all. Raises errors that end the task."""
        try:
            result = await self._send_to(
                line.queue, self._body(line, chunk), len(chunk.messages), numbered=True
            )
        except QueueLeftError as error:
            rest = self._rest_of(line)
            if rest.queue == line.queue:
                raise
            say_left(line.queue, rest.queue, error)
            chunk.move(RowEvent.LEFT)
            await self._leave(line, rest, chunk.first)
            work.appendleft(chunk)
            return
        except BrokerError as error:
            event = event_of(error, self._identity, line.step)
            if event is None:
                raise
            state = chunk.move(event)
            if state is RowState.STOPPED:
                raise final(error, line.queue, self._identity) from error
            if state is RowState.ANEW:
                step = next_step(error, self._identity, line.step) or STEPS_MAX
                self._begin_anew(line, chunk, work, step, f"they differ from an earlier attempt ({error})")
                return
            assert isinstance(error, SequenceTooOldError) and state is RowState.UNPLACED
            self._unplace(line, chunk, error)
            work.appendleft(chunk)
            return
        chunk.move(RowEvent.TAKEN)
        line.trust()
        if not result.idempotent:
            self._not_judged(line)

    def _unplace(self, line: QueueNumbers, chunk: Chunk, error: SequenceTooOldError) -> None:
        line.unplaced = max(line.base + error.known_from, chunk.first + 1)
        if line.stored is None:
            read = QueueRead(self._clients.reader, line.queue, error.begins_at or 0, self._options)
            line.stored = StoredRun(read, line.producer, self._identity.epoch(line.step))

    async def _compare(self, line: QueueNumbers, chunk: Chunk, work: deque[Chunk]) -> None:
        """Compare the rows of a chunk whose position the broker does not know; the others stay in `work`."""
        assert line.stored is not None
        count = min(line.unplaced - chunk.first, len(chunk.messages))
        if count < len(chunk.messages):
            work.appendleft(chunk.slice(count, len(chunk.messages)))
            chunk = chunk.slice(0, count)
        queue, step = line.queue, line.step
        sent = sent_messages(
            self._body(line, chunk),
            line.producer,
            self._identity.epoch(step),
            queue.topic,
            queue.queue_id,
        )
        found: Compared = await line.stored.compare(sent)
        if found.same:
            line.trust()
        stop = found.same + found.gone if found.gone else count
        if stop < count:
            work.appendleft(chunk.slice(stop, count))
        rest = chunk.slice(found.same, stop, RowState.UNPLACED)
        state = rest.move(found.event)
        if state is RowState.ANEW:
            why = "they differ from an earlier attempt, which was read back"
            self._begin_anew(line, rest, work, step + 1, why)
        elif state is RowState.DOUBTFUL:
            self._keep(line, rest, work)

    def _keep(self, line: QueueNumbers, chunk: Chunk, work: deque[Chunk]) -> None:
        """Keep rows that were stored and deleted since, until the rows after them prove equal."""
        line.doubtful_bytes += pc.sum(pc.binary_length(chunk.messages.body)).as_py()
        if line.doubtful_bytes <= DOUBTFUL_BYTES_MAX:
            line.doubtful.append(chunk)
            return
        chunk.move(RowEvent.TOO_MANY_KEPT)
        why = "an earlier attempt stored them and they have been deleted, so they cannot be compared"
        self._begin_anew(line, chunk, work, line.step + 1, why)

    def _not_judged(self, line: QueueNumbers) -> None:
        if self._options.exactly_once:
            raise WriteRefusedError(
                f"option delivery=exactlyOnce: broker {line.queue.broker_name} stores repeated rows again",
                what="delivery",
                value=line.queue.broker_name,
            )
        if self.exactly_once:
            log.warning("broker %s stores repeated rows again: at least once", line.queue.broker_name)
        self.exactly_once = False

    def _body(self, line: QueueNumbers, chunk: Chunk) -> bytes:
        if chunk.body is not None and line.step == 0:
            return chunk.body
        marked = self._marked(line, chunk.messages, chunk.first, step=line.step, base=line.base)
        return b"".join(encode_messages(marked).to_pylist())

    def _begin_anew(self, line: QueueNumbers, chunk: Chunk, work: deque[Chunk], step: int, why: str) -> None:
        """Assign new numbers from the first row on that is not known to be stored unchanged."""
        if self._options.exactly_once:
            event = RowEvent.ONCE_ONLY
        else:
            event = RowEvent.STEPS_USED_UP if step >= STEPS_MAX else RowEvent.RENUMBERED
        if chunk.move(event) is RowState.STOPPED and event is RowEvent.STEPS_USED_UP:
            raise final(BrokerError(REUSED, why), line.queue, self._identity)
        self._may_double(line, why)
        for kept in line.doubtful:
            kept.move(RowEvent.RENUMBERED)
        work.extendleft(reversed([*line.doubtful, chunk]))
        line.next_step(step, work[0].first)

    def _may_double(self, line: QueueNumbers, why: str) -> None:
        """Rows may be stored twice from now on. Raises `WriteRefusedError` where that must not be."""
        if self._options.exactly_once:
            raise WriteRefusedError(
                f"option delivery=exactlyOnce: rows for {line.queue}, batch {self._identity.batch}, "
                f"partition {self._identity.partition}, would be stored twice: {why}. "
                f"Run it with the same rows and partitions as before, or without the option to store them "
                f"at least once",
                what="delivery",
                value=line.queue,
            )
        if self.exactly_once:
            log.warning(
                "batch %d, partition %d: rows for %s are sent again, and some may be stored twice (at "
                "least once): %s; give option idempotenceKey, or do not shuffle before the write",
                self._identity.batch,
                self._identity.partition,
                line.queue,
                why,
            )
        self.exactly_once = False
