"""What the driver asks a cluster: which queues there are, where they begin and end, where to start.

Calls are repeated while faults pass, because an exception of the driver ends a query (spark:S-30). What runs
once per query raises in the end; polls give what is reachable.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from time import monotonic
from typing import Final, Protocol, TypeVar

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import NoRouteError, SettingsError, SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.faults import Occasionally, is_passing, messages_lost
from sparrowmq.spark.fetch import RawConsumer
from sparrowmq.spark.offsets import describe
from sparrowmq.spark.option_types import (
    EARLIEST,
    EARLIEST_OFFSET,
    GROUP,
    LATEST,
    LATEST_OFFSET,
    Place,
)
from sparrowmq.spark.options import ReadOptions

log = logging.getLogger("sparrowmq.spark")

T = TypeVar("T")
Found = dict[MessageQueue, int]

ROUTE_SECONDS: Final = 10.0
"""For so long the known queues are believed, so that new ones are read soon."""
_PAUSE_MOST: Final = 5.0
_SAMPLE_MESSAGES: Final = 32


class Consumer(RawConsumer, Protocol):
    """What a look-up needs of `aio.PullConsumer`."""

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic."""

    async def min_offset(self, queue: MessageQueue) -> int:
        """The smallest offset that is stored."""

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at or after a time."""

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset."""

    async def commit(self, queue: MessageQueue, offset: int) -> None:
        """Store the group's offset."""


class Admin(Protocol):
    """What a look-up needs of `aio.Admin`."""

    async def topic_list(self, *, system: bool = False) -> list[str]:
        """Names of all topics."""


class Lookup:
    """The questions, for one reader's options; only `subscribePattern` needs an `admin`."""

    def __init__(
        self,
        consumer: Consumer,
        admin: Admin | None,
        options: ReadOptions,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._consumer = consumer
        self._admin = admin
        self._options = options
        self._now = now
        self._queues: list[MessageQueue] = []
        self._queues_at = float("-inf")
        self._complaints = Occasionally()

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """The result of `work`, repeated after faults that pass, as often as the options say.

        A topic that nobody serves is an error at once: waiting seldom helps.
        """
        first = max(self._options.retry_interval, 0.001)
        delays = Backoff(first=first, most=max(first, _PAUSE_MOST)).delays()
        for _ in range(self._options.retries):
            try:
                return await work()
            except SparrowError as error:
                if isinstance(error, NoRouteError) or not is_passing(error):
                    raise
                log.warning("asking %s is tried again: %s", self._options.name_server, error)
            await asyncio.sleep(next(delays))
        return await work()

    async def queues(self, *, fresh: bool = False) -> list[MessageQueue]:
        """The queues to read, sorted; known ones for `ROUTE_SECONDS`. Raises `NoRouteError` without any."""
        if not fresh and self._queues and self._now() - self._queues_at < ROUTE_SECONDS:
            return self._queues
        options = self._options
        if options.assign:
            found = await self._assigned()
        else:
            topics = options.subscribe or await self._matching()
            lists = await asyncio.gather(*(self._consumer.queues(topic) for topic in topics))
            found = sorted(queue for queues in lists for queue in queues)
        self._queues, self._queues_at = found, self._now()
        return found

    async def _assigned(self) -> list[MessageQueue]:
        topics = sorted({queue.topic for queue in self._options.assign})
        lists = await asyncio.gather(*(self._consumer.queues(topic) for topic in topics))
        missing = set(self._options.assign) - {queue for queues in lists for queue in queues}
        if missing:
            raise NoRouteError(f"option assign names queues that are not there: {describe(sorted(missing))}")
        return list(self._options.assign)

    async def _matching(self) -> list[str]:
        pattern = re.compile(self._options.subscribe_pattern)
        assert self._admin is not None
        names = await self._admin.topic_list(system="%" in self._options.subscribe_pattern)
        found = [name for name in names if pattern.fullmatch(name)]
        if not found:
            raise NoRouteError(
                f"no topic matches option subscribePattern={pattern.pattern!r}; create one first"
            )
        return found

    async def firsts(self, queues: Iterable[MessageQueue]) -> Found:
        """The smallest stored offset of each queue."""
        return await _each(queues, self._consumer.min_offset)

    async def ends(self, queues: Iterable[MessageQueue]) -> Found:
        """The next offset of each queue."""
        return await _each(queues, self._consumer.max_offset)

    async def reachable_ends(self, queues: list[MessageQueue]) -> Found:
        """The next offset of each queue whose broker answers; the others are logged."""
        answers = await asyncio.gather(
            *(self._consumer.max_offset(queue) for queue in queues), return_exceptions=True
        )
        found: Found = {}
        for queue, answer in zip(queues, answers, strict=True):
            if isinstance(answer, int):
                found[queue] = answer
            elif isinstance(answer, SparrowError):
                self._complaints.warn("the end of %s is not known now: %s", queue, answer)
            else:
                raise answer
        return found

    async def starts(self, default: str) -> Found:
        """Where to start in every queue, as the options say; `default` is for none given."""
        options = self._options
        queues = await self.queues(fresh=True)
        if options.starting_timestamp is not None:
            return await self._at_time(queues, options.starting_timestamp)
        place = options.starting_offsets if options.starting_offsets is not None else default
        if place == GROUP:
            return await self._of_group(queues)
        return await self._at("startingOffsets", queues, place)

    async def stops(self) -> Found:
        """Where a batch read ends in every queue, as the options say."""
        options = self._options
        queues = await self.queues()
        if options.ending_timestamp is not None:
            timestamp = options.ending_timestamp
            return await _each(queues, lambda queue: self._consumer.search_offset(queue, timestamp))
        place = options.ending_offsets if options.ending_offsets is not None else LATEST
        return await self._at("endingOffsets", queues, place)

    async def _at(self, name: str, queues: list[MessageQueue], place: Place) -> Found:
        if place == EARLIEST:
            return await self.firsts(queues)
        ends = await self.ends(queues)
        if isinstance(place, str):
            return ends
        without = [queue for queue in queues if queue not in place]
        strange = sorted(set(place) - set(queues))
        if without or strange:
            text = (
                f"has no offset for {describe(without)}"
                if without
                else f"names {describe(strange)}, not read here"
            )
            raise SettingsError(
                f"option {name} {text}: give one for every queue; -2 means earliest, -1 latest"
            )
        firsts = await self.firsts(queues)
        found: Found = {}
        for queue in queues:
            offset = {EARLIEST_OFFSET: firsts[queue], LATEST_OFFSET: ends[queue]}.get(
                place[queue], place[queue]
            )
            if offset > ends[queue]:
                raise SettingsError(
                    f"option {name} gives offset {offset} for {queue}, which ends at {ends[queue]}; "
                    f"it takes {firsts[queue]} to {ends[queue]}, -2 or -1"
                )
            found[queue] = max(offset, firsts[queue]) if name == "startingOffsets" else offset
            if offset < found[queue]:
                why = f"the oldest that is stored is {firsts[queue]}"
                messages_lost(self._options, queue, offset, firsts[queue], why)
        return found

    async def _at_time(self, queues: list[MessageQueue], timestamp: int) -> Found:
        found = await _each(queues, lambda queue: self._consumer.search_offset(queue, timestamp))
        firsts, ends = await self.firsts(queues), await self.ends(queues)
        later = [queue for queue in queues if ends[queue] > firsts[queue] and found[queue] >= ends[queue]]
        if later and self._options.starting_strategy != LATEST:
            raise SettingsError(
                f"option startingTimestamp={timestamp}: no message was stored at or after it in "
                f"{describe(later)}; startingOffsetsByTimestampStrategy=latest starts there at the end"
            )
        return found

    async def _of_group(self, queues: list[MessageQueue]) -> Found:
        """The group's offsets; queues it has none for start at their minimum."""
        firsts = await self.firsts(queues)
        ends = await self.ends(queues)
        committed = await _each(queues, self._consumer.committed)
        return {
            queue: min(
                max(offset if (offset := committed[queue]) is not None else 0, firsts[queue]), ends[queue]
            )
            for queue in queues
        }

    async def record_bytes(self, places: Found) -> float | None:
        """Average size of some stored records at the given offsets; None without any."""
        answers = await asyncio.gather(
            *(
                self._consumer.fetch_raw(
                    queue, offset, max_bytes=1024 * 1024, max_messages=_SAMPLE_MESSAGES, expression="*"
                )
                for queue, offset in places.items()
            )
        )
        count = sum(answer.count for answer in answers)
        return sum(len(answer.buffer) for answer in answers) / count if count else None

    async def report(self, places: Found) -> None:
        """Store how far the group has read; what fails is logged."""
        answers = await asyncio.gather(
            *(self._consumer.commit(queue, offset) for queue, offset in places.items()),
            return_exceptions=True,
        )
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if errors:
            log.warning("progress of group %s is not reported: %s", self._options.group_id, errors[0])


async def _each(
    queues: Iterable[MessageQueue], ask: Callable[[MessageQueue], Awaitable[T]]
) -> dict[MessageQueue, T]:
    asked = list(queues)
    return dict(zip(asked, await asyncio.gather(*(ask(queue) for queue in asked)), strict=True))
