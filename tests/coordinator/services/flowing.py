"""The message flow of a fake cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sparrowmq.client.admin.types import BrokerStatus, QueueProgress
from sparrowmq.coordinator.cluster.flow import FlowSample
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue


def queue(topic: str = "T", broker: str = "a", number: int = 0) -> MessageQueue:
    return MessageQueue(topic, broker, number)


def at(where: MessageQueue, end: int, offset: int, last_ms: int = 0) -> QueueProgress:
    """A group's offset in a queue that ends at `end`."""
    return QueueProgress(where, end, offset, last_ms)


def broker(name: str = "a", broker_id: int = 0, error: str | None = None, **told: str) -> BrokerStatus:
    return BrokerStatus("c", name, broker_id, f"{name}:{broker_id}", told, error)


def look(
    seconds: float, places: Mapping[str, Sequence[QueueProgress]] | None = None, **more: object
) -> FlowSample:
    """A sample at `seconds`, by both clocks."""
    given = dict(places or {})
    topics = frozenset(one.queue.topic for rows in given.values() for one in rows)
    made = FlowSample(seconds, int(seconds * 1000), given, {}, topics)
    return replace(made, **more)  # type: ignore[arg-type]


class MadeUpFlow:
    """A `FlowView` with prepared answers; `stored` has the store times of messages."""

    def __init__(self) -> None:
        self.looks: list[FlowSample] = []
        self.stored: dict[MessageQueue, int] = {}
        self.asked: list[tuple[MessageQueue, int]] = []
        self.fails: SparrowError | None = None

    async def look(self, topics_at_once: int) -> FlowSample:
        if self.fails is not None:
            raise self.fails
        return self.looks.pop(0) if self.looks else FlowSample(0.0, 0)

    async def stored_ms(self, places: Sequence[tuple[MessageQueue, int]]) -> dict[MessageQueue, int]:
        self.asked += places
        return {queue: self.stored[queue] for queue, _ in places if queue in self.stored}

    async def close(self) -> None:
        """Do nothing."""
