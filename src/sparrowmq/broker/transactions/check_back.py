"""Open transactions, check back (39), and resumed checks (323) (broker:9)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.internal_store import NOT_FLUSHED, InnerMessage
from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.broker.transactions import half_messages as rules
from sparrowmq.broker.transactions.end_transaction import EndPath
from sparrowmq.broker.transactions.half_messages import CheckVerdict, OpenHalves
from sparrowmq.core.errors import InvalidMessageError, RecordError, StoreError
from sparrowmq.core.ids import offset_message_id, parse_offset_message_id
from sparrowmq.core.names import HALF_TOPIC, OP_HALF_TOPIC
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.call_headers import (
    CheckTransactionStateRequest,
    ResumeCheckHalfMessageRequest,
)
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import from_ext, to_ext
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.tables.clients import ClientTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")

RUN_SECONDS_MAX: Final = 60.0
"""Time limit of one run of checks; the next run continues."""
STEP_COUNT: Final = 32
LOAD_COUNT: Final = 1000
STEP_BYTES: Final = 1024 * 1024
SKIP_COUNT: Final = 20_000
"""Number of ended half messages skipped per step."""
CHANNEL_TRIES: Final = 3
UNSENT_BYTES_MAX: Final = 1024 * 1024
"""A producer with this many unread bytes gets no further checks; the next run retries."""
COUNTED_MAX: Final = 256
"""Maximum number of half messages that are read to count the open ones by topic."""
MS_PER_HOUR: Final = 3_600_000


def anybody(producer: Connection, topic: str) -> bool:
    """Without access control, every producer of the group may be asked."""
    return True


class CheckBack:
    """Manages the half messages of one broker; `ends` ends them.

    A producer is asked about a half message only if `may_check` permits it for the producer and the message's
    topic. `settings` returns the current ones: operators change the retention time while the broker runs.
    """

    def __init__(
        self,
        settings: Callable[[], BrokerSettings],
        store: MessageStore,
        inner: InnerStore,
        clients: ClientTable,
        offsets: ConsumerOffsets,
        clock: Clock,
        *,
        may_check: Callable[[Connection, str], bool] = anybody,
    ) -> None:
        self._may_check = may_check
        self._settings = settings
        self._store = store
        self._inner = inner
        self._clients = clients
        self._offsets = offsets
        self._clock = clock
        self._turn = 0
        self.unasked = 0
        """Open half messages that retention took, or would have taken, before a producer could be asked."""
        self._left_from = 0
        self._occasional = OccasionalLog(log)
        self._halves = OpenHalves(self._start(HALF_TOPIC), self._start(OP_HALF_TOPIC))
        doubtful = self._load()
        if not settings().is_slave:  # a slave's log has nothing of its own
            self._reopen(doubtful, self._finish(store.recovery.commits))
        self.ends = EndPath(settings(), store, inner, self._halves, clock)

    def _start(self, topic: str) -> int:
        """Where the checks continue in a topic's queue."""
        stored = self._offsets.query(topic, rules.CHECK_GROUP, 0)
        queue = self._store.find_queue(topic, 0)
        low = 0 if queue is None else queue.min_offset
        return low if stored is None else max(low, stored)

    def _load(self) -> list[int]:
        """Load half messages and op records; returns the half messages that may have been ended without the
        commit that belongs to it.

        Their op records are behind a part of the log that a power failure lost, and no later start has stored
        them again.
        """
        halves, queue = self._halves, self._store.find_queue(HALF_TOPIC, 0)
        end = 0 if queue is None else queue.max_offset
        recovery = self._store.recovery
        lost = recovery.damaged[0][0] if recovery.damaged and not recovery.clean else None
        doubtful: dict[int, None] = {}
        for record in self._records(OP_HALF_TOPIC, halves.first_op):
            halves.load_op(record.queue_offset, record.body, end)
            if lost is not None and record.physical_offset > lost:
                doubtful.update(dict.fromkeys(rules.op_numbers(record.body)))
        for record in self._records(HALF_TOPIC, halves.first):
            halves.load_half(record.queue_offset, rules.first_offset(record))
            before = rules.reopened_offset(record)
            if before is not None:
                doubtful.pop(before, None)
        return list(doubtful)

    def _finish(self, commits: Iterable[int]) -> set[int]:
        """End transactions whose commit survived a crash without the op record of the same chunk; returns the
        first half messages of all that are committed.

        A chunk that crosses the end of a log file needs two writes. If asked again, the producer would commit
        a second time.
        """
        ended: dict[int, int] = {}
        committed: set[int] = set()
        for position in commits:
            record = self._inner.read(position)
            if record is None or record.topic != HALF_TOPIC:
                continue
            origin = rules.first_offset(record)
            committed.add(origin)
            latest = self._halves.latest(origin)
            if latest is not None:
                ended[origin] = latest
        origins = list(ended)
        for start in range(0, len(origins), rules.OP_NUMBERS_MAX):
            named = origins[start : start + rules.OP_NUMBERS_MAX]
            offsets = [ended[origin] for origin in named]
            (placed,) = self._inner.put(
                [rules.op_message(offsets, now_ms=self._clock.now_ms(), host=self._store.store_host)]
            )
            self._halves.ended(named, placed.queue_offset)
        if ended:
            log.warning(
                "%d transactions had been committed when the broker died; ending them now", len(ended)
            )
        return committed

    def _reopen(self, doubtful: Iterable[int], committed: Collection[int]) -> None:
        """Store these half messages again, except those of committed transactions: their producers are asked.

        A power failure may lose the middle of a chunk: the committed message, but not the op record that is
        stored with it. Whether they were rolled back is not known, so their producers are asked, too.
        """
        count = 0
        for offset in doubtful:
            for record in self._inner.scan(HALF_TOPIC, 0, offset, 1, 1).records:
                if record.queue_offset != offset or rules.first_offset(record) in committed:
                    continue
                try:
                    message = rules.reopened(record)
                    if message is not None:
                        self._inner.put([message])
                        count += 1
                except (InvalidMessageError, RecordError) as error:
                    log.error("the half message %d cannot be stored again: %s", offset, error)
        if count:
            log.warning(
                "a power failure may have lost what %d transactions had committed: producers are asked again",
                count,
            )

    def _records(self, topic: str, offset: int) -> Iterator[StoredRecord]:
        while True:  # ends with the queue: every round advances
            scan = self._inner.scan(topic, 0, offset, LOAD_COUNT, STEP_BYTES)
            if scan.next_offset <= offset:
                return
            yield from scan.records
            offset = scan.next_offset

    def is_full(self, end: int) -> bool:
        """Whether the limit of open transactions is reached; `end` is the end of the half queue."""
        return self._halves.waiting(end) >= self._settings().open_transactions_max

    @property
    def open_count(self) -> int:
        """Number of open half messages, whether a producer was asked about them or not."""
        queue = self._store.find_queue(HALF_TOPIC, 0)
        return 0 if queue is None else self._halves.waiting(queue.max_offset)

    def counting(self, found: Counter[str]) -> Iterator[None]:
        """Count the open half messages by topic, in steps. What `COUNTED_MAX` leaves over, counts under an
        empty name. Raises `StoreError`.
        """
        queue = self._store.find_queue(HALF_TOPIC, 0)
        offset, end = self._halves.first, 0 if queue is None else queue.max_offset
        read = 0
        while offset < end and read < COUNTED_MAX:
            following = self._halves.skip(offset, SKIP_COUNT)
            if following == offset:
                scan = self._inner.scan(HALF_TOPIC, 0, offset, STEP_COUNT, STEP_BYTES)
                read += STEP_COUNT
                following = max(offset + 1, scan.next_offset)
                for record in scan.records:
                    if not self._halves.is_done(record.queue_offset):
                        topic = property_string.find(record.properties, rules.REAL_TOPIC.encode()) or b""
                        found[topic.decode("utf-8", "replace")] += 1
            offset = following
            yield
        rest = self.open_count - found.total()
        if rest > 0:
            found[""] += rest

    def resume(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """323: store a half message that was given up again, so that it is checked again."""
        request = from_ext(ResumeCheckHalfMessageRequest, command.ext)
        try:
            record = self._inner.read(parse_offset_message_id(request.msg_id)[2])
        except RecordError as error:
            return refusal(command, ResponseCode.SYSTEM_ERROR, str(error))
        message = None if record is None else rules.resumed(record)
        if message is None:
            remark = f"{request.msg_id} is not a half message of this broker, so it cannot be checked again"
            return refusal(command, ResponseCode.SYSTEM_ERROR, remark)
        if self.is_full(self._inner.queue(HALF_TOPIC, 0).next_offset):
            text = rules.too_many_open(self._settings().open_transactions_max)
            return refusal(command, ResponseCode.SYSTEM_BUSY, text)
        self._inner.put([message])
        late = refusal(command, ResponseCode.FLUSH_DISK_TIMEOUT, NOT_FLUSHED)
        return self._inner.answer_flushed(answer(command), late)

    # Checking

    async def check(self) -> None:
        """One run: ask producers about half messages that wait too long; give up those beyond the limits.

        Half messages without a connected producer stay where they are, and so does the queue's progress,
        unless too many others came after them.
        """
        queue = self._store.find_queue(HALF_TOPIC, 0)
        run_end = 0 if queue is None else queue.max_offset
        self._left_from = self._halves.left_from(run_end)
        deadline = self._clock.monotonic() + RUN_SECONDS_MAX
        offset = self._halves.first
        try:
            while self._clock.monotonic() < deadline:
                following = self._step(offset, run_end)
                if following <= offset:
                    break
                offset = following
                await asyncio.sleep(0)
        except StoreError as error:
            text = f"transactions cannot be checked; the next run retries: {error}"
            self._occasional.write(logging.ERROR, "check", text)
        self._advance(self._halves.skip(self._halves.first, SKIP_COUNT))

    def _advance(self, offset: int) -> None:
        halves = self._halves
        if offset != halves.first:
            halves.advance(offset)
            self._offsets.commit(HALF_TOPIC, rules.CHECK_GROUP, 0, halves.first, always=True)
            self._offsets.commit(OP_HALF_TOPIC, rules.CHECK_GROUP, 0, halves.first_op, always=True)

    def _step(self, offset: int, run_end: int) -> int:
        """Process the next half messages from `offset` on; returns where to continue, `offset` at the end."""
        passed, settings = self._halves.skip(offset, SKIP_COUNT), self._settings()
        if passed > offset:
            return passed
        scan = self._inner.scan(HALF_TOPIC, 0, offset, STEP_COUNT, STEP_BYTES)
        end = min(scan.next_offset, offset + SKIP_COUNT)
        self._count_unasked(
            self._halves.missed(offset, end, {record.queue_offset for record in scan.records}),
            "their half messages were deleted or damaged",
        )
        for record in scan.records:
            if record.queue_offset >= end:
                break
            if self._halves.is_done(record.queue_offset):
                continue
            verdict = rules.judge(
                record,
                now_ms=self._clock.now_ms(),
                run_end=run_end,
                timeout_ms=settings.transaction_time_out,
                checks_max=settings.transaction_check_max,
            )
            if verdict is CheckVerdict.STOP:
                return record.queue_offset
            self._carry_out(verdict, record)
        return max(offset, end)

    def _carry_out(self, verdict: CheckVerdict, record: StoredRecord) -> None:
        if verdict is CheckVerdict.DISCARD:
            self._give_up(record, f"after {rules.check_times(record)} checks")
            return
        producer = self._producer(record) if verdict is CheckVerdict.CHECK else None
        now = self._clock.now_ms()
        if verdict is CheckVerdict.CHECK and producer is None and record.queue_offset >= self._left_from:
            kept_ms = self._settings().file_reserved_time * MS_PER_HOUR
            if now - record.store_timestamp > kept_ms:  # its record may be deleted soon
                self._give_up(record, "because no producer could be asked until its record expired")
                self._count_unasked(1, "no producer of theirs was connected")
            return
        try:
            message = rules.renewed(record, now_ms=now, asked=producer is not None)
            (placed,) = self._inner.put([message])
        except (InvalidMessageError, RecordError) as error:  # one message must not block those after it
            self._give_up(record, f"because its producers cannot be asked: {error}")
            self._count_unasked(1, "their half messages have no room for a check")
            return
        self._halves.moved(record.queue_offset, rules.first_offset(record), placed.queue_offset)
        copy = None if producer is None else self._inner.read(placed.physical_offset)
        if producer is not None and copy is not None:
            self._ask(producer, copy)

    def _count_unasked(self, count: int, why: str) -> None:
        if count:
            self.unasked += count
            text = f"transactions ended without a check, {self.unasked} since the start: {why}"
            self._occasional.write(logging.ERROR, "unasked", text)

    def _give_up(self, record: StoredRecord, why: str) -> None:
        """Give up a transaction. A half message that cannot be copied stays where it is: it must not stop the
        checks of those after it.
        """
        where = f"is in {rules.DISCARD_TOPIC}"
        try:
            self._inner.put([InnerMessage.copy_of(record, rules.DISCARD_TOPIC, 0)])
        except RecordError as error:
            self._store.stats.lose()
            where = f"is only in {HALF_TOPIC}: {error}"
        self._halves.given_up(rules.first_offset(record))
        text = f"a transaction was given up {why}; its half message {record.queue_offset} {where}"
        self._occasional.write(logging.WARNING, "discard", text)

    def _ask(self, producer: Connection, half: StoredRecord) -> None:
        """Send 39 to a producer of the group (broker:9.5)."""
        found = property_string.find(half.properties, b"UNIQ_KEY")
        key = None if found is None else found.decode("utf-8", "replace")
        request = CheckTransactionStateRequest(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=offset_message_id(half.store_host, half.physical_offset),
            topic=HALF_TOPIC,
            broker_name=self._settings().broker_name,
        )
        body = rules.check_body(half)
        producer.notify(Command(RequestCode.CHECK_TRANSACTION_STATE, ext=to_ext(request), body=body))

    def _producer(self, half: StoredRecord) -> Connection | None:
        """A connected producer of the group that keeps up with its messages, in rotation (broker:9.5); None
        when there is none: the next run tries again."""
        found = property_string.decode(half.properties)
        group, topic = found.get(rules.PRODUCER_GROUP, ""), found.get(rules.REAL_TOPIC, "")
        known = self._clients.producers.get(group, ())
        members = [connection for connection in known if self._may_check(connection, topic)]
        for _ in range(min(CHANNEL_TRIES, len(members))):
            self._turn += 1
            connection = members[self._turn % len(members)]
            if not connection.closed and connection.unsent_bytes <= UNSENT_BYTES_MAX:
                return connection
        text = f"no producer of group {group} that may send to {topic} is connected: its transactions wait"
        self._occasional.write(logging.WARNING, f"producer {group}", text)
        return None
