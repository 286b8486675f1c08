"""How many messages are handed out by POP and invisible: neither acknowledged nor visible again. Pure.

They are counted by queue and by the second in which they become visible. A second that is over is dropped, so
a receipt that is used twice, or never, makes no lasting error. Hand-outs before the broker's start are not
known here; their acknowledgements are ignored.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

SECOND_MS: Final = 1000
COUNTS_MAX: Final = 100_000
"""Maximum number of counts, of groups in queues by second; without room nothing is known for a while."""

FORGET_MS: Final = 5_000
"""While there is no room, counts that are over are looked for so often."""
OVER_A_COUNT: Final = 2
"""Counts of a queue that may be over and are looked at when it gets a new one."""

Seconds = dict[int, int]


class PopsInFlight:
    """The counts of one broker. Times are epoch ms."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], dict[int, Seconds]] = {}
        self._counts = 0
        self._unknown_until = 0
        self._forgets_at = 0

    def __repr__(self) -> str:
        return f"<PopsInFlight of {len(self._pairs)} groups in topics>"

    def handed_out(
        self, topic: str, group: str, queue_id: int, count: int, visible_ms: int, now_ms: int
    ) -> None:
        """Messages of a queue were handed out that become visible at a time."""
        second = visible_ms // SECOND_MS
        queues = self._pairs.get((topic, group), {})
        seconds = queues.get(queue_id)
        if seconds is None or second not in seconds:
            if self._counts >= COUNTS_MAX and now_ms >= self._forgets_at:
                self._forget(now_ms)
            if self._counts >= COUNTS_MAX:
                self._unknown_until = max(self._unknown_until, visible_ms)
                return
            seconds = self._pairs.setdefault((topic, group), {}).setdefault(queue_id, {})
            self._counts += 1 - _drop_oldest(seconds, now_ms)
        seconds[second] = seconds.get(second, 0) + count

    def ended(self, topic: str, group: str, queue_id: int, count: int, visible_ms: int) -> None:
        """Messages of a hand-out that would become visible at this time were acknowledged."""
        seconds, second = self._pairs.get((topic, group), {}).get(queue_id), visible_ms // SECOND_MS
        if seconds is not None and second in seconds:
            seconds[second] = max(0, seconds[second] - count)

    def clear(self, topic: str, group: str, queue_id: int) -> None:
        """The group's offset was reset: what was handed out of the queue no longer counts."""
        self._counts -= len(self._pairs.get((topic, group), {}).pop(queue_id, ()))

    def end(self, topic: str) -> None:
        """A topic is deleted: what was handed out of it no longer counts."""
        for pair in [pair for pair in self._pairs if pair[0] == topic]:
            self._counts -= sum(map(len, self._pairs.pop(pair).values()))

    def invisible(self, topic: str, group: str, now_ms: int) -> int | None:
        """Invisible messages of a topic for a group; None if the group got none by POP lately, or if this is
        not known.
        """
        queues = self.of_queues(topic, group, now_ms)
        return None if queues is None else sum(queues.values())

    def pairs(self) -> list[tuple[str, str]]:
        """The topics and groups with counts."""
        return list(self._pairs)

    def of_queues(self, topic: str, group: str, now_ms: int) -> dict[int, int] | None:
        """The same by queue; in any thread."""
        queues = self._pairs.get((topic, group))
        if queues is None or now_ms < self._unknown_until:
            return None
        return {
            queue_id: sum(_left(seconds.copy(), now_ms).values())
            for queue_id, seconds in queues.copy().items()
        }

    def _forget(self, now_ms: int) -> None:
        """Drop seconds that are over, and queues and pairs without others. All counts are looked at, so not
        for each hand-out that finds no room.
        """
        self._forgets_at = now_ms + FORGET_MS
        self._counts = 0
        for pair, queues in list(self._pairs.items()):
            kept = {queue_id: _left(seconds, now_ms) for queue_id, seconds in queues.items()}
            left = {queue_id: seconds for queue_id, seconds in kept.items() if seconds}
            self._counts += sum(map(len, left.values()))
            if left:
                self._pairs[pair] = left
            else:
                del self._pairs[pair]


def _left(seconds: Seconds, now_ms: int) -> Seconds:
    """The seconds that are not over."""
    return {second: count for second, count in seconds.items() if second * SECOND_MS >= now_ms}


def _drop_oldest(seconds: Seconds, now_ms: int) -> int:
    """Drop those of the oldest counts that are over; how many. Two for each new one keeps a queue small."""
    over = [second for second in islice(seconds, OVER_A_COUNT) if second * SECOND_MS < now_ms]
    for second in over:
        del seconds[second]
    return len(over)
