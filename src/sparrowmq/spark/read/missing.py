"""What became of queues that a stream reads and that the route does not have now.

The broker of such a queue is asked itself: it knows the queue's end even if nobody can read the queue any
more, because its topic has fewer queues to read. So unread messages are counted, not passed over.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from typing import NamedTuple, Protocol

from sparrowmq.core.errors import NoRouteError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster.faults import is_deleted, is_illegal_queue
from sparrowmq.spark.read.raw_consumer import RawConsumer


class Absence(Enum):
    """Why a queue is not in the route."""

    READABLE = "its broker has it"
    """The broker serves it although the name server does not say so."""
    RETIRED = "its topic has fewer queues to read now"
    DELETED = "its topic was deleted"
    AWAY = "its broker does not answer"


class MissingQueue(NamedTuple):
    """A queue that is not in the route; `end` is its end if its broker has it, `why` the broker's error."""

    state: Absence
    end: int | None = None
    why: str = ""


class EndConsumer(RawConsumer, Protocol):
    """The methods of `aio.PullConsumer` that are needed here."""

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""


async def look_at(
    consumer: EndConsumer, queue: MessageQueue, place: int, brokers: Collection[str]
) -> MissingQueue:
    """The state of a queue that was read up to `place`; `brokers` are those that a name server knows."""
    if queue.broker_name not in brokers:
        return MissingQueue(Absence.AWAY, why="no name server knows it")
    try:
        state = Absence.READABLE
        try:
            await consumer.fetch_raw(
                queue, place, max_bytes=1, max_messages=1, expression="*", read_from="master"
            )
        except SparrowError as error:
            if not is_illegal_queue(error):
                raise
            state = Absence.RETIRED
        return MissingQueue(state, await consumer.max_offset(queue))
    except SparrowError as error:
        if isinstance(error, NoRouteError) or is_deleted(error):
            return MissingQueue(Absence.DELETED)
        return MissingQueue(Absence.AWAY, why=str(error))
