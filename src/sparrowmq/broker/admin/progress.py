"""How far groups are in queues, as tools see it (208, 317).

POP raises a group's offset when it hands messages out. A message that is neither acknowledged nor visible
again is not consumed, so the offset that tools see is lower by the number of these messages, and they count
as in flight. An ordered POP raises the offset when messages are acknowledged; there they only count as in
flight.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrowmq.core.names import retry_topic
from sparrowmq.protocol.bodies import OffsetWrapper

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparrowmq.broker.pop.pop_service import PopService
    from sparrowmq.broker.tables.clients import ClientTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.store.message_store import MessageStore
    from sparrowmq.store.queues.consume_queue import ConsumeQueue
    from sparrowmq.store.tables.consumer_offsets import ConsumerOffsets


@dataclass(frozen=True, slots=True)
class Invisible:
    """Messages of a topic that POP handed out to a group and that are invisible, by queue."""

    popped: Mapping[int, int] = field(default_factory=dict)
    ordered: Mapping[int, int] = field(default_factory=dict)


def consumed_to(committed: int, popped: int, first: int) -> int:
    """The offset up to which a group has consumed a queue that begins at `first`. Pure."""
    return max(committed - popped, min(committed, first), 0)


class ConsumerProgress:
    """Reads the progress of groups from the offsets and from what POP has handed out."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        clients: ClientTable,
        pop: PopService,
        clock: Clock,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._clients = clients
        self._pop = pop
        self._clock = clock

    def topics_of(self, group: str) -> list[str]:
        """Topics for which the group has offsets. While it is online only those that it subscribes to, and
        its retry topics. That of its own counts without offsets, too: a crash may have lost them."""
        topics, own = self._offsets.topics_of(group), retry_topic(group)
        read = {name for name in topics if self.is_read(group, name)} | self._subscribed(group)
        return sorted(read | {own} if self._store.queues(own) else read)

    def is_read(self, group: str, topic: str) -> bool:
        """Whether a group with offsets in a topic still reads it."""
        online = self._clients.consumers.get(group)
        return online is None or topic in online.subscriptions or topic.startswith(retry_topic(group))

    def _subscribed(self, group: str) -> set[str]:
        online = self._clients.consumers.get(group)
        return set() if online is None else set(online.subscriptions)

    def invisible(self, topic: str, group: str) -> Invisible:
        """What POP has handed out of a topic to a group."""
        now = self._clock.now_ms()
        popped = self._pop.in_flight.of_queues(topic, group, now)
        return Invisible(popped or {}, self._pop.order.of_queues(topic, group, now))

    def row(self, queue: ConsumeQueue, group: str, invisible: Invisible, pulled: int = 0) -> OffsetWrapper:
        """A group's progress in one queue; `pulled` is the next offset that a pull asks for, if known."""
        queue_id = queue.queue_id
        committed = max(0, self._offsets.query(queue.topic, group, queue_id) or 0)
        consumed = consumed_to(committed, invisible.popped.get(queue_id, 0), queue.min_offset)
        handed_out = max(committed + invisible.ordered.get(queue_id, 0), pulled)
        end = queue.confirmed_offset
        return OffsetWrapper(
            broker_offset=end,
            consumer_offset=consumed,
            pull_offset=max(consumed, min(end, handed_out)),
            last_timestamp=self._store.store_time(queue, consumed - 1) or 0,
        )
