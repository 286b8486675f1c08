"""Where check points and acknowledgements are stored: in timed messages of the revive topic (broker:13.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.base.internal_store import InnerMessage, code_of_tags
from sparrowmq.broker.delay.rerouting import Rerouting
from sparrowmq.broker.pop.replacements import INSTEAD, instead_text
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.pop.receipts import revive_topic
from sparrowmq.protocol.pop.records import CHECK_POINT_TAG, Ack, CheckPoint

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock
    from sparrowmq.core.settings.servers import BrokerSettings

ORDER_INFO: Final = "POP_ORDER_INFO"
"""SparrowMQ's property of an acknowledgement in the revive topic: the open messages of an ordered
hand-out.
"""
AHEAD_MS: Final = 1000
"""The timer delivers a check point this long before its messages are due, and so before its
acknowledgements.
"""


class ReviveLog:
    """Makes the messages that store check points and acknowledgements; the caller stores them.

    `topic` is their topic, `queue_count` its number of queues.
    """

    def __init__(self, settings: BrokerSettings, clock: Clock, *, store_host: bytes) -> None:
        self.topic = revive_topic(settings.broker_cluster_name)
        self.queue_count = settings.revive_queue_num
        self.invisible_max = settings.timer_max_delay_sec * 1000
        self.broker_name = settings.broker_name
        self._rerouting = Rerouting.of(settings)
        self._clock = clock
        self._store_host = store_host
        self._next = 0

    def next_queue(self) -> int:
        """The revive queue of the next hand-out, in turn."""
        self._next = (self._next + 1) % self.queue_count
        return self._next

    def check_point(self, point: CheckPoint, queue_id: int) -> InnerMessage:
        """The message with a check point, in its revive queue a second before its messages are due."""
        due = point.revive_time - AHEAD_MS
        return self._message(point.encode(), queue_id, CHECK_POINT_TAG, point.unique_key, due, {})

    def ack(
        self, ack: Ack, queue_id: int, revive_time: int, instead: Sequence[int | None] | None = None
    ) -> InnerMessage:
        """The message with an acknowledgement, in its revive queue when the messages are due.

        `instead` is for the broker's own: the physical offsets of the records that take the messages' places.
        """
        more = {} if instead is None else {INSTEAD: instead_text(instead)}
        return self._message(ack.encode(), queue_id, ack.tag, ack.unique_key, revive_time, more)

    def ordered_ack(self, ack: Ack, info: str) -> InnerMessage:
        """The message with an acknowledgement of an ordered hand-out, for `replay` only.

        It has no check point, so readers of its revive queue ignore it. `info` is the state of the queue
        after it.
        """
        own = {"TAGS": ack.tag, "UNIQ_KEY": ack.unique_key, ORDER_INFO: info}
        return InnerMessage(
            self.topic,
            ack.queue_id % self.queue_count,
            ack.encode(),
            property_string.encode(own),
            0,
            0,
            self._clock.now_ms(),
            self._store_host,
        )

    def _message(
        self, body: bytes, queue_id: int, tag: str, key: str, due: int, more: Mapping[str, str]
    ) -> InnerMessage:
        now = self._clock.now_ms()
        own = {"TAGS": tag, "UNIQ_KEY": key, "TIMER_DELIVER_MS": str(due), **more}
        text = property_string.encode(own)
        place = self._rerouting.place(self.topic, queue_id, text, 0, now)
        return InnerMessage(
            place.topic,
            place.queue_id,
            body,
            place.properties,
            0,
            0,
            now,
            self._store_host,
            tags_code=code_of_tags(place.properties),
        )
