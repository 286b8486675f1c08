"""Delay levels: messages wait in a queue per level and are delivered when they are due (broker:8.1).

Every level has one delay, so its queue is ordered by due time and delivery only checks its head. The tag code
of a queue entry is the time its message is due. The delivered message is a copy in the real topic; the
progress of each level is saved in `delayOffset.json`. After a crash, messages since the last save are
delivered again, and none is lost.

A message never comes before its delay has passed, whatever happens to the clock or the table of levels: the
delay is the one it was stored with, the due time less the store time.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.broker.base.internal_store import InnerMessage, InnerStore
from sparrowmq.core.clock import Sleep
from sparrowmq.core.delay import DELAY_MS_MAX
from sparrowmq.core.errors import InvalidNameError, SparrowError
from sparrowmq.core.names import HALF_TOPIC, SCHEDULE_TOPIC, check_topic
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import StoredRecord
from sparrowmq.store.queues.consume_queue import ENTRY
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.tables.delay_offsets import DelayOffsets

log = logging.getLogger("sparrowmq.broker")
POLL_SECONDS: Final = 0.1
"""How often a level is checked when no message is known to be due earlier."""

BATCH_MESSAGES: Final = 128
BATCH_BYTES: Final = 512 * 1024
"""Maximum number of messages that one level delivers per turn of the loop."""

_ADDRESS_DIGITS: Final = 9


class Turn(NamedTuple):
    """Result of a level's turn: messages delivered, whether more are due, and the next due time (epoch
    ms)."""

    delivered: int
    more: bool
    next_due: int | None


class SetBack(NamedTuple):
    """The clock was found to be set back at `seen` (monotonic seconds); entries before offset `end` were
    waiting then."""

    end: int
    seen: float


def due_at(code: int, stored_ms: int, now_ms: int, waited_ms: int | None) -> int:
    """When a message with tag code `code` is due, by a clock that shows `now_ms`.

    `waited_ms` is how long it has waited since the clock was found to be set back; None if it was not. The
    message then waits for its delay once more, because how long it had waited before is not known. A delay
    that no level can have comes from a damaged entry: it does not stop the messages behind it.
    """
    delay = code - stored_ms
    if delay > DELAY_MS_MAX:
        return now_ms
    return code if waited_ms is None else min(code, now_ms + max(0, delay - waited_ms))


def real_address(record: StoredRecord) -> tuple[str, int] | None:
    """The original topic and queue of a waiting message; None when its properties name no valid one."""
    topic, queue_id = find(record.properties, b"REAL_TOPIC"), find(record.properties, b"REAL_QID")
    if topic is None or queue_id is None or len(queue_id) > _ADDRESS_DIGITS or not queue_id.isdigit():
        return None
    try:
        name = topic.decode()
        check_topic(name)
    except (InvalidNameError, UnicodeDecodeError):
        return None
    return name, int(queue_id)


class Schedule:
    """Delivers the delayed messages of one broker. `run` is its task."""

    def __init__(
        self,
        store: MessageStore,
        inner: InnerStore,
        offsets: DelayOffsets,
        clock: Clock,
        *,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._sleep = sleep
        self._store = store
        self._inner = inner
        self._offsets = offsets
        self._clock = clock
        self._set_back: dict[int, SetBack] = {}
        self._heads: dict[int, tuple[int, int | None]] = {}
        """By level: the offset and the store time of the entry looked at last."""
        self._occasional = OccasionalLog(log)
        self._lower()

    def _lower(self) -> None:
        """After a power failure a queue may be shorter than its progress: new messages reuse the offsets."""
        for queue in self._store.queues(SCHEDULE_TOPIC):
            level, end = queue.queue_id + 1, queue.max_offset
            if self._offsets.get(level) > end:
                log.warning(
                    "the progress of delay level %d was beyond the queue's end and is now %d", level, end
                )
                self._offsets.set(level, end)

    async def run(self) -> None:
        """Deliver until cancelled; an error is logged and retried."""
        while True:  # until cancelled by close
            seconds = POLL_SECONDS
            try:
                seconds = await self._round()
            except Exception as error:
                trace = None if isinstance(error, SparrowError) else error
                text = f"delayed messages cannot be delivered now: {error}"
                self._occasional.write(logging.ERROR, "delay", text, error=trace)
            await self._sleep(seconds)

    async def _round(self) -> float:
        """One turn for each level; seconds until the next round."""
        more, next_due = False, None
        for queue in self._store.queues(SCHEDULE_TOPIC):
            turn = self.deliver(queue.queue_id + 1)
            more = more or turn.more
            if turn.next_due is not None:
                next_due = turn.next_due if next_due is None else min(next_due, turn.next_due)
            if turn.delivered:
                await asyncio.sleep(0)
        if more:
            return 0.0
        if next_due is None:
            return POLL_SECONDS
        return min(POLL_SECONDS, max(0.0, (next_due - self._clock.now_ms()) / 1000))

    def progress(self) -> dict[int, tuple[int, int]]:
        """By level: the next offset to deliver, and the offset after the last message."""
        queues = self._store.queues(SCHEDULE_TOPIC)
        return {q.queue_id + 1: (self._offsets.get(q.queue_id + 1), q.max_offset) for q in queues}

    def deliver(self, level: int) -> Turn:
        """Deliver due messages of one level, up to a batch. Raises `StoreError`; then they are retried."""
        queue = self._store.find_queue(SCHEDULE_TOPIC, level - 1)
        if queue is None or not queue.max_offset:
            return Turn(0, False, None)
        start = min(max(self._offsets.get(level), queue.min_offset), queue.max_offset)
        due, next_due = self._due(queue, level, start)
        if not due:
            self._offsets.set(level, start)
            return Turn(0, False, next_due)
        result = self._store.get_messages(queue, start, max_count=due, max_bytes=BATCH_BYTES)
        end = min(max(result.next_offset, start + 1), start + due)
        records = [r for r in self._inner.intact(result.buffers) if r.queue_offset < end]
        messages = [message for record in records if (message := self._real(record)) is not None]
        self._inner.put_those_that_fit(messages, "a delayed message")
        self._offsets.set(level, end)
        return Turn(len(messages), end < queue.max_offset and next_due is None, next_due)

    def _due(self, queue: ConsumeQueue, level: int, start: int) -> tuple[int, int | None]:
        """How many messages from `start` on are due, up to a batch, and when the next one is due."""
        end = min(queue.max_offset, start + BATCH_MESSAGES)
        entries = queue.entries(start, end) if start < end else None
        if entries is None:
            return end - start, None
        now = self._clock.now_ms()
        for count, (position, _, code) in enumerate(ENTRY.iter_unpack(entries)):
            if code > now and (due := self._later(queue, level, start + count, position, code, now)) > now:
                return count, due
        return end - start, None

    def _later(
        self, queue: ConsumeQueue, level: int, offset: int, position: int, code: int, now_ms: int
    ) -> int:
        """When an entry is due that is not due yet by its tag code; now if its message cannot be read."""
        stored = self._stored(level, offset, position)
        if stored is None:
            return now_ms
        seconds, known = self._clock.monotonic(), self._set_back.get(level)
        if (known is None or offset >= known.end) and now_ms < stored:
            known = self._set_back[level] = SetBack(queue.max_offset, seconds)
            self._occasional.write(
                logging.WARNING,
                "set back",
                f"the clock was set back: messages of delay level {level} wait for their delay from now on",
            )
        if known is None or offset >= known.end:
            return due_at(code, stored, now_ms, None)
        return due_at(code, stored, now_ms, int((seconds - known.seen) * 1000))

    def _stored(self, level: int, offset: int, position: int) -> int | None:
        """The store time of a waiting message; None when it cannot be read."""
        head = self._heads.get(level)
        if head is None or head[0] != offset:
            record = self._inner.read(position)
            head = self._heads[level] = (offset, None if record is None else record.store_timestamp)
        return head[1]

    def _real(self, record: StoredRecord) -> InnerMessage | None:
        address = real_address(record)
        if address is None:
            where = f"the delayed message at {record.physical_offset}"
            self._occasional.write(
                logging.ERROR, "address", f"{where} does not name its target topic and queue"
            )
            return None
        if address[0] == HALF_TOPIC:
            return None
        return InnerMessage.copy_of(record, *address)
