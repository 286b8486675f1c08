"""Batch sends of one task as those of an idempotent producer: a row that was stored is not stored again.

Rows are numbered per queue in the order they come. A further try sends the same numbers; the broker looks
that they are the same messages and stores what is new. When they are not the same (the rows came in another
order, as after a shuffle), the task begins anew with fresh numbers: then, and only then, rows may be stored
twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow.compute as pc

from sparrowmq.columnar.encode import MessageColumns, encode_batches, encode_messages, mark_column
from sparrowmq.core.errors import BrokerError, SequenceTooOldError, SparrowError
from sparrowmq.core.message import Message, MessageQueue
from sparrowmq.spark.identity import STEPS_MAX, RowIdentity
from sparrowmq.spark.loop import LoopThread
from sparrowmq.spark.options import WriteOptions
from sparrowmq.spark.queue_choice import QueueChoice
from sparrowmq.spark.routing import Destination
from sparrowmq.spark.send import BatchProducer, Sender

log = logging.getLogger("sparrowmq.spark")

_REUSED: Final = 90003
_FENCED: Final = 90004
DOUBTFUL_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bodies of messages that are stored but were not compared yet; they are kept to be sent again if need be."""
_LIMIT: Final = 2**31 - 1


@dataclass(slots=True)
class Chunk:
    """Messages for one queue; the first has number `first` among the task's. `body` is for the first step."""

    messages: MessageColumns
    first: int
    body: bytes | None = None

    def slice(self, start: int, stop: int) -> Chunk:
        """A part of it."""
        return Chunk(self.messages.slice(start, stop - start), self.first + start)


@dataclass(slots=True)
class Line:
    """One queue's numbers: `rows` were given out; step `step` began with number `base`."""

    queue: MessageQueue
    rows: int = 0
    step: int = 0
    base: int = 0
    doubtful: list[Chunk] = field(default_factory=list)
    """Stored for sure, but not compared with what a further try has."""
    doubtful_bytes: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def trust(self) -> None:
        """What followed was compared or is new: what was passed over is what it should be."""
        self.doubtful, self.doubtful_bytes = [], 0


class NumberedSender(Sender):
    """Sends rows by number; `exactly_once` until a broker does not judge, or a task had to begin anew."""

    def __init__(
        self,
        loop: LoopThread,
        producer: BatchProducer,
        options: WriteOptions,
        identity: RowIdentity,
        choice: QueueChoice | None,
    ) -> None:
        super().__init__(loop, producer, options)
        self._identity = identity
        self._choice = choice
        self._lines: dict[MessageQueue, Line] = {}
        self.exactly_once = True

    @property
    def partition(self) -> int:
        """The task's partition."""
        return self._identity.partition

    def queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues this batch is spread over: those that were chosen at its first try."""
        if self._choice is not None and self._choice.topic == topic:
            return self._choice.queues
        return super().queues(topic)

    def submit_rows(self, queue: MessageQueue, messages: MessageColumns) -> None:
        """Send messages to a queue; waits while too many are in flight. Raises what an earlier one raised."""
        line = self._lines.setdefault(queue, Line(queue))
        first = line.rows
        line.rows += len(messages)
        marked = self._marked(line, messages, first, step=0, base=0)
        for encoded in encode_batches(marked, bytes_max=self._options.batch_bytes):
            part = messages.slice(encoded.start, encoded.count)
            self._start(self._send_chunk(line, Chunk(part, first + encoded.start, encoded.body)))

    def submit_later(self, destination: Destination, message: Message) -> None:
        """As `Sender.submit_later`: such a message has no number."""
        self.exactly_once = False
        super().submit_later(destination, message)

    def _marked(
        self, line: Line, messages: MessageColumns, first: int, *, step: int, base: int
    ) -> MessageColumns:
        queue = line.queue
        head = mark_column(
            self._identity.producer_id(queue.topic),
            self._identity.epoch(step),
            queue.topic,
            queue.queue_id,
            np.arange(first - base, first - base + len(messages)),
        )
        return replace(messages, marks=head)

    async def _send_chunk(self, line: Line, chunk: Chunk) -> None:
        async with line.lock:
            work = deque([chunk])
            while work:  # ends: a step is taken at most STEPS_MAX times, and parts only get smaller
                one = work.popleft()
                try:
                    result = await self._send_to(
                        line.queue, self._body(line, one), len(one.messages), numbered=True
                    )
                except SequenceTooOldError as error:
                    work.extendleft(self._pass_over(line, one, error))
                    continue
                except BrokerError as error:
                    if error.code not in (_REUSED, _FENCED) or line.step + 1 >= STEPS_MAX:
                        raise
                    self._begin_anew(line, one, work, error)
                    continue
                line.trust()
                if not result.idempotent:
                    self._not_judged(line)
        self.sent[line.queue.topic] += len(chunk.messages)

    def _not_judged(self, line: Line) -> None:
        if self.exactly_once:
            log.warning("broker %s stores repeated rows again: at least once", line.queue.broker_name)
        self.exactly_once = False

    def _body(self, line: Line, chunk: Chunk) -> bytes:
        if chunk.body is not None and line.step == 0:
            return chunk.body
        marked = self._marked(line, chunk.messages, chunk.first, step=line.step, base=line.base)
        return b"".join(encode_messages(marked).to_pylist())

    def _pass_over(self, line: Line, chunk: Chunk, error: SequenceTooOldError) -> list[Chunk]:
        """The part of a chunk that may not be stored yet; the other is kept until it can be trusted."""
        count = len(chunk.messages)
        stored = min(max(error.known_from - (chunk.first - line.base), 1), count)
        line.doubtful.append(chunk.slice(0, stored))
        line.doubtful_bytes += pc.sum(pc.binary_length(chunk.messages.body.slice(0, stored))).as_py()
        if line.doubtful_bytes > DOUBTFUL_BYTES_MAX:
            raise SparrowError(
                f"queue {line.queue}: more than {DOUBTFUL_BYTES_MAX} bytes of this partition were stored in "
                "an earlier try and cannot be compared; use more partitions, or smaller batches"
            )
        return [chunk.slice(stored, count)] if stored < count else []

    def _begin_anew(self, line: Line, chunk: Chunk, work: deque[Chunk], error: BrokerError) -> None:
        """Fresh numbers from the first message on that is not known to be stored as it is."""
        if self.exactly_once:
            log.warning(
                "batch %d, partition %d: the rows for %s are not those of an earlier try, some may be stored "
                "twice (at least once); give option idempotenceKey, or do not shuffle before the write: %s",
                self._identity.batch,
                self._identity.partition,
                line.queue,
                error,
            )
        self.exactly_once = False
        work.appendleft(chunk)
        work.extendleft(reversed(line.doubtful))
        line.trust()
        line.step += 1
        line.base = work[0].first
