"""Reads spans of queues from brokers: pulls in flight, chunks of records, record batches ahead of Spark.

A `Fetcher` runs on the loop and gives chunks of stored records, a round of pulls at a time. `read_batches` is
what a task calls: it decodes chunk after chunk while the next round is on its way, in a thread of its own,
because Python and the JVM would otherwise take turns (spark:R-01). Exactly the asked offsets are delivered,
or `faults.messages_lost` says what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq.columnar.decode import decode
from sparrowmq.columnar.schema import TYPES
from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import CompressedBodyError, RecordError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus, RawBatch, ReadFrom
from sparrowmq.core.subscription import Expression
from sparrowmq.spark.bodies import SHUT
from sparrowmq.spark.connections import pull_consumer
from sparrowmq.spark.faults import is_passing, messages_lost, unusable_filter
from sparrowmq.spark.loop import LoopThread, loop_thread
from sparrowmq.spark.offsets import Span
from sparrowmq.spark.options import ReadOptions
from sparrowmq.spark.pace import PULLS_MAX, Pace
from sparrowmq.spark.prefetch import prefetch
from sparrowmq.spark.shut_bodies import decode_shut

log = logging.getLogger("sparrowmq.spark")

Finish = Callable[[pa.RecordBatch, MessageQueue], pa.RecordBatch]
"""What is done to a batch of one queue's messages before it is handed over."""

_BACKOFF: Final = Backoff(first=0.05, most=5.0)
_LOOKS_AT_END: Final = 3
"""So often a queue must be said to end early, from the second time on by the master: slaves are behind."""


class RawConsumer(Protocol):
    """What a fetcher needs of `aio.PullConsumer`."""

    async def fetch_raw(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_bytes: int,
        max_messages: int,
        expression: Expression,
        read_from: ReadFrom | None = None,
    ) -> RawBatch:
        """Stored records from `offset` on."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Stored records of one span, offsets `start` to before `end`; `lost` of them are known to be missing."""

    queue: MessageQueue
    start: int
    end: int
    lost: int
    buffer: bytes


@dataclass(slots=True)
class _Segment:
    """A part of a span that one pull asks for, and what came."""

    span: int
    queue: MessageQueue
    start: int
    stop: int
    reached: int
    lost: int
    buffers: list[bytes]


_paces: dict[tuple[str, str, int], Pace] = {}


def pace_of(options: ReadOptions, broker_name: str) -> Pace:
    """What this process knows of a broker; kept between tasks."""
    key = (options.name_server, broker_name, options.batch_rows)
    return _paces.setdefault(key, Pace(options.batch_rows))


class Fetcher:
    """Gives the chunks of `spans` in order. `round` must not be called again before it returned."""

    def __init__(self, consumer: RawConsumer, spans: Sequence[Span], options: ReadOptions) -> None:
        self._consumer = consumer
        self._spans = [span for span in spans if len(span)]
        self._options = options
        self._expression = options.expression
        self._span = 0
        self._position = self._spans[0].start if self._spans else 0

    @property
    def done(self) -> bool:
        """Whether all was delivered."""
        return self._span >= len(self._spans)

    async def round(self) -> list[Chunk]:
        """The next chunks, at least one unless `done`.

        Raises `DataLossError`, or what kept pulls from working for the time that the options give.
        """
        segments = self._plan()
        pulls = [asyncio.ensure_future(self._fill(segment)) for segment in segments]
        try:
            await asyncio.gather(*pulls)
        finally:
            for pull in pulls:
                pull.cancel()
        return self._take(segments)

    def _plan(self) -> list[_Segment]:
        """Segments for one round: together about a batch, within the limits of rows, bytes and pulls."""
        options, segments, rows, size = self._options, list[_Segment](), 0, 0.0
        index, position = self._span, self._position
        while index < len(self._spans) and len(segments) < options.pulls_in_flight:
            span = self._spans[index]
            pace = pace_of(options, span.queue.broker_name)
            count = pace.stride if segments else pace.first_count()
            stop = min(span.end, position + min(count, pace.fitting(options.batch_bytes)))
            rows += stop - position
            size += (stop - position) * pace.record_bytes
            if segments and (rows > options.batch_rows or size > options.batch_bytes):
                break
            segments.append(_Segment(index, span.queue, position, stop, position, 0, []))
            position = stop
            if position >= span.end:
                index += 1
                position = self._spans[index].start if index < len(self._spans) else 0
        return segments

    def _take(self, segments: list[_Segment]) -> list[Chunk]:
        """Chunks of what was reached without a gap; the next round goes on from there."""
        chunks: list[Chunk] = []
        for index in range(self._span, segments[-1].span + 1 if segments else 0):
            mine = [segment for segment in segments if segment.span == index]
            start = position = mine[0].start
            lost, buffers = 0, list[bytes]()
            for segment in mine:
                if segment.start != position:
                    break
                position, lost = segment.reached, lost + segment.lost
                buffers += segment.buffers
            data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            chunks.append(Chunk(mine[0].queue, start, position, lost, data))
            self._span, self._position = index, position
            if position < self._spans[index].end:
                return chunks
            self._span += 1
            self._position = 0 if self.done else self._spans[self._span].start
        return chunks

    async def _fill(self, segment: _Segment) -> None:
        """Pull a segment; stop early when the broker gives so little at once that more pulls are needed."""
        given: list[int] = []
        size = 0
        while segment.reached < segment.stop and len(given) < PULLS_MAX:
            before = segment.reached
            answer = await self._pull(segment)
            if answer is None:
                break
            segment.reached = min(answer.next_offset, segment.stop)
            given.append(segment.reached - before)
            if answer.buffer:
                segment.buffers.append(answer.buffer)
                size += len(answer.buffer)
        if given:
            asked = segment.stop - segment.start - segment.lost
            pace_of(self._options, segment.queue.broker_name).learn(asked, given, size)

    async def _pull(self, segment: _Segment) -> RawBatch | None:
        """One answer that gets on; None when there is nothing more up to the segment's stop."""
        options, queue = self._options, segment.queue
        deadline = monotonic() + options.pull_timeout
        delays, looks, source = _BACKOFF.delays(), 0, options.read_from
        while True:  # until an answer, an error or the deadline
            problem: SparrowError
            try:
                answer = await self._consumer.fetch_raw(
                    queue,
                    segment.reached,
                    max_bytes=options.batch_bytes,
                    max_messages=segment.stop - segment.reached,
                    expression=self._expression,
                    read_from=source,
                )
                if answer.status is PullStatus.OFFSET_ILLEGAL and answer.min_offset > segment.reached:
                    oldest = min(answer.min_offset, segment.stop)
                    self._skip(segment, oldest, f"the oldest that is stored is {answer.min_offset}")
                    if segment.reached >= segment.stop:
                        return None
                    continue
                if answer.status in (PullStatus.OFFSET_ILLEGAL, PullStatus.NO_NEW_MESSAGE):
                    looks, source = looks + 1, "master"
                    if looks >= _LOOKS_AT_END:
                        self._skip(segment, segment.stop, f"the queue ends at {answer.max_offset}")
                        return None
                elif answer.next_offset > segment.reached:
                    return answer
                problem = TransportError(f"queue {queue} gives nothing at offset {segment.reached}")
            except SparrowError as error:
                refused = unusable_filter(options, error)
                if refused is not None:
                    raise refused from None
                if not is_passing(error):
                    raise
                problem, source = error, None if source == "slave" else source
            delay = next(delays)
            if monotonic() + delay > deadline:
                raise problem
            log.info("pull of %s at %d is tried again: %s", queue, segment.reached, problem)
            await asyncio.sleep(delay)

    def _skip(self, segment: _Segment, position: int, why: str) -> None:
        messages_lost(self._options, segment.queue, segment.reached, position, why)
        segment.lost += position - segment.reached
        segment.reached = position


def decode_chunk(chunk: Chunk, schema: pa.Schema, options: ReadOptions) -> pa.RecordBatch:
    """A chunk as columns, filtered by tag; without a filter its count is checked (spark:S-53)."""
    wide = schema
    if options.tags and "tags" not in schema.names:
        wide = schema.append(pa.field("tags", TYPES["tags"]))
    offsets = range(chunk.start, chunk.end)
    try:
        batch = decode(chunk.buffer, wide, broker_name=chunk.queue.broker_name, offsets=offsets)
    except CompressedBodyError:
        batch = decode_shut(chunk.buffer, wide, chunk.queue, offsets, options.body)
    except RecordError as error:
        raise RecordError(
            f"queue {chunk.queue}, offsets {chunk.start} to {chunk.end - 1}: {error}; read up to it with "
            "endingOffsets and from behind it with startingOffsets"
        ) from None
    if options.tags:
        batch = batch.filter(pc.is_in(batch["tags"], pa.array(sorted(options.tags))))
        return batch.select([name for name in batch.schema.names if name in schema.names or name == SHUT])
    missing = chunk.end - chunk.start - chunk.lost - batch.num_rows
    if missing and not options.sql92:
        why = f"the broker gave {batch.num_rows} messages where {missing} more were expected"
        messages_lost(options, chunk.queue, chunk.start, chunk.end, why)
    return batch


def _chunks(spans: Sequence[Span], options: ReadOptions, loop: LoopThread) -> Iterator[Chunk]:
    """All chunks; the next round is under way while one is in use."""
    fetcher = Fetcher(loop.run(pull_consumer(options)), spans, options)
    pending: Future[list[Chunk]] | None = None if fetcher.done else loop.submit(fetcher.round())
    try:
        while pending is not None:
            chunks = pending.result()
            pending = None if fetcher.done else loop.submit(fetcher.round())
            yield from chunks
    finally:
        if pending is not None:
            pending.cancel()


def read_batches(
    spans: Sequence[Span], options: ReadOptions, schema: pa.Schema, finish: Finish | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages of `spans` as record batches of `schema`, in order, or as `finish` gives each of them.

    Raises as `Fetcher.round`, and what `finish` raises.
    """
    loop = loop_thread()

    def batches() -> Iterator[pa.RecordBatch]:
        for chunk in _chunks(spans, options, loop):
            batch = decode_chunk(chunk, schema, options)
            if finish is not None:
                batch = finish(batch, chunk.queue)
            if batch.num_rows:
                yield batch

    return prefetch(batches, options.prefetch_batches)
