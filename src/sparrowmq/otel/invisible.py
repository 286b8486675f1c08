"""The messages that POP gave this process, until they are settled or visible to others again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import islice
from threading import Lock
from time import monotonic
from typing import Final

from sparrowmq.hooks import PopContext, SettleContext

MESSAGES_MAX: Final = 100_000
"""Maximum number of messages that are remembered; beyond it, the oldest are forgotten."""
LOOKED_AT: Final = 100
"""How many of the oldest are looked at whenever others come: those whose time is over are forgotten."""

Key = tuple[str, str, str, int, int, str]
Place = tuple[str, str]


class InvisibleMessages:
    """Counts by topic and group. Any thread may use it: clients add, a metric reader counts."""

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._until: dict[Key, tuple[Place, float]] = {}
        self._lock = Lock()

    def popped(self, context: PopContext) -> None:
        """Messages came."""
        place, now = (context.queue.topic, context.group), self._clock()
        with self._lock:
            over = [key for key, (_, until) in islice(self._until.items(), LOOKED_AT) if until <= now]
            for key in over:
                del self._until[key]
            for receipt in context.receipts:
                key = (*place, receipt.broker_name, receipt.queue_id, receipt.offset, receipt.flag)
                self._until[key] = place, now + context.invisible
            while len(self._until) > MESSAGES_MAX:
                del self._until[next(iter(self._until))]

    def settled(self, context: SettleContext) -> None:
        """A message is acknowledged, or hidden for another time."""
        receipt, place = context.receipt, (context.topic, context.group)
        key = (*place, receipt.broker_name, receipt.queue_id, receipt.offset, receipt.flag)
        with self._lock:
            if self._until.pop(key, None) is not None and context.invisible:
                self._until[key] = place, self._clock() + context.invisible

    def counts(self) -> Counter[Place]:
        """How many there are now."""
        now = self._clock()
        with self._lock:
            return Counter(place for place, until in self._until.values() if until > now)
