"""Reads spans of queues from brokers: concurrent pulls, chunks of records, record batches ahead of Spark.

A `Fetcher` runs on the loop and returns chunks of stored records, one round of pulls at a time. Tasks call
`read_batches`, which decodes one chunk after the other while the next round is in flight. It runs in a
thread, because Python and the JVM would otherwise wait for each other (spark:R-01). Exactly the requested
offsets are delivered, or `faults.messages_lost` says what is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparrowmq import aio
from sparrowmq.columnar.arrays import texts
from sparrowmq.columnar.decode import DecodedBatch, decode_batches
from sparrowmq.columnar.schema import TYPES
from sparrowmq.core.errors import RecordError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus, RawBatch
from sparrowmq.loops.event_loop import LoopThread, loop_thread
from sparrowmq.spark.bodies.decoding import NOT_DECOMPRESSED
from sparrowmq.spark.cluster.clients import pull_consumer
from sparrowmq.spark.cluster.faults import (
    is_deleted,
    is_illegal_queue,
    is_passing,
    messages_lost,
    unusable_filter,
)
from sparrowmq.spark.cluster.garbage import task_begins
from sparrowmq.spark.cluster.retry import Retries
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.options.table import ReadOptions
from sparrowmq.spark.read.odd_times import OddTimes
from sparrowmq.spark.read.prefetch import prefetch
from sparrowmq.spark.read.pull_size import PULLS_MAX, PullSize, PullSizes

log = logging.getLogger("sparrowmq.spark")

Finish = Callable[[pa.RecordBatch, MessageQueue], pa.RecordBatch]
"""Applied to a batch of one queue's messages before it is delivered."""

_LOOKS_AT_END: Final = 3
"""How often a queue must be reported to end early, from the second time on by the master: slaves may be
behind.
"""
_ROUND_BATCHES: Final = 4
"""How many batches the first answers of a round are, if messages are larger than was planned."""


@dataclass(frozen=True, slots=True)
class RecordChunk:
    """Stored records of one span, offsets `start` to before `end`; `lost` of them are known to be missing."""

    queue: MessageQueue
    start: int
    end: int
    lost: int
    buffer: bytes


@dataclass(slots=True)
class _Segment:
    """A part of a span that one pull requests, and its result."""

    span: int
    queue: MessageQueue
    start: int
    stop: int
    reached: int
    lost: int
    buffers: list[bytes]


class Fetcher:
    """Returns the chunks of `spans` in order. Do not call `round` again before it has returned."""

    def __init__(
        self,
        consumer: aio.PullConsumer,
        spans: Sequence[Span],
        options: ReadOptions,
        sizes: PullSizes | None = None,
    ) -> None:
        self._consumer = consumer
        self._spans = [span for span in spans if len(span)]
        self._options = options
        self._expression = options.expression
        self._sizes = PullSizes() if sizes is None else sizes
        self._span = 0
        self._position = self._spans[0].start if self._spans else 0
        self._bytes_pulled = 0
        """In this round."""

    @property
    def done(self) -> bool:
        """Whether all chunks were delivered."""
        return self._span >= len(self._spans)

    async def round(self) -> list[RecordChunk]:
        """The next chunks, at least one unless `done`.

        Raises `DataLossError`, or the error of pulls that failed for longer than the options allow.
        """
        segments = self._plan()
        batch_bytes, self._bytes_pulled = self._options.batch_bytes, 0
        share = min(batch_bytes, _ROUND_BATCHES * batch_bytes // max(1, len(segments)))
        pulls = [asyncio.ensure_future(self._fill(segment, share)) for segment in segments]
        try:
            await asyncio.gather(*pulls)
        finally:
            for pull in pulls:
                pull.cancel()
        return self._take(segments)

    def _plan(self) -> list[_Segment]:
        """Segments for one round: together about one batch, within the limits of rows, bytes and pulls."""
        options, segments, rows, size = self._options, list[_Segment](), 0, 0.0
        index, position = self._span, self._position
        while index < len(self._spans) and len(segments) < options.pulls_in_flight:
            span = self._spans[index]
            pull = self._pull_size(span.queue)
            count = pull.stride if segments else pull.first_count()
            stop = min(span.end, position + min(count, pull.fitting(options.batch_bytes)))
            rows += stop - position
            size += (stop - position) * pull.record_bytes
            if segments and (rows > options.batch_rows or size > options.batch_bytes):
                break
            segments.append(_Segment(index, span.queue, position, stop, position, 0, []))
            position = stop
            if position >= span.end:
                index += 1
                position = self._spans[index].start if index < len(self._spans) else 0
        return segments

    def _take(self, segments: list[_Segment]) -> list[RecordChunk]:
        """Chunks up to the first gap; the next round continues from there."""
        chunks: list[RecordChunk] = []
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
            chunks.append(RecordChunk(mine[0].queue, start, position, lost, data))
            self._span, self._position = index, position
            if position < self._spans[index].end:
                return chunks
            self._span += 1
            self._position = 0 if self.done else self._spans[self._span].start
        return chunks

    async def _fill(self, segment: _Segment, share: int) -> None:
        """Pull a segment, `share` bytes at a time.

        Stops early if the broker returns so little per pull that more rounds are needed, or if the round has
        its batch.
        """
        given: list[int] = []
        size = 0
        while segment.reached < segment.stop and len(given) < PULLS_MAX:
            if given and self._bytes_pulled >= self._options.batch_bytes:
                break
            before = segment.reached
            answer = await self._pull(segment, share)
            if answer is None:
                break
            segment.reached = min(answer.next_offset, segment.stop)
            given.append(segment.reached - before)
            if answer.buffer:
                segment.buffers.append(answer.buffer)
                size += len(answer.buffer)
                self._bytes_pulled += len(answer.buffer)
        if given:
            asked = segment.stop - segment.start - segment.lost
            self._pull_size(segment.queue).learn(asked, given, size)

    def _pull_size(self, queue: MessageQueue) -> PullSize:
        return self._sizes.of(self._options.name_server, queue.broker_name, self._options.batch_rows)

    async def _pull(self, segment: _Segment, bytes_max: int) -> RawBatch | None:
        """One response with progress; None at the end of the segment."""
        options, queue = self._options, segment.queue
        retries = Retries(options.broker_timeout, if_lost=f"option lostBrokers={queue.broker_name}")
        looks, source = 0, options.read_from
        while True:  # until a response, an error or the end of the retries
            problem: SparrowError
            try:
                answer = await self._consumer.fetch_raw(
                    queue,
                    segment.reached,
                    max_bytes=bytes_max,
                    max_messages=segment.stop - segment.reached,
                    expression=self._expression,
                    read_from=source,
                )
                if answer.status is PullStatus.OFFSET_ILLEGAL and answer.min_offset > segment.reached:
                    oldest = min(answer.min_offset, segment.stop)
                    self._skip(segment, oldest, f"the oldest stored offset is {answer.min_offset}")
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
                problem = TransportError(f"queue {queue} returned nothing at offset {segment.reached}")
            except SparrowError as error:
                refused = unusable_filter(options, error)
                if refused is not None:
                    raise refused from None
                if is_deleted(error) and source != "master":
                    source = "master"  # a slave may not know a new topic yet
                    continue
                if is_deleted(error):
                    self._skip(segment, segment.stop, _gone(queue, error))
                    return None
                if not is_passing(error):
                    raise
                problem, source = error, None if source == "slave" else source
            await retries.pause(f"a pull of {queue} at {segment.reached}", problem)

    def _skip(self, segment: _Segment, position: int, why: str) -> None:
        messages_lost(self._options, segment.queue, segment.reached, position, why)
        segment.lost += position - segment.reached
        segment.reached = position


def _gone(queue: MessageQueue, error: SparrowError) -> str:
    """Why a queue cannot be read that was there when the read was planned, and what to do if anything."""
    if not is_illegal_queue(error):
        return f"it was deleted: {error}"
    return (
        f"its topic has fewer queues to read now ({error}); it can get them back, to read these messages: "
        f"sparrow topic update {queue.topic} --read-queues {queue.queue_id + 1}"
    )


def decode_chunk(chunk: RecordChunk, schema: pa.Schema, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """A chunk as columns, in batches of `batchBytes`, filtered by tag.

    Without a filter the number of messages is checked at the end (spark:S-53).
    """
    wide = schema
    if options.tags and "tags" not in schema.names:
        wide = schema.append(pa.field("tags", TYPES["tags"]))
    count = 0
    for decoded in _decoded(chunk, wide, options):
        batch = decoded.batch
        count += batch.num_rows
        if decoded.shut:
            from sparrowmq.spark.bodies.undecompressable import marked  # rarely needed

            batch = marked(decoded, chunk.queue, options.body)
        if options.tags:
            batch = batch.filter(pc.is_in(batch["tags"], texts(sorted(options.tags), pa.string())))
            batch = batch.select(
                [name for name in batch.schema.names if name in schema.names or name == NOT_DECOMPRESSED]
            )
        yield batch
    missing = chunk.end - chunk.start - chunk.lost - count
    if missing and not options.tags and not options.sql92:
        why = f"the broker returned {count} messages, but {missing} more were expected"
        messages_lost(options, chunk.queue, chunk.start, chunk.end, why)


def _decoded(chunk: RecordChunk, schema: pa.Schema, options: ReadOptions) -> Iterator[DecodedBatch]:
    try:
        yield from decode_batches(
            chunk.buffer,
            schema,
            bytes_max=options.batch_bytes,
            broker_name=chunk.queue.broker_name,
            offsets=range(chunk.start, chunk.end),
        )
    except RecordError as error:
        raise RecordError(
            f"queue {chunk.queue}, offsets {chunk.start} to {chunk.end - 1}: {error}; read up to it with "
            f"endingOffsets, and after it with startingOffsets",
            value=Span(chunk.queue, chunk.start, chunk.end),
        ) from None


def _chunks(spans: Sequence[Span], options: ReadOptions, loop: LoopThread) -> Iterator[RecordChunk]:
    """All chunks; the next round is in flight while one is processed."""
    fetcher = Fetcher(loop.run(pull_consumer(options)), spans, options, loop.kept(PullSizes))
    pending: Future[list[RecordChunk]] | None = None if fetcher.done else loop.submit(fetcher.round())
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
) -> Generator[pa.RecordBatch, None, None]:
    """The messages of `spans` as record batches of `schema`, in order, each passed through `finish`.

    Raises the errors of `Fetcher.round` and of `finish`.
    """
    task_begins()
    loop = loop_thread()

    def batches() -> Iterator[pa.RecordBatch]:
        times = OddTimes()
        for chunk in _chunks(spans, options, loop):
            for batch in decode_chunk(chunk, schema, options):
                times.count(batch)
                if finish is not None:
                    batch = finish(batch, chunk.queue)
                if batch.num_rows:
                    yield batch
        times.warn()

    return prefetch(batches, options.prefetch_batches)
