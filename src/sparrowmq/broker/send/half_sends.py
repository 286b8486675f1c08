"""Plain half messages: where they are stored, and with which properties (broker:9.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrowmq.broker.transactions.half_messages import plain_half
from sparrowmq.core.names import HALF_TOPIC

if TYPE_CHECKING:
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.protocol.hot import SendFields
    from sparrowmq.store.queues.consume_queue import ConsumeQueue


class HalfSends:
    """The half messages of one broker. `added` is appended to the properties of each.

    `is_full` returns, for the end of the half queue, whether too many transactions are open; with
    `are_refused` the broker accepts no half messages.
    """

    def __init__(
        self, topics: TopicTable, added: bytes, *, is_full: Callable[[int], bool], are_refused: bool
    ) -> None:
        self._topics = topics
        self._added = added
        self._is_full = is_full
        self._are_refused = are_refused

    def place(self, fields: SendFields, text: bytes, unique_key: bytes) -> tuple[ConsumeQueue, bytes] | None:
        """Queue and properties of a half message with the properties `text`; None when the hot path cannot
        take it: the general path then gives the reason.
        """
        if self._are_refused:
            return None
        half = plain_half(text, unique_key, fields.topic, fields.e, self._added)
        if half is None:
            return None
        queue = self._topics.own_queue(HALF_TOPIC, 0)
        return None if self._is_full(queue.next_offset) else (queue, half)
