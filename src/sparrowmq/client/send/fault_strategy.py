"""The latency fault strategy: which brokers to avoid for how long, and which to choose instead (client:B.13).

Pure bookkeeping; times are milliseconds of one monotonic clock. Off by default: it may move messages to other
queues, so it must stay off if the order by key matters (client:B-55). RocketMQ 4.9 and 5.x (from 5.1.4 on)
differ in their tables, in what extends the time a broker is avoided, and in the choice (client:G-02, G-03).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sparrowmq.client.send.encoding import SendTarget
from sparrowmq.client.send.queue_selection import PublishInfo
from sparrowmq.core.errors import BrokerError, NoRoomError, TransportError

LATENCY_MAX: Final = {
    "4.9": (50, 100, 550, 1000, 2000, 3000, 15000),
    "5.x": (50, 100, 550, 1800, 3000, 5000, 15000),
}
NOT_AVAILABLE: Final = {
    "4.9": (0, 0, 30000, 60000, 120000, 180000, 600000),
    "5.x": (0, 0, 2000, 5000, 6000, 10000, 30000),
}
"""After an attempt of at least `LATENCY_MAX[i]` ms its broker is avoided for `NOT_AVAILABLE[i]` ms
(client:B-57).
"""
ISOLATION_MS: Final = {"4.9": 30000, "5.x": 10000}
"""The latency assumed for a failed attempt (client:B-58)."""


def rest_ms(latency_ms: float, thresholds: Sequence[int], rests: Sequence[int]) -> int:
    """How long a broker rests after a try of `latency_ms`: the entry of the highest threshold reached.

    >>> rest_ms(16_000, LATENCY_MAX["4.9"], NOT_AVAILABLE["4.9"])
    600000
    """
    for threshold, rest in zip(reversed(thresholds), reversed(rests), strict=True):
        if latency_ms >= threshold:
            return rest
    return 0


@dataclass(slots=True)
class FaultItem:
    """What is known of one broker name: its last latency, when it may be used again, whether it answers."""

    name: str
    latency_ms: float = 0.0
    start_ms: float = 0.0
    reachable: bool = True
    check_ms: float = 0.0

    def is_available(self, now_ms: float) -> bool:
        """Whether it may be used; that it works is not said."""
        return now_ms >= self.start_ms

    def rank(self, now_ms: float) -> tuple[bool, float, float]:
        """Sorts items best first: available, then quick, then back early (client:B-56)."""
        return (not self.is_available(now_ms), self.latency_ms, self.start_ms)


class FaultStrategy:
    """Records the latency of attempts and chooses queues by it."""

    def __init__(
        self,
        *,
        compat: str = "5.x",
        latency_max: Sequence[int] | None = None,
        not_available: Sequence[int] | None = None,
        detector: bool = False,
        rng: random.Random | None = None,
    ) -> None:
        self._old = compat == "4.9"
        self._thresholds = tuple(latency_max or LATENCY_MAX[compat])
        self._rests = tuple(not_available or NOT_AVAILABLE[compat])
        self._isolation_ms = ISOLATION_MS[compat]
        self._detector = detector
        self._rng = rng or random.Random()
        self._turn = self._rng.randrange(2**31)
        self._items: dict[str, FaultItem] = {}

    def __repr__(self) -> str:
        return f"<FaultStrategy {sorted(self._items)}>"

    @property
    def items(self) -> dict[str, FaultItem]:
        """What is known, by broker name."""
        return dict(self._items)

    def note(self, broker: str, latency_ms: float, now_ms: float, error: BaseException | None = None) -> None:
        """A try at `broker` ended after `latency_ms`, with `error` or without (client:B-36 to B-40)."""
        isolated, reachable = False, True
        if isinstance(error, BrokerError):
            isolated, reachable = True, False
        elif isinstance(error, TransportError | NoRoomError):
            isolated, reachable = True, not self._detector
        elif isinstance(error, Exception):
            isolated = self._old  # the client's own fault; 5.x does not blame the broker
        rest = rest_ms(self._isolation_ms if isolated else latency_ms, self._thresholds, self._rests)
        item = self._items.get(broker)
        if item is None:
            item = self._items[broker] = FaultItem(broker)
        item.latency_ms = latency_ms
        item.reachable = reachable
        if self._old or (rest > 0 and now_ms + rest > item.start_ms):
            item.start_ms = now_ms + rest

    def is_available(self, broker: str, now_ms: float) -> bool:
        """Whether `broker` may be used."""
        item = self._items.get(broker)
        return item is None or item.is_available(now_ms)

    def is_reachable(self, broker: str) -> bool:
        """Whether `broker` answered when it was last tried or asked."""
        item = self._items.get(broker)
        return item is None or item.reachable

    def choose(self, info: PublishInfo, last_broker: str | None, now_ms: float) -> SendTarget:
        """The queue to try; `info` must have queues."""
        if self._old:
            return self._choose_old(info, now_ms)
        if last_broker is not None:
            info.shuffle(self._rng)
        for _ in info.targets:
            target = info.next()
            name = target.queue.broker_name
            if name != last_broker and self.is_available(name, now_ms):
                return target
        for _ in info.targets:
            target = info.next()
            name = target.queue.broker_name
            if name != last_broker and self.is_reachable(name):
                return target
        return info.next()

    def _choose_old(self, info: PublishInfo, now_ms: float) -> SendTarget:
        """4.9: the first available in turn, else a queue of one of the better brokers (client:B-60, B-61)."""
        for _ in info.targets:
            target = info.next()
            if self.is_available(target.queue.broker_name, now_ms):
                return target
        name = self.pick_one_at_least(now_ms)
        if name is None:
            return info.next()
        own = [target for target in info.targets if target.queue.broker_name == name]
        if not own:
            del self._items[name]
            return info.next()
        info.next()
        return own[info.index % len(own)]

    def pick_one_at_least(self, now_ms: float) -> str | None:
        """A broker although none is good; None when nothing is known.

        4.9 goes round the better half. 5.x takes any that is reachable (client:B-63).
        """
        items = list(self._items.values())
        if not self._old:
            self._rng.shuffle(items)
            return next((item.name for item in items if item.reachable), None)
        if not items:
            return None
        items.sort(key=lambda item: item.rank(now_ms))
        half = len(items) // 2
        if half == 0:
            return items[0].name
        self._turn = (self._turn + 1) & 0x7FFFFFFF
        return items[self._turn % half].name

    # The detector

    def due(self, now_ms: float, interval_ms: float) -> list[str]:
        """Brokers to be asked now whether they are there; each not again for `interval_ms` (client:B-64)."""
        found = [item for item in self._items.values() if now_ms >= item.check_ms]
        for item in found:
            item.check_ms = now_ms + interval_ms
        return [item.name for item in found]

    def answered(self, broker: str) -> None:
        """`broker` answered: it may be chosen again immediately."""
        if broker in self._items:
            self._items[broker].reachable = True

    def forget(self, broker: str) -> None:
        """`broker` is in no route any more."""
        self._items.pop(broker, None)
