"""Where a group continues at the target: the first message there that it may not have read at the source.

The group has read an offset of the source if it committed a later one. At the target, offset by offset from
the group's position there:

- a copy is read when its origin is;
- a message that was written at the target itself is read when its copy at the source is (a mirror the other
  way brought it), otherwise not.

So nothing unread is ever passed over, however many clusters write; where something is not known, the group
stays before it, and reads some messages twice.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.pipelines.mirror.offset_map import QueuePlaces
from sparrowmq.spark.pipelines.mirror.rows import Origin

PAGE: Final = 1000
"""Messages per read."""
KNOWN_MAX: Final = 64
"""Cached answers about messages that came back, for each pair of queues."""
_FAR: Final = 2**63
READ_MAX: Final = 100_000
"""Maximum messages read by one translation; the next one continues where it ended."""


Way = tuple[MessageQueue, MessageQueue]
"""A source queue and its target queue."""


@dataclass(frozen=True, slots=True)
class OriginPage:
    """Messages of one queue with their origins, and the offset after them."""

    rows: Sequence[tuple[int, Origin | None]]
    next_offset: int


class Log(Protocol):
    """Reads queues of one cluster."""

    async def page(self, queue: MessageQueue, start: int, end: int) -> OriginPage:
        """Messages from `start` up to, not including, `end`; `next_offset` is `start` if none are available
        now.
        """


class Budget:
    """How many messages may still be read."""

    def __init__(self, left: int = READ_MAX) -> None:
        self.left = left

    def take(self, wanted: int) -> int:
        """Take up to `wanted` messages from the budget."""
        given = min(wanted, self.left)
        self.left -= given
        return given


class ReturnedOffsets:
    """Up to which offset messages of the target have come back to the source, for offsets of the source.

    Source queues are read backwards from a group's position, each part once; results are cached.
    """

    def __init__(self, log: Log, target: str) -> None:
        self._log = log
        self._target = target
        self._known: dict[Way, list[tuple[int, int]]] = {}
        self._empty: dict[Way, tuple[int, int]] = {}
        """A part without any, in which the last search ended because the budget was used up."""

    async def last(self, source: MessageQueue, before: int, queue: MessageQueue, budget: Budget) -> int:
        """The largest offset of target queue `queue` whose copy is in `source` before an offset.

        -1 if there is none. Too small, never too large, when the budget ends.
        """
        way = source, queue
        known = self._known.setdefault(way, [])
        place = bisect_right(known, (before, _FAR))
        low, best = known[place - 1] if place else (0, -1)
        high = before
        while high > low:  # ends: the value only decreases
            empty = self._empty.get(way, (0, 0))
            if empty[0] < high <= empty[1]:
                high = empty[0]
                continue
            size = budget.take(min(PAGE, high - low))
            if not size:
                if high <= max(empty[0], before - PAGE):
                    self._empty[way] = high, before
                return best
            found, more = await self._latest(source, high - size, high, queue)
            if found is not None or not more:
                best = max(best, -1 if found is None else found)
                break
            high -= size
        if not place or known[place - 1][0] != before:
            insort(known, (before, best))
            del known[:-KNOWN_MAX]
        return best

    async def _latest(
        self, source: MessageQueue, start: int, end: int, queue: MessageQueue
    ) -> tuple[int | None, bool]:
        """The largest one in a part of `source`, and whether messages before it are still stored."""
        at, found, more = start, list[int](), True
        while at < end:  # ends: a page ends after its start
            page = await self._log.page(source, at, end)
            for offset, origin in page.rows:
                if offset < end and origin is not None and self._is_own(origin, queue):
                    found.append(origin.offset)
            if page.next_offset <= at or (not page.rows and page.next_offset >= end):
                more = False
                break
            at = page.next_offset
        return max(found, default=None), more

    def _is_own(self, origin: Origin, queue: MessageQueue) -> bool:
        return origin.cluster == self._target and origin.queue(queue.topic) == queue


class Translator:
    """Translates offsets for one mirror, from cluster `source`."""

    def __init__(self, source: str, target_log: Log, returned: ReturnedOffsets) -> None:
        self._source = source
        self._log = target_log
        self._returned = returned

    async def position(
        self,
        queue: MessageQueue,
        places: QueuePlaces,
        start: int,
        read: Mapping[MessageQueue, int],
        budget: Budget,
    ) -> int:
        """Where a group continues in target queue `queue`, whose position there is `start`.

        `read` is the group's position in each source queue that goes there.
        """
        at, end = places.unread(start, read)
        while end is not None:  # ends: each turn advances, or returns
            while at < end:
                size = budget.take(min(PAGE, end - at))
                if not size:
                    return at
                page = await self._log.page(queue, at, at + size)
                unread = await self._first_unread(queue, page, end, read, budget)
                if unread is not None or page.next_offset <= at:
                    return at if unread is None else unread
                budget.left += max(0, at + size - page.next_offset)
                at = min(page.next_offset, end)  # a page may continue beyond it, unchecked
            at, end = places.unread(at, read)
        return at

    async def _first_unread(
        self,
        queue: MessageQueue,
        page: OriginPage,
        end: int,
        read: Mapping[MessageQueue, int],
        budget: Budget,
    ) -> int | None:
        own: int | None = None
        for offset, origin in page.rows:
            if offset >= end:
                break
            if origin is not None and origin.cluster == self._source:
                if origin.offset >= read.get(origin.queue(queue.topic), 0):
                    return offset
                continue
            if own is None:
                own = await self._own_read(queue, read, budget)
            if offset > own:
                return offset
        return None

    async def _own_read(self, queue: MessageQueue, read: Mapping[MessageQueue, int], budget: Budget) -> int:
        """The largest offset of the target's own messages that the group has read at the source."""
        found = [await self._returned.last(source, before, queue, budget) for source, before in read.items()]
        return max(found, default=-1)
