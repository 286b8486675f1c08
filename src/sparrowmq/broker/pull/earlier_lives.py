"""Offsets of an earlier life of a queue: its topic was made again, or the broker lost messages."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparrowmq.core.outside import one_line
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.protocol.hot import PullFields
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.queues.reads import GetResult
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets


class EarlierLives:
    """Finds such offsets in pulls, and warns."""

    def __init__(self, offsets: ConsumerOffsets, log: logging.Logger) -> None:
        self._offsets = offsets
        self._occasional = OccasionalLog(log)

    def commit(self, fields: PullFields, queue: ConsumeQueue) -> None:
        """Store the offset that came with a pull, unless it is beyond the end of the queue."""
        offset = fields.commit_offset
        if offset <= queue.max_offset:
            self._offsets.commit(fields.topic, fields.consumer_group, fields.queue_id, offset)
            return
        text = (
            f"group {one_line(fields.consumer_group)} committed offset {offset} of {queue.topic}/"
            f"{queue.queue_id}, which ends at {queue.max_offset}: it is ignored"
        )
        self._occasional.write(logging.WARNING, "commit", text)

    def warn(self, fields: PullFields, result: GetResult) -> None:
        """A reader asked for an offset beyond the end."""
        text = (
            f"group {one_line(fields.consumer_group)} asked for offset {fields.queue_offset} of "
            f"{fields.topic}/{fields.queue_id}, which ends at {result.max_offset}: it continues at "
            f"{result.next_offset}; the topic was made again, or the broker lost messages"
        )
        self._occasional.write(logging.WARNING, "past end", text)
