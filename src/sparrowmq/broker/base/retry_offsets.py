"""Offsets of retry topics that were not saved before a crash, or not copied before a change of the master.

They are set with a group's first retry, so that retries count as lag before a member has asked for them. The
offset table is saved every few seconds, and the log has the retries at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrowmq.core.names import RETRY_PREFIX, retry_topic
from sparrowmq.protocol.pop.receipts import pop_retry_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.store.message_store import MessageStore


def restore_retry_offsets(store: MessageStore, tables: SharedTables) -> None:
    """Set such offsets to the first message of the queue, where their group begins."""
    for topic, group in _retries(tables):
        for queue in store.queues(topic):
            place = topic, group, queue.queue_id
            if queue.max_offset and tables.offsets.query(*place) is None:
                tables.offsets.commit(*place, queue.min_offset, always=True)


def _retries(tables: SharedTables) -> Iterator[tuple[str, str]]:
    """The names that retry topics of groups have, with the group. POP has one for each topic of a group; its
    name may be that of another group's."""
    groups = tables.groups.configs
    for group in groups:
        yield retry_topic(group), group
    for topic, group in tables.offsets.pairs():
        for name in (pop_retry_topic(group, topic), pop_retry_topic(group, topic, v2=True)):
            if name.removeprefix(RETRY_PREFIX) not in groups:
                yield name, group
