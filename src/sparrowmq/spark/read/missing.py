"""What became of queues that a stream reads and that the route does not have now.

The broker of such a queue is asked itself: it knows the queue's end even if nobody can read the queue any
more, because its topic has fewer queues to read. So unread messages are counted, not passed over. Queues are
seldom missing, so drivers load this module only then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from sparrowmq import aio
from sparrowmq.core.errors import NoRouteError, SparrowError, TransportError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.cluster.faults import is_deleted, is_illegal_queue, without_broker
from sparrowmq.spark.offsets.losses import GoneQueue
from sparrowmq.spark.offsets.offsets import describe


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


async def look_at(
    consumer: aio.PullConsumer, queue: MessageQueue, place: int, brokers: Collection[str]
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


def readable(found: Mapping[MessageQueue, MissingQueue]) -> dict[MessageQueue, int]:
    """The ends of those that their brokers serve nevertheless."""
    return {q: one.end for q, one in found.items() if one.state is Absence.READABLE and one.end is not None}


def gone(
    found: Mapping[MessageQueue, MissingQueue],
    places: Mapping[MessageQueue, int],
    ends: Mapping[MessageQueue, int],
) -> list[GoneQueue]:
    """Those that nobody can read any more; `ends` are the last known ends."""
    return [
        GoneQueue(queue, places[queue], _greatest(ends.get(queue), one.end), one.state.value)
        for queue, one in found.items()
        if one.state in (Absence.RETIRED, Absence.DELETED)
    ]


def refuse_away(found: Mapping[MessageQueue, MissingQueue]) -> None:
    """Raise `TransportError` if a run to the current ends would leave out queues whose broker is away."""
    away = [queue for queue, one in found.items() if one.state is Absence.AWAY]
    if away:
        broker = away[0].broker_name
        raise TransportError(
            f"{describe(away)} cannot be read to their ends: broker {broker} does not answer "
            f"({found[away[0]].why}); {without_broker(broker)}",
            value=broker,
        )


def _greatest(*ends: int | None) -> int | None:
    return max((end for end in ends if end is not None), default=None)
