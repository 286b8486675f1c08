"""The content of a revive queue: the messages of each check point that are not acknowledged (broker:13.7).
Pure.

Check points and acknowledgements are added in the order of the queue. `settled` are the check points whose
time is over and whose acknowledgements were all read; the caller says when that is.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sparrowmq.protocol.pop.records import Ack, CheckPoint

EARLY_MAX: Final = 100_000
"""Maximum number of check points whose acknowledgements are kept before the check points are read."""
Key = tuple[str, str, int, int, int, str]


class EarlyAck(NamedTuple):
    """An acknowledgement that was read before its check point."""

    place: int
    revive_time: int
    ack: Ack


class CheckPoints:
    """The check points of one revive queue that are not settled, with their acknowledgements."""

    def __init__(self) -> None:
        self._points: dict[Key, CheckPoint] = {}
        self._by_time: list[tuple[int, int, CheckPoint]] = []
        self._by_place: list[tuple[int, int, CheckPoint]] = []
        self._added = count()
        self._early: dict[Key, list[EarlyAck]] = {}
        self._early_until: int | None = None

    def __len__(self) -> int:
        return len(self._points)

    def add(self, point: CheckPoint) -> None:
        """A check point; `revive_offset` is its offset in the queue.

        It replaces one of the same key, with its acknowledgements: after a crash, the timer repeats its last
        deliveries.
        """
        known = self._points.get(point.key)
        if known is not None:
            point.acknowledge(set(known.offsets).difference(known.missing))
        self._points[point.key] = point
        for early in self._early.pop(point.key, ()):
            point.acknowledge(early.ack.offsets)
        number = next(self._added)
        heapq.heappush(self._by_time, (point.revive_time, number, point))
        heapq.heappush(self._by_place, (point.revive_offset, number, point))

    def acknowledge(self, ack: Ack, place: int, revive_time: int) -> None:
        """An acknowledgement, at this place of the queue, for a check point whose time is over at
        `revive_time`, epoch ms.

        Its check point may come later: after a pause, the timer first delivers messages that it had not
        planned. It is kept until `forget_early`.
        """
        point = self._points.get(ack.key)
        if point is not None:
            point.acknowledge(ack.offsets)
            return
        if len(self._early) >= EARLY_MAX:
            del self._early[next(iter(self._early))]
        self._early.setdefault(ack.key, []).append(EarlyAck(place, revive_time, ack))
        known = self._early_until
        self._early_until = revive_time if known is None else min(known, revive_time)

    def forget_early(self, until: int) -> None:
        """Everything that was due at `until` has been read: these acknowledgements have no check point."""
        if self._early_until is None or self._early_until > until:
            return
        self._early = {key: acks for key, acks in self._early.items() if acks[0].revive_time > until}
        self._early_until = min((acks[0].revive_time for acks in self._early.values()), default=None)

    def settled(self, until: int, most: int) -> list[CheckPoint]:
        """Remove and return up to `most` check points that were over at `until`, epoch ms, oldest first."""
        found: list[CheckPoint] = []
        while self._by_time and self._by_time[0][0] <= until and len(found) < most:
            point = heapq.heappop(self._by_time)[2]
            if self._points.get(point.key) is point:
                del self._points[point.key]
                found.append(point)
        return found

    def put_back(self, points: list[CheckPoint]) -> None:
        """Put back check points that could not be settled now."""
        for point in points:
            self.add(point)

    @property
    def first_place(self) -> int | None:
        """The offset of the first check point that is not settled, or of the first acknowledgement without a
        check point; None if there is none.
        """
        places = self._by_place
        while places and self._points.get(places[0][2].key) is not places[0][2]:
            heapq.heappop(places)
        early = next(iter(self._early.values()), None)
        found = [places[0][0]] if places else []
        return min(found if early is None else [*found, early[0].place], default=None)

    @property
    def next_time(self) -> int | None:
        """When the first of them is due, epoch ms; None if there is none."""
        times = self._by_time
        while times and self._points.get(times[0][2].key) is not times[0][2]:
            heapq.heappop(times)
        early = self._early_until
        found = [times[0][0]] if times else []
        return min(found if early is None else [*found, early], default=None)
