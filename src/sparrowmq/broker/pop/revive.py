"""Messages that were not acknowledged in time become visible again, in a retry topic (broker:13.7).

RocketMQ waits two to five seconds longer, because its timer may be late. Here the timer's progress is known:
a check point is settled as soon as its time is over and every acknowledgement that was stored by then has
been read.

The copies of a check point's messages are stored together with an acknowledgement of the originals, which
names the copies (see `replacements`). So a check point that is read again after a crash, because the offset
of the revive queue is saved only periodically, delivers again only messages whose copy was lost.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from sparrowmq.broker.base.internal_store import LOST_ALONE, InnerMessage
from sparrowmq.broker.pop.check_points import CheckPoints
from sparrowmq.broker.pop.replacements import Replacements
from sparrowmq.core.errors import InvalidMessageError, SparrowError, StoreError
from sparrowmq.core.names import RETRY_PREFIX, TIMER_TOPIC
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.pop.receipts import FIRST_POP_TIME, REVIVE_GROUP, normal_topic, pop_retry_topic
from sparrowmq.protocol.pop.records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    Ack,
    read_ack,
    read_check_point,
)
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerStore, Placed
    from sparrowmq.broker.base.periodic import Background
    from sparrowmq.broker.delay.timer import TimerService
    from sparrowmq.broker.pop.revive_log import ReviveLog
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.protocol.pop.records import CheckPoint
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger("sparrowmq.broker")
POLL_SECONDS: Final = 0.2
BUSY_SECONDS: Final = 0.01
"""Pause while acknowledgements are still in the timer or not yet on disk."""
RETRY_SECONDS: Final = 1.0
"""Pause after an error before everything is retried, for as long as the error persists."""
AGAIN_MS: Final = 5000
"""After a start, the timer's deliveries of this time before its last checkpoint are read again."""
BATCH_MESSAGES: Final = 128
BATCH_BYTES: Final = 512 * 1024
PAIRS_MAX: Final = 10_000
"""Pairs of a topic and a group that are counted apart; further ones count together, with empty names."""
SETTLED_A_TURN: Final = 32
"""Check points that one turn settles, each with up to 32 messages."""
COPIED_BYTES: Final = 4 * 1024 * 1024
"""Maximum size of the copies of one turn; when it is exceeded, the turn settles no further check point."""


@dataclass(slots=True)
class ReviveQueue:
    """The state of one revive queue. `position` is the next offset to read."""

    queue_id: int
    position: int
    points: CheckPoints = field(default_factory=CheckPoints)


@dataclass(slots=True)
class Look:
    """One round for the check points that are due at `until`, epoch ms.

    They are settled when the timer has planned its topic up to `planned` and delivered what was due at
    `until`, and then each revive queue is read up to its `ends`.
    """

    until: int
    planned: int
    ends: list[int] | None = None


class Reviver:
    """Settles the check points of one broker. `run` is its task; `v2` selects the retry topic's name."""

    def __init__(
        self,
        store: MessageStore,
        inner: InnerStore,
        tables: SharedTables,
        revive_log: ReviveLog,
        timer: TimerService,
        background: Background,
        *,
        v2: bool,
    ) -> None:
        self._store = store
        self._inner = inner
        self._topics = tables.topics
        self._groups = tables.groups
        self._offsets = tables.offsets
        self._log = revive_log
        self._timer = timer
        self._clock = background.clock
        self._v2 = v2
        self._sleep = background.sleep
        self._replacements = Replacements(store)
        self._look: Look | None = None
        self.revived: Counter[tuple[str, str]] = Counter()
        """Messages that became visible again since the start, by topic and group."""
        self._occasional = OccasionalLog(log)
        self._queues = [
            ReviveQueue(queue_id, self._resumed(queue_id)) for queue_id in range(revive_log.queue_count)
        ]

    def _resumed(self, queue_id: int) -> int:
        """Where to continue: the stored offset is that of the last settled check point.

        After a crash the timer delivers again what it delivered last. So everything since then is read again;
        a check point that is read a second time is recognized, with its acknowledgements.
        """
        stored = self._offsets.query(self._log.topic, REVIVE_GROUP, queue_id)
        queue = self._store.find_queue(self._log.topic, queue_id)
        if stored is None or queue is None:
            return 0
        since = self._first_since(queue, self._timer.delivered_until - AGAIN_MS)
        return max(0, min(stored + 1, since, queue.max_offset))

    def _first_since(self, queue: ConsumeQueue, time_ms: int) -> int:
        """The first offset of a queue whose message was stored at `time_ms` or later."""
        low, high = queue.min_offset, queue.max_offset
        while low < high:
            middle = (low + high) // 2
            if (self._store.store_time(queue, middle) or 0) < time_ms:
                low = middle + 1
            else:
                high = middle
        return low

    @property
    def waiting(self) -> int:
        """Number of check points that are read and not settled."""
        return sum(len(one.points) for one in self._queues)

    def behind(self, now_ms: int) -> list[tuple[int, int, int]]:
        """By revive queue: its id, messages in it that are not read, and for how many ms the oldest check
        point is overdue."""
        found = []
        for one in self._queues:
            queue, due = self._store.find_queue(self._log.topic, one.queue_id), one.points.next_time
            unread = 0 if queue is None else max(0, queue.max_offset - one.position)
            found.append((one.queue_id, unread, 0 if due is None else max(0, now_ms - due)))
        return found

    async def run(self) -> None:
        """Read and settle until cancelled; an error is logged and retried."""
        while True:  # until cancelled by close
            seconds = RETRY_SECONDS
            try:
                seconds = self.turn()
            except Exception as error:
                trace = None if isinstance(error, SparrowError) else error
                text = f"messages of POP cannot be made visible again now: {error}"
                self._occasional.write(logging.ERROR, "revive", text, error=trace)
            await self._sleep(seconds)

    def turn(self) -> float:
        """One bounded step of all work; seconds until the next, 0 when there is more to do.

        Raises `StoreError`; check points that are not settled are retried.
        """
        read = [self._read(one) for one in self._queues]
        if any(read):
            return 0.0
        now = self._clock.now_ms()
        times = [time for one in self._queues if (time := one.points.next_time) is not None]
        first = min(times, default=None)
        if first is None or first > now:
            self._look = None
            self._commit_offsets()
            return POLL_SECONDS if first is None else min(POLL_SECONDS, (first - now) / 1000)
        if not self._has_seen_all(now):
            return BUSY_SECONDS
        assert self._look is not None
        settled = self._settle(self._look.until)
        if not settled:
            for one in self._queues:
                one.points.forget_early(self._look.until)
            self._look = None
        self._commit_offsets()
        return 0.0

    # Reading

    def _read(self, one: ReviveQueue) -> bool:
        """Read the next messages of a revive queue; whether there were any."""
        begun = one.position
        scan = self._inner.scan(self._log.topic, one.queue_id, begun, BATCH_MESSAGES, BATCH_BYTES)
        for record in scan.records:
            if record.queue_offset >= one.position:
                self._take(one, record)
                one.position = record.queue_offset + 1
        one.position = max(one.position, scan.next_offset)
        return one.position > begun

    def _take(self, one: ReviveQueue, record: StoredRecord) -> None:
        tag = (property_string.find(record.properties, b"TAGS") or b"").decode("utf-8", "replace")
        try:
            if tag == CHECK_POINT_TAG:
                one.points.add(read_check_point(record.body, record.queue_offset))
            elif tag in (ACK_TAG, BATCH_ACK_TAG):
                self._take_ack(one, record)
        except StoreError:
            raise  # it is read again
        except SparrowError as error:
            text = f"{record.topic}/{record.queue_id} offset {record.queue_offset} cannot be read: {error}"
            self._occasional.write(logging.ERROR, "body", text)

    def _take_ack(self, one: ReviveQueue, record: StoredRecord) -> None:
        ack = read_ack(record.body, self._log.broker_name)
        counted = self._replacements.counted(ack, record.properties)
        if len(counted) < len(ack.offsets):
            text = (
                f"{ack.topic}/{ack.queue_id}: {len(ack.offsets) - len(counted)} messages from offset "
                f"{ack.start_offset} on become visible again: a crash lost what had taken their places"
            )
            self._occasional.write(logging.WARNING, "replacement", text)
            ack = replace(ack, ack_offsets=counted)
        due = property_string.find(record.properties, b"TIMER_DELIVER_MS") or b""
        if counted:
            one.points.acknowledge(ack, record.queue_offset, int(due) if due.isdigit() else 0)

    def _has_seen_all(self, now: int) -> bool:
        """Whether every acknowledgement that was stored when the round began has been read."""
        if self._look is None:
            timed = self._store.find_queue(TIMER_TOPIC, 0)
            self._look = Look(now, 0 if timed is None else timed.next_offset)
        look, timer = self._look, self._timer
        if look.ends is None:
            if timer.planned_until < look.planned or timer.delivered_until < look.until:
                return False
            stored = [self._store.find_queue(self._log.topic, one.queue_id) for one in self._queues]
            look.ends = [0 if queue is None else queue.next_offset for queue in stored]
        return all(one.position >= end for one, end in zip(self._queues, look.ends, strict=True))

    # Settling

    def _settle(self, until: int) -> int:
        """Store copies of the messages that were not acknowledged; returns the number of settled check
        points.
        """
        size = count = 0
        for one in self._queues:
            while count < SETTLED_A_TURN and size < COPIED_BYTES:
                points = one.points.settled(until, 1)
                if not points:
                    break
                count += 1
                try:
                    size += self._bring_back(one, points[0])
                except Exception:
                    one.points.put_back(points)
                    raise
        return count

    def _bring_back(self, one: ReviveQueue, point: CheckPoint) -> int:
        """Store the copies of a check point's messages for the retry topic, and the acknowledgement of these;
        returns the size of the copies.
        """
        offsets = point.missing
        name = normal_topic(point.topic, point.group)
        if not offsets or self._topics.get(name) is None or self._groups.get(point.group) is None:
            return 0  # deleted; a group that a crash lost is created again, as by a POP
        topic = self._topics.get(point.topic)
        if topic is not None and topic.is_earlier(point.birth or None):
            return 0  # its messages were deleted; those at their offsets now are others
        copies = {offset: copy for offset in offsets if (copy := self._copy(point, offset)) is not None}
        if not copies:
            return 0
        ack = Ack(
            ack_offsets=offsets,
            broker_name=point.broker_name,
            group=point.group,
            pop_time=point.pop_time,
            queue_id=point.queue_id,
            start_offset=point.start_offset,
            topic=point.topic,
        )

        def named(placed: Mapping[int, Placed]) -> InnerMessage:
            """The acknowledgement, with the places of copies by the offset of the original."""
            found = [placed.get(offset) for offset in offsets]
            instead = [None if place is None else place.physical_offset for place in found]
            return self._log.ack(ack, one.queue_id, point.revive_time, instead)

        try:
            self._inner.put(
                list(copies.values()), last=lambda placed: named(dict(zip(copies, placed, strict=True)))
            )
        except LOST_ALONE:
            self._inner.put([named(self._put_singly(copies))])
        pair = point.topic, point.group
        is_counted = pair in self.revived or len(self.revived) < PAIRS_MAX
        self.revived[pair if is_counted else ("", "")] += len(copies)
        return sum(len(copy.body) for copy in copies.values())

    def _copy(self, point: CheckPoint, offset: int) -> InnerMessage | None:
        """A message for its next delivery; None if it is deleted or damaged."""
        scan = self._inner.scan(point.topic, point.queue_id, offset, 1, 1)
        if not scan.records or scan.records[0].queue_offset != offset:
            return None
        record = scan.records[0]
        topic = point.topic
        if not topic.startswith(RETRY_PREFIX):
            topic = pop_retry_topic(point.group, topic, v2=self._v2)
        if self._offsets.query(topic, point.group, 0) is None:
            self._offsets.commit(topic, point.group, 0, 0, always=True)
        message = InnerMessage.copy_of(record, topic, 0)
        message.reconsume_times = record.reconsume_times + 1
        message.prepared_offset = 0
        message.born_host = self._store.store_host
        own = property_string.decode(record.properties)
        if record.reconsume_times == 0 or FIRST_POP_TIME not in own:
            own[FIRST_POP_TIME] = str(point.pop_time)
            try:
                message.properties = property_string.encode(own)
            except InvalidMessageError:  # no room for it
                message.properties = record.properties
        return message

    def _put_singly(self, copies: Mapping[int, InnerMessage]) -> dict[int, Placed]:
        """One of these copies does not fit a record, perhaps because of lowered limits, or its topic is being
        deleted: only it is lost."""
        placed: dict[int, Placed] = {}
        for offset, message in copies.items():
            try:
                (placed[offset],) = self._inner.put([message])
            except LOST_ALONE as error:
                self._inner.note_lost("a message that was not acknowledged", message, error)
        return placed

    def _commit_offsets(self) -> None:
        """Raise the offsets of the revive queues to the last settled check point."""
        for one in self._queues:
            first = one.points.first_place
            last = (one.position if first is None else first) - 1
            stored = self._offsets.query(self._log.topic, REVIVE_GROUP, one.queue_id)
            if last > (-1 if stored is None else stored):
                self._offsets.commit(self._log.topic, REVIVE_GROUP, one.queue_id, last, always=True)
