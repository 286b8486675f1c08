"""Ends of transactions (37): a commit shows the message, and an op record says that it is over (broker:9.2).

The ends of one read from a socket are stored in one write with the sends of that read. A commit and the op
record that names it are part of that write: after a crash both are there or neither, so a committed message
is never delivered a second time because of a check.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from sparrowmq.broker import transaction as rules
from sparrowmq.broker.progress import answer, refusal
from sparrowmq.broker.rerouting import RerouteRefused, Rerouting, asks_for_time
from sparrowmq.core.errors import RecordError, StoreError
from sparrowmq.core.names import OP_HALF_TOPIC
from sparrowmq.protocol.call_headers import EndTransactionRequest
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command, RawFrame
from sparrowmq.protocol.headers import from_ext
from sparrowmq.protocol.hot import EndFields, EndFrame, decode_end

if TYPE_CHECKING:
    from sparrowmq.broker.inner import InnerMessage, InnerStore
    from sparrowmq.broker.transaction import OpenHalves
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.transport.connection import Connection


class EndRefused(Exception):
    """A transaction cannot be ended so: code and remark."""

    def __init__(self, code: ResponseCode, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


class EndPath:
    """Ends transactions: alone (`handle`), or all of one read (`append_chunk`, then `settle`)."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        inner: InnerStore,
        halves: OpenHalves,
        clock: Clock,
        *,
        store_host: bytes,
    ) -> None:
        self._timeout = settings.transaction_time_out
        self._rerouting = Rerouting.of(settings)
        self._store = store
        self._inner = inner
        self._halves = halves
        self._clock = clock
        self._host = store_host
        self._frames: list[tuple[RawFrame, EndFrame]] = []
        self._taken: dict[int, int] = {}  # origin -> latest half message, of the chunk under way
        self._touched: set[ConsumeQueue] = set()
        self._ops: list[tuple[int, list[int]]] = []  # offset of an op record, the origins it ends

    def handle(self, connection: Connection, command: Command) -> Command:
        """One end in any form. An unknown state does nothing (the reference then does not answer).

        Raises `StoreError` or `RecordError` when a commit cannot be stored; the transaction then stays open.
        """
        request = from_ext(EndTransactionRequest, command.ext)
        if request.commit_or_rollback == rules.UNKNOWN:
            return answer(command)
        if request.commit_or_rollback not in (rules.COMMIT, rules.ROLLBACK):
            remark = (
                f"commitOrRollback={request.commit_or_rollback}: it is {rules.COMMIT} to commit, "
                f"{rules.ROLLBACK} to roll back, {rules.UNKNOWN} to be asked later"
            )
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        self._inner.check()
        now = self._clock.now_ms()
        try:
            self._append(request, now)
        except (EndRefused, RerouteRefused) as refused:
            return refusal(command, refused.code, refused.remark)
        self._append_ops(now)
        try:
            self._store.commit_chunk()
        finally:
            self._finish()
        return answer(command)

    def append_chunk(self, frames: list[RawFrame]) -> list[RawFrame]:
        """Add the clean ends among `frames` to the chunk under way; the others go to `handle`.

        `settle` must follow, after whatever else goes into the same write.
        """
        others = []
        now = self._clock.now_ms()
        for frame in frames:
            end = decode_end(frame[1])
            if end is None or not self._append_clean(end, now):
                others.append(frame)
            else:
                self._frames.append((frame, end))
        if self._taken:
            self._append_ops(now)
        return others

    def settle(self, connection: Connection) -> list[RawFrame]:
        """Store what `append_chunk` added, unless that is done already, and answer who waits.

        When it cannot be stored, the frames are given back: `handle` says why.
        """
        frames, self._frames = self._frames, []
        with suppress(StoreError):
            self._store.commit_chunk()
        if not self._finish():
            return [frame for frame, _ in frames]
        for _, end in frames:
            if not end.flag & FLAG_ONEWAY:
                connection.send(Command(ResponseCode.SUCCESS, end.opaque, FLAG_RESPONSE))
        return []

    def _append_clean(self, end: EndFrame, now_ms: int) -> bool:
        if end.flag & FLAG_RESPONSE or end.fields.commit_or_rollback not in (rules.COMMIT, rules.ROLLBACK):
            return False
        try:
            self._inner.check()
            self._append(end.fields, now_ms)
        except (EndRefused, RerouteRefused, RecordError, StoreError):
            return False
        return True

    def _append(self, request: EndTransactionRequest | EndFields, now_ms: int) -> None:
        """Add a commit's message to the chunk, and note what the op record will say.

        Raises with the chunk as it was.
        """
        record = self._inner.read(request.commit_log_offset)
        if record is None:
            raise EndRefused(*rules.no_half(request.commit_log_offset))
        half = rules.read_half(record.properties)
        refused = rules.end_refusal(request, record, half, now_ms=now_ms, timeout_ms=self._timeout)
        if refused is not None:
            raise EndRefused(*refused)
        origin = half.origin(record.queue_offset)
        latest = self._halves.latest(origin)
        if latest is None or origin in self._taken:
            remark = f"the transaction of half message {record.queue_offset} is finished already"
            raise EndRefused(ResponseCode.SYSTEM_ERROR, remark)
        if request.commit_or_rollback == rules.COMMIT:
            message = self._committed(record, half, now_ms)
            queue = self._inner.queue(message.topic, message.queue_id)
            self._inner.append(message, queue, now_ms)
            self._touched.add(queue)
        self._taken[origin] = latest

    def _committed(self, record: StoredRecord, half: rules.Half, now_ms: int) -> InnerMessage:
        """The message that becomes visible, or waits where its delay or time says (broker:9.2)."""
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
            self._ops.append((queue.next_offset, named))
            offsets = [self._taken[origin] for origin in named]
            self._inner.append(rules.op_message(offsets, now_ms=now_ms, host=self._host), queue, now_ms)
        self._touched.add(queue)

    def _finish(self) -> bool:
        """Note what is ended now and wake who waits; False when the chunk was not stored.

        A chunk that could not be stored has left no entry in the op queue, whoever tried to commit it.
        """
        ops, self._ops = self._ops, []
        touched, self._touched = self._touched, set()
        self._taken.clear()
        if ops and self._inner.queue(OP_HALF_TOPIC, 0).committed <= ops[-1][0]:
            return False
        for op_offset, origins in ops:
            self._halves.ended(origins, op_offset)
        self._inner.wake_after(touched)
        return True
