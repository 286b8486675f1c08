"""Groups of which a new master has POP's check points but no settings, because they were created just before
the old master was lost.

A slave copies the log immediately and the table of groups a moment later. Where groups are not created on
demand, the messages that such a group had in hand would not become visible again: its check points would be
taken for those of a deleted group.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.core.outside import one_line
from sparrowmq.protocol.pop.receipts import revive_topic
from sparrowmq.protocol.pop.records import CHECK_POINT_TAG, read_check_point
from sparrowmq.protocol.properties import find

if TYPE_CHECKING:
    from sparrowmq.broker.base.internal_store import InnerStore
    from sparrowmq.broker.tables.groups import GroupTable
    from sparrowmq.core.settings.servers import BrokerSettings
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue

log = logging.getLogger("sparrowmq.broker")
RECENT_MS: Final = 30_000
"""How long before the end of the last reign check points are looked at; a table is copied every 10 s."""
BATCH_MESSAGES: Final = 512
BATCH_BYTES: Final = 1024 * 1024


def restore_recent_groups(
    store: MessageStore, inner: InnerStore, groups: GroupTable, settings: BrokerSettings, reign_start: int
) -> list[str]:
    """Give such groups the default settings; returns their names. `reign_start` is the position of the log
    where this master's reign began: what follows is its own, whose groups it knows."""
    made = []
    since = store.timestamp - RECENT_MS
    revive = revive_topic(settings.broker_cluster_name)
    places = [(TIMER_TOPIC, 0), *((revive, number) for number in range(settings.revive_queue_num))]
    for topic, queue_id in places:
        queue = store.find_queue(topic, queue_id)
        if queue is None:
            continue
        for record in _records(store, inner, queue, since):
            if record.physical_offset >= reign_start:
                break
            group = _group_of(record)
            if group is not None and group not in groups.configs and groups.restore(group):
                log.warning(
                    "group %s is new here: its settings were not copied from the last master in time; it now "
                    "has the default settings",
                    one_line(group),
                )
                made.append(group)
    return made


def _records(
    store: MessageStore, inner: InnerStore, queue: ConsumeQueue, since: int
) -> Iterator[StoredRecord]:
    """The records of a queue that were stored at `since` (epoch ms) or later."""
    low, high = queue.min_offset, queue.max_offset
    while low < high:
        middle = (low + high) // 2
        if (store.store_time(queue, middle) or 0) < since:
            low = middle + 1
        else:
            high = middle
    while True:  # ends with the queue
        found = inner.scan(queue.topic, queue.queue_id, low, BATCH_MESSAGES, BATCH_BYTES)
        yield from found.records
        if found.next_offset <= low:
            return
        low = found.next_offset


def _group_of(record: StoredRecord) -> str | None:
    """The group of a check point; None for anything else."""
    if find(record.properties, b"TAGS") != CHECK_POINT_TAG.encode():
        return None
    try:
        return read_check_point(record.body, 0).group
    except SparrowError:
        return None
