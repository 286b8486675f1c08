"""After a crash, reads from the log what POP did since the offset table was saved.

The table is saved every few seconds. Check points and acknowledgements are in the log immediately and show
which messages were handed out. Otherwise acknowledged messages would be delivered again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from sparrowmq.broker.pop.order import OrderInfo
from sparrowmq.broker.pop.replacements import Replacements
from sparrowmq.broker.pop.revive_log import ORDER_INFO
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.protocol.pop.records import (
    ACK_TAG,
    BATCH_ACK_TAG,
    CHECK_POINT_TAG,
    read_ack,
    read_check_point,
)
from sparrowmq.protocol.properties import find

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.pop.order import OrderTable
    from sparrowmq.broker.pop.revive_log import ReviveLog
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger("sparrowmq.broker")
BATCH_MESSAGES: Final = 512
BATCH_BYTES: Final = 1024 * 1024
Place = tuple[str, str, int]
"""Topic, group and queue id."""


def replay(
    store: MessageStore,
    inner: InnerStore,
    tables: SharedTables,
    order: OrderTable,
    revive_log: ReviveLog,
) -> int:
    """Raise the offsets of groups to the end of their hand-outs; returns how many were raised.

    Does nothing for a table that another broker saved last. Raises `StoreError`.
    """
    saved_at = tables.offsets.saved_at
    if saved_at is None:
        return 0
    found = _HandOuts(store, tables, order, revive_log)
    queues = [(revive_log.topic, queue_id) for queue_id in range(revive_log.queue_count)]
    for topic, queue_id in [(TIMER_TOPIC, 0), *queues]:
        queue = store.find_queue(topic, queue_id)
        if queue is None:
            continue
        for record in _since(inner, queue, saved_at, found.doubt_after):
            try:
                found.take(record)
            except (SparrowError, msgspec.MsgspecError) as error:
                log.error("the message at %d is no record of POP: %s", record.physical_offset, error)
    found.raise_to_doubtful()
    if found.raised:
        log.warning(
            "offsets of %d queues were raised to what POP had handed out before the crash", len(found.raised)
        )
    return len(found.raised)


def _first_at(queue: ConsumeQueue, position: int) -> int:
    """The first offset of a queue whose record is at or after a physical offset. Damaged entries count as
    being there.
    """
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = known = (low + high) // 2
        while (found := queue.physical_offset(known)) is None and known > low:
            known -= 1
        if found is not None and found < position:
            low = known + 1
            if known < middle:
                high = low
        else:
            high = known
    return low


def _since(
    inner: InnerStore, queue: ConsumeQueue, position: int, lost: Callable[[int], None]
) -> Iterator[StoredRecord]:
    """The records of a queue at or after a physical offset.

    Calls `lost` with the physical offset of the last record before one that the queue has lost.
    """
    low = _first_at(queue, position)
    following, before = low, position
    while True:  # ends with the queue
        scan = inner.scan(queue.topic, queue.queue_id, low, BATCH_MESSAGES, BATCH_BYTES)
        for record in scan.records:
            if record.queue_offset > following:
                lost(before)
            following, before = record.queue_offset + 1, record.physical_offset
            if before >= position:
                yield record
        if scan.next_offset <= low:
            break
        low = scan.next_offset
    if low > following:
        lost(before)


class _HandOuts:
    """What check points and acknowledgements say about the hand-outs of each queue to each group.

    A check point raises the offset behind its messages, because those before it have check points as well,
    were skipped by a filter, or were handed out before the table was saved. After a record that a power
    failure lost this is not certain: it may have been a check point, whose messages nothing else brings back.
    From there on an offset is raised only over messages that are known to be handed out.
    """

    def __init__(
        self, store: MessageStore, tables: SharedTables, order: OrderTable, revive_log: ReviveLog
    ) -> None:
        self._store = store
        self._topics = tables.topics
        self._offsets = offsets = tables.offsets
        self._order = order
        self._log = revive_log
        self._replacements = Replacements(store)
        saved_at, damaged = offsets.saved_at or 0, store.recovery.damaged
        self._certain_until = next((low for low, high in damaged if high > saved_at), store.position)
        self._has_gap = False
        self._doubtful: dict[Place, list[tuple[int, int]]] = {}
        self.raised: set[Place] = set()
        """The queues of groups whose offsets were raised."""

    def doubt_after(self, position: int) -> None:
        """A queue lost a record after this physical offset."""
        self._has_gap = True
        self._certain_until = min(self._certain_until, position + 1)

    def take(self, record: StoredRecord) -> None:
        """The next record. Raises `SparrowError` or `MsgspecError` for one that cannot be read."""
        own = record.properties
        tag = (find(own, b"TAGS") or b"").decode("utf-8", "replace")
        real = (find(own, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
        if record.topic == TIMER_TOPIC and real != self._log.topic:
            return
        is_certain = record.physical_offset < self._certain_until
        if tag == CHECK_POINT_TAG:
            point = read_check_point(record.body, 0)
            topic = self._topics.get(point.topic)
            if topic is not None and topic.is_earlier(point.birth or None):
                return
            place, following = (point.topic, point.group, point.queue_id), max(point.offsets, default=-1) + 1
            self._handed_out(record, place, [(point.start_offset, following)], is_certain=is_certain)
        elif tag == ACK_TAG and (info := find(own, ORDER_INFO.encode())) is not None:
            ack, state = read_ack(record.body, self._log.broker_name), OrderInfo.decode(info)
            self._acknowledged_in_order(record, (ack.topic, ack.group, ack.queue_id), state)
        elif tag in (ACK_TAG, BATCH_ACK_TAG) and not is_certain:
            ack = read_ack(record.body, self._log.broker_name)
            ranges = [(offset, offset + 1) for offset in self._replacements.counted(ack, own)]
            self._handed_out(record, (ack.topic, ack.group, ack.queue_id), ranges, is_certain=False)

    def _exists(self, record: StoredRecord, place: Place) -> bool:
        """Whether the queue is still the one that the record is about; otherwise its topic was deleted."""
        queue = self._store.find_queue(place[0], place[2])
        return queue is not None and record.physical_offset >= queue.born

    def _handed_out(
        self, record: StoredRecord, place: Place, ranges: list[tuple[int, int]], *, is_certain: bool
    ) -> None:
        if not ranges or not self._exists(record, place):
            return
        if is_certain:
            self._raise(place, max(following for _, following in ranges))
        else:
            self._doubtful.setdefault(place, []).extend(ranges)

    def _acknowledged_in_order(self, record: StoredRecord, place: Place, state: OrderInfo) -> None:
        """All messages before the next one were acknowledged: this is certain."""
        if not self._exists(record, place):
            return
        known = self._order.get(*place)
        is_new = known is None and not self._order.is_full
        if is_new or (known is not None and state.pop_time >= known.pop_time):
            self._order.put(*place, state)
        self._raise(place, state.next_offset)

    def raise_to_doubtful(self) -> None:
        """Raise offsets over the messages that follow each other without a gap; call it at the end."""
        repeated = 0
        for place, ranges in self._doubtful.items():
            ranges.sort()
            reached = self._begin(place, ranges[0][0])
            for start, following in ranges:
                if start > reached:
                    repeated += 1
                    break
                reached = max(reached, following)
            self._raise(place, reached)
        if repeated:
            text = "a crash lost POP's records of messages of %d queues: these are handed out again"
            log.warning(text, repeated)

    def _begin(self, place: Place, first: int) -> int:
        """Where the doubtful part begins: at the group's offset. A group without one is so young that its
        first check point is here, unless that was lost.
        """
        known = self._offsets.query(*place)
        if known is not None:
            return known
        queue = self._store.find_queue(place[0], place[2])
        return queue.min_offset if self._has_gap and queue is not None else first

    def _raise(self, place: Place, following: int) -> None:
        queue = self._store.find_queue(place[0], place[2])
        if queue is not None and following > (self._offsets.query(*place) or 0):
            self._offsets.commit(*place, min(following, queue.max_offset), always=True)
            self.raised.add(place)
