"""Half messages on the hot path: stored with the plain sends of their chunk (broker:9.1).

What is not plain (a delay, a time, a property of the broker's own) is left to the general path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrowmq.broker.transaction import plain_half
from sparrowmq.core.errors import RecordError
from sparrowmq.core.names import HALF_TOPIC
from sparrowmq.protocol.frame import FLAG_ONEWAY
from sparrowmq.protocol.sysflag import TRANSACTION_MASK

if TYPE_CHECKING:
    from sparrowmq.broker.sending import Stored
    from sparrowmq.broker.topics import Topic
    from sparrowmq.core.settings import BrokerSettings
    from sparrowmq.protocol.hot import SendFrame
    from sparrowmq.store.consume_queue import ConsumeQueue
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.transport.connection import Connection


class HalfSends:
    """Adds half messages to the chunk under way. `added` is put behind each one's properties."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        added: bytes,
        id_prefix: bytes,
        tags_code: Callable[[bytes], int],
    ) -> None:
        self._refused = settings.reject_transaction_message
        self._body_max = settings.max_message_size
        self._store = store
        self._added = added
        self._id_prefix = id_prefix
        self._tags_code = tags_code

    def append(
        self,
        connection: Connection,
        frame: SendFrame,
        topic: Topic,
        body: bytes,
        now_ms: int,
        stored: list[Stored],
        touched: set[ConsumeQueue],
    ) -> bool:
        """Store a plain half message for `topic`; False for any other send, and nothing is done then."""
        fields = frame.fields
        if "TRAN_MSG" not in fields.i or fields.m or fields.idempotent or topic.special or self._refused:
            return False
        if not (0 <= fields.e < len(topic.queues) and 0 < len(body) <= self._body_max):
            return False
        plain = plain_half(fields.i.encode(), fields.topic, fields.e, len(self._added))
        if plain is None:
            return False
        text, unique_key = plain
        queue = self._store.queue(HALF_TOPIC, 0)
        queue_offset = queue.next_offset
        try:
            physical = self._store.append(
                queue,
                body,
                text + self._added,
                flag=fields.h,
                sys_flag=fields.f & ~TRANSACTION_MASK | topic.sys_flag,
                born_timestamp=fields.g,
                born_host=connection.born_host,
                reconsume_times=fields.j,
                prepared_offset=0,
                tags_code=self._tags_code(text),
                now_ms=now_ms,
            )
        except RecordError:
            return False
        touched.add(queue)
        if not frame.flag & FLAG_ONEWAY:
            message_id = b"%b%016X" % (self._id_prefix, physical)
            stored.append((frame.opaque, fields.e, queue_offset, message_id, unique_key))
        return True
