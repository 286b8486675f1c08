"""Where a finished job's topic ended, so that a later run finds out whether its rows are still there.

A topic that was deleted and created again has none of them, although the job's record in `planLocation` says
that it is finished; so has another cluster. Only the queues tell: a queue's end never goes back, and its
messages are stored in the order of time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

from sparrowmq.core.errors import NoRouteError, SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.cluster.clients import reader
from sparrowmq.spark.offsets.offsets import describe, from_tree, to_tree
from sparrowmq.spark.offsets.resets import SKEW_MS
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write.send import retried

log = logging.getLogger("sparrowmq.spark")

_ENDS: Final = "ends"
_DONE: Final = "doneMs"


@dataclass(frozen=True, slots=True)
class JobPlaces:
    """The ends of a topic's queues at `done_ms`, epoch ms of the driver, when a job had written its rows."""

    ends: Mapping[MessageQueue, int] = field(default_factory=dict)
    done_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        """The members of the record that hold them."""
        return {_ENDS: to_tree(self.ends), _DONE: self.done_ms}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobPlaces:
        """The inverse. Raises KeyError, TypeError, ValueError, `SettingsError`."""
        return cls(from_tree(data[_ENDS]), int(data[_DONE]))


class QueueNow(NamedTuple):
    """A queue's end, and the offset of its first message that was stored after the job was done."""

    end: int
    later: int


class WhatIsLeft(Enum):
    """What is left of the rows of a finished job."""

    ALL = "all"
    SOME = "some"
    NONE = "none"


def what_is_left(ends: Mapping[MessageQueue, int], now: Mapping[MessageQueue, QueueNow]) -> WhatIsLeft:
    """What is left of the messages before `ends`; queues that cannot be asked are left out of `now`.

    Messages that expired count as there. Where searches by time are not exact, the last message of a queue
    may be taken for a later one, as Apache's brokers do.
    """
    asked = {queue: end for queue, end in ends.items() if end and queue in now}
    gone = [queue for queue, end in asked.items() if not _reaches(now[queue], end)]
    if not gone:
        return WhatIsLeft.ALL if asked or not any(ends.values()) else WhatIsLeft.NONE
    return WhatIsLeft.NONE if len(gone) == len(asked) else WhatIsLeft.SOME


def _reaches(now: QueueNow, end: int) -> bool:
    return now.end >= end and (now.later >= end or now.later >= now.end - 1)


def places_now(options: WriteOptions, now_ms: int) -> JobPlaces:
    """The ends of the topic's queues. Raises the brokers' errors."""

    async def ask() -> dict[MessageQueue, int]:
        client = await reader(options)
        queues = [q for q in await client.queues(options.topic) if q.broker_name not in options.lost_brokers]
        ends = await asyncio.gather(*map(client.max_offset, queues))
        return dict(zip(queues, ends, strict=True))

    what = f"reading the ends of {options.topic}"
    return JobPlaces(loop_thread().run(retried(options, what, ask)), now_ms)


def still_there(options: WriteOptions, places: JobPlaces, where: str) -> bool:
    """Whether the rows of the finished job of the record `where` are in the topic; False, with a warning,
    when the topic was recreated.

    Brokers that cannot be asked are believed to have theirs, with a warning. Raises `NoRouteError` when there
    is no such topic, `SettingsError` when only a part of the queues has its messages.
    """
    if not places.ends:
        return True
    since = places.done_ms + SKEW_MS

    async def one(queue: MessageQueue) -> QueueNow:
        client = await reader(options)
        end = await client.max_offset(queue)
        return QueueNow(end, await client.search_offset(queue, since))

    async def ask() -> dict[MessageQueue, QueueNow]:
        client = await reader(options)
        there = set(await client.queues(options.topic))
        asked = [q for q in places.ends if q in there and q.broker_name not in options.lost_brokers]
        return dict(zip(asked, await asyncio.gather(*map(one, asked)), strict=True))

    what = f"reading the ends of {options.topic}"
    try:
        now = loop_thread().run(retried(options, what, ask))
    except NoRouteError:
        raise
    except SparrowError as error:
        log.warning(
            "job %s is finished according to %s; whether its rows are still in %s cannot be checked now: %s",
            options.job_id,
            where,
            options.topic,
            error,
        )
        return True
    return _judged(options, places, now, where)


def _judged(
    options: WriteOptions, places: JobPlaces, now: Mapping[MessageQueue, QueueNow], where: str
) -> bool:
    left = what_is_left(places.ends, now)
    if left is WhatIsLeft.ALL:
        return True
    gone = sorted(q for q, end in places.ends.items() if end and (q not in now or not _reaches(now[q], end)))
    if left is WhatIsLeft.SOME:
        raise SettingsError(
            f"job {options.job_id!r}, batch {options.job_batch}, was written according to {where}, but "
            f"{describe(gone)} no longer has what it had then: its broker lost messages, or the topic was "
            f"recreated there. Give another jobId to store all rows again",
            "jobId",
            options.job_id,
            what="queues",
        )
    log.warning(
        "job %s, batch %d, was written according to %s, but topic %s was recreated since, or is another "
        "cluster's: its rows are stored again",
        options.job_id,
        options.job_batch,
        where,
        options.topic,
    )
    return False
