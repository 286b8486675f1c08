"""Topics of which a new master has messages but no settings, because they were created just before the old
master was lost.

A slave copies the log immediately and the table of topics some seconds later. Without this module, clients
would find no route to acknowledged messages of such topics.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.names import is_system_topic
from sparrowmq.core.outside import one_line
from sparrowmq.protocol.bodies import TopicConfig

if TYPE_CHECKING:
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.store.message_store import MessageStore

log = logging.getLogger("sparrowmq.broker")
RECENT_MS: Final = 60_000
"""A topic without settings whose last message is older than this, before the log's last one, was deleted."""


def restore_recent_topics(store: MessageStore, topics: TopicTable) -> list[str]:
    """Give such topics the default settings, with as many queues as have messages; returns their names."""
    made = []
    for topic in store.topics():
        if topic in topics.configs or topic in topics.deleting or is_system_topic(topic):
            continue
        queues = store.queues(topic)
        times = [
            time
            for queue in queues
            if queue.max_offset and (time := store.store_time(queue, queue.max_offset - 1)) is not None
        ]
        if not times or max(times) < store.timestamp - RECENT_MS:
            continue
        count = max(queue.queue_id for queue in queues) + 1
        try:
            config = TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count)
            topics.put_soon(config)
        except SparrowError as error:
            log.error("topic %s has messages, but cannot be created: %s", one_line(topic), error)
            continue
        log.warning(
            "topic %s is new here: its settings were not copied from the last master in time; it now has "
            "%d queues and the default settings",
            one_line(topic),
            count,
        )
        made.append(topic)
    return made
