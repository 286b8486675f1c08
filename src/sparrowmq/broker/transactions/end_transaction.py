"""Ends of transactions (37): a commit makes the message visible, and an op record marks the transaction as
ended (broker:9.2).

The ends of one read from a socket are stored in one chunk with the sends of that read. A commit and the op
record that names it are part of that chunk. If it crosses the end of a log file, there are two writes: a
start after a crash between them writes the op record (`CheckBack`), so a committed message is never delivered
a second time because of a check. If a power failure lost the commit and not the op record, a start opens the
transaction again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.internal_store import NEW_FILES_MAX, NOT_FLUSHED
from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.broker.delay.rerouting import Rerouting, asks_for_time
from sparrowmq.broker.transactions import half_messages as rules
from sparrowmq.core.errors import RecordError, StoreError
from sparrowmq.core.figures.histogram import Histogram
from sparrowmq.core.names import OP_HALF_TOPIC
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command, RawFrame
from sparrowmq.protocol.headers import from_ext
from sparrowmq.protocol.hot import EndFields, EndFrame, decode_end
from sparrowmq.protocol.refusals import Refused

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerMessage, InnerStore
    from sparrowmq.broker.transactions.half_messages import OpenHalves
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.transport.connection import Connection


CHUNK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Maximum size of the messages that the ends of one read commit in one write, in bytes."""
TOPICS_MAX: Final = 10_000
"""Topics whose ends are counted apart; the ends of further ones count together, with an empty name."""
BOUNDS_SECONDS: Final = (5, 60, 600, 3600, 43_200, 86_400)
"""Upper bounds of counted latencies, as in RocketMQ."""


class EndPath:
    """Ends transactions: individually (`handle`), or all of one read (`append_chunk`, then `settle`)."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        inner: InnerStore,
        halves: OpenHalves,
        clock: Clock,
    ) -> None:
        self._timeout = settings.transaction_time_out
        self._rerouting = Rerouting.of(settings)
        self._store = store
        self._inner = inner
        self._halves = halves
        self._clock = clock
        self._host = store.store_host
        self._frames: list[tuple[RawFrame, EndFrame]] = []
        self._chunk_bytes = self._new_files = 0
        self._taken: dict[int, int] = {}  # origin -> latest half message, of the current chunk
        self._results: list[tuple[str, bool, int]] = []  # topic, whether committed, seconds; of the chunk
        self.ended: Counter[tuple[str, bool]] = Counter()
        """Transactions ended since the start, by topic and whether they were committed."""
        self.latencies: dict[str, Histogram] = {}
        """By topic, the whole seconds from the birth of half messages to their commits."""
        self._touched: set[ConsumeQueue] = set()
        self._ops: list[tuple[ConsumeQueue, int, list[int]]] = []  # op queue, its offset, ended half messages

    def handle(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """One end in any form. An unknown state does nothing (the reference then does not answer).

        With `SYNC_FLUSH` the answer waits until the end is on disk. Raises `StoreError` or `RecordError` when
        a commit cannot be stored; the transaction then stays open.
        """
        request = from_ext(EndTransactionRequest, command.ext)
        if request.commit_or_rollback == rules.UNKNOWN:
            return answer(command)
        if request.commit_or_rollback not in (rules.COMMIT, rules.ROLLBACK):
            remark = (
                f"commitOrRollback={request.commit_or_rollback}: it is {rules.COMMIT} to commit, "
                f"{rules.ROLLBACK} to roll back, {rules.UNKNOWN} to be checked later"
            )
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        self._inner.check()
        now = self._clock.now_ms()
        try:
            self._append(request, now)
        except Refused as refused:
            return refused.answer(command.opaque)
        self._append_ops(now)
        try:
            self._store.commit_chunk()
        finally:
            self._finish()
        late = refusal(command, ResponseCode.FLUSH_DISK_TIMEOUT, NOT_FLUSHED)
        return self._inner.answer_flushed(answer(command), late)

    def append_chunk(self, frames: list[RawFrame]) -> list[RawFrame]:
        """Add the plain ends among `frames` to the current chunk. The others go to `handle`, as do all ends
        after the messages of the chunk have `CHUNK_BYTES_MAX` bytes or have begun `NEW_FILES_MAX` queue
        files.

        `settle` must follow, after all other additions to the same write.
        """
        try:
            self._inner.check()
        except StoreError:
            return frames
        others = []
        now = self._clock.now_ms()
        self._chunk_bytes = self._new_files = 0
        for frame in frames:
            full = self._chunk_bytes > CHUNK_BYTES_MAX or self._new_files >= NEW_FILES_MAX
            end = None if full else decode_end(frame[1])
            if end is None or not self._append_clean(end, now):
                others.append(frame)
            else:
                self._frames.append((frame, end))
        if self._taken:
            self._append_ops(now)
        return others

    def settle(self, connection: Connection) -> list[RawFrame]:
        """Store the result of `append_chunk`, unless that is already done, and answer the clients.

        If it cannot be stored, the frames are returned: `handle` then reports the reason.
        """
        frames, self._frames = self._frames, []
        is_stored = True
        try:
            self._store.commit_chunk()
        except StoreError:
            is_stored = False
        if not (self._finish() and is_stored):
            return [frame for frame, _ in frames]
        asked = [end.opaque for _, end in frames if not end.flag & FLAG_ONEWAY]
        if asked:
            self._answer(connection, asked)
        return []

    def _answer(self, connection: Connection, opaques: list[int]) -> None:
        """Answer that ends are stored, with `SYNC_FLUSH` once they are on disk."""

        def flushed(on_disk: bool) -> None:
            code = ResponseCode.SUCCESS if on_disk else ResponseCode.FLUSH_DISK_TIMEOUT
            for opaque in opaques:
                connection.send(Command(code, opaque, FLAG_RESPONSE, remark=None if on_disk else NOT_FLUSHED))

        self._inner.when_flushed(flushed)

    def _append_clean(self, end: EndFrame, now_ms: int) -> bool:
        if end.flag & FLAG_RESPONSE or end.fields.commit_or_rollback not in (rules.COMMIT, rules.ROLLBACK):
            return False
        try:
            self._append(end.fields, now_ms)
        except (Refused, RecordError, StoreError):
            return False
        return True

    def _append(self, request: EndTransactionRequest | EndFields, now_ms: int) -> None:
        """Add a commit's message to the chunk, and record the content of its op record.

        On an exception, the chunk is unchanged.
        """
        record = self._inner.read(request.commit_log_offset)
        if record is None:
            raise Refused(*rules.no_half(request.commit_log_offset))
        half = rules.read_half(record.properties)
        refused = rules.end_refusal(request, record, half, now_ms=now_ms, timeout_ms=self._timeout)
        if refused is not None:
            raise Refused(*refused)
        origin = half.origin(record.queue_offset)
        latest = self._halves.latest(origin)
        if latest is None or origin in self._taken:
            remark = f"the transaction of half message {record.queue_offset} is finished already"
            raise Refused(ResponseCode.SYSTEM_ERROR, remark)
        if request.commit_or_rollback == rules.COMMIT:
            message = self._committed(record, half, now_ms)
            queue = self._inner.queue(message.topic, message.queue_id)
            self._new_files += queue.next_offset >= queue.writable_until
            self._inner.append(message, queue, now_ms)
            self._chunk_bytes += len(message.body)
            self._touched.add(queue)
        self._taken[origin] = latest
        seconds = max(0, now_ms - record.born_timestamp) // 1000
        self._results.append((half.topic or "", request.commit_or_rollback == rules.COMMIT, seconds))

    def _committed(self, record: StoredRecord, half: rules.Half, now_ms: int) -> InnerMessage:
        """The message that becomes visible, or waits according to its delay or time (broker:9.2)."""
        message = rules.committed(record, half)
        if asks_for_time(message.properties):
            place = self._rerouting.place(
                message.topic, message.queue_id, message.properties, message.sys_flag, now_ms
            )
            message.topic, message.queue_id, message.properties = (
                place.topic,
                place.queue_id,
                place.properties,
            )
            if place.delay_ms is not None:
                message.tags_code = now_ms + place.delay_ms
        return message

    def _append_ops(self, now_ms: int) -> None:
        """Add the op records of the chunk's ends."""
        queue = self._inner.queue(OP_HALF_TOPIC, 0)
        origins, step = list(self._taken), rules.OP_NUMBERS_MAX
        for start in range(0, len(origins), step):
            named = origins[start : start + step]
            self._ops.append((queue, queue.next_offset, named))
            offsets = [self._taken[origin] for origin in named]
            self._inner.append(rules.op_message(offsets, now_ms=now_ms, host=self._host), queue, now_ms)
        self._touched.add(queue)

    def _finish(self) -> bool:
        """Record the ended transactions and wake waiting pulls; False when the chunk was not stored.

        A chunk that could not be stored leaves no entry in the op queue, regardless of who tried to commit
        it.
        """
        ops, self._ops = self._ops, []
        touched, self._touched = self._touched, set()
        results, self._results = self._results, []
        self._taken.clear()
        if ops:
            queue, last, _ = ops[-1]
            if queue.committed <= last:
                return False
        for _, op_offset, origins in ops:
            self._halves.ended(origins, op_offset)
        for topic, is_commit, seconds in results:
            self._count(topic, is_commit, seconds)
        self._inner.wake_after(touched)
        return True

    def _count(self, topic: str, is_commit: bool, seconds: int) -> None:
        is_counted = (topic, is_commit) in self.ended or len(self.ended) < 2 * TOPICS_MAX
        name = topic if is_counted else ""
        self.ended[name, is_commit] += 1
        if is_commit:
            if name not in self.latencies:
                self.latencies[name] = Histogram(BOUNDS_SECONDS)
            self.latencies[name].add(seconds)
