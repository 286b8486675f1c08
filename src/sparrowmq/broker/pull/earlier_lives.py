"""Offsets of an earlier life of a queue: its topic was made again, or the broker lost messages.

Clients that send `birth` say to which topic of a name their offsets belong. Of others, only offsets beyond
the end are known to be of an earlier life.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from sparrowmq.broker.tables.topics import UNKNOWN_BIRTH
from sparrowmq.core.outside import one_line
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.hot import pull_answer
from sparrowmq.store.queues.reads import GetStatus
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.protocol.hot import PullFields, PullFrame
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.queues.reads import GetResult
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets
    from sparrowmq.transport.connection import Connection


class EarlierLives:
    """Finds such offsets in pulls, and warns. `master_from` is the position of the log where this master
    replaced another one; 0 if it never did. Its later reigns do not count: a reader may have missed them all.
    """

    def __init__(
        self, topics: TopicTable, offsets: ConsumerOffsets, log: logging.Logger, *, master_from: int = 0
    ) -> None:
        self._master_from = master_from
        self._topics = topics
        self._offsets = offsets
        self._occasional = OccasionalLog(log)

    def birth(self, fields: PullFields) -> int:
        """The birth of a pull's topic for the answer; 0 if the client did not ask or it is unknown here."""
        return self._topics.birth(fields.topic) if fields.birth == 0 else 0

    def answer(self, connection: Connection, frame: PullFrame, queue: ConsumeQueue) -> bool:
        """Send a reader with an offset of an earlier topic to the beginning; False for other offsets."""
        fields = frame.fields
        topic = self._topics.get(fields.topic)
        if topic is None or not topic.is_earlier(fields.birth):
            return False
        text = (
            f"group {one_line(fields.consumer_group)} asked for offset {fields.queue_offset} of an earlier "
            f"topic {fields.topic}, queue {fields.queue_id}: it continues at {queue.min_offset} of the topic "
            "that was created since"
        )
        self._occasional.write(logging.WARNING, "earlier topic", text)
        low, high, code = queue.min_offset, queue.confirmed_offset, ResponseCode.PULL_OFFSET_MOVED
        connection.write(
            pull_answer(code, frame.opaque, low, low, high, b"EARLIER_TOPIC", 0, birth=topic.birth)
        )
        return True

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

    def continued(self, fields: PullFields, queue: ConsumeQueue, result: GetResult) -> int:
        """Where a reader continues; an offset beyond the end is warned about.

        The store decides, except for such an offset of this topic at a master that replaced another one: it
        lacks the last messages that the reader had, and those since then are new.
        """
        if result.status is not GetStatus.OFFSET_OVERFLOW_BADLY:
            return result.next_offset
        following, why = result.next_offset, "the topic was made again, or the broker lost messages"
        topic, since = self._topics.get(fields.topic), self._master_from
        is_same = topic is not None and UNKNOWN_BIRTH < topic.birth == fields.birth
        if is_same and not queue.recovered and since:
            first = queue.first_from(since)
            following = max(result.min_offset, min(first, result.max_offset))
            why = f"this master's log lacks {fields.queue_offset - first} messages of the last master"
        text = (
            f"group {one_line(fields.consumer_group)} asked for offset {fields.queue_offset} of "
            f"{fields.topic}/{fields.queue_id}, which ends at {result.max_offset}: it continues at "
            f"{following}; {why}"
        )
        self._occasional.write(logging.WARNING, "past end", text)
        return following
