"""Renewal of invisible times: messages received with `auto_renew` stay hidden while their client lives.

The proxy keeps these times in memory. If they are lost, the messages are delivered again after at most the
time for which a renewal hides them. When the proxy restarts, clients whose stream ended may take minutes to
reconnect. Until then, the messages that they receive are hidden once and not renewed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from sparrowmq.core.clock import Clock
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.proxy.base.handles import ReceiptHandle
from sparrowmq.proxy.base.limits import NACK_INVISIBLE_MS, RENEWED_INVISIBLE_MS
from sparrowmq.proxy.cluster.brokers import Brokers, is_moved
from sparrowmq.proxy.cluster.pop import Received

_log = logging.getLogger("sparrowmq.proxy")
ROUND_SECONDS: Final = 5.0
AHEAD_MS: Final = 10_000
"""A message is renewed when its invisible time ends within this time."""
RENEWED_MS_MAX: Final = 3 * 3600 * 1000
"""A message is renewed for at most this time; then it is delivered again."""
STEPS_MS: Final = (60_000, 180_000, 300_000, 600_000, 1_800_000)
"""For how long the first, second and so on renewal hides a message."""
TRIES_MAX: Final = 3
AT_ONCE: Final = 32
"""Renewals at one broker at one time."""
HELD_MAX: Final = 100_000
"""Maximum number of messages that are renewed; further messages are not renewed."""


Key = tuple[str, str, str]
"""A client, a group, and the handle that the client has."""


@dataclass(slots=True)
class _Held:
    """One message that a client has: its current handle, and since when."""

    topic: str
    group: str
    handle: ReceiptHandle
    since_ms: int
    times: int = 0
    tries: int = 0
    refused: bool = False
    """Whether the broker's last answer was an error."""
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a renewal runs; afterwards only the new handle is valid."""


class Ending(NamedTuple):
    """The present handle of a message, and what to call if what the client said about it was not taken."""

    text: str
    failed: Callable[[], None]


def _nothing() -> None:
    """The message is not renewed."""


class Renewing:
    """The messages whose invisible time is renewed, by client, group and the handle that the client has."""

    def __init__(self, brokers: Brokers, is_connected: Callable[[str], bool], clock: Clock) -> None:
        self._brokers = brokers
        self._is_connected = is_connected
        self._clock = clock
        self._held: dict[Key, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def renews_for(self, client_id: str) -> bool:
        """Whether a client is connected by telemetry; otherwise the proxy would not notice that
        it has left.
        """
        return self._is_connected(client_id)

    def end_now(self, client_id: str, group: str, text: str) -> Ending | None:
        """The same as `ending` without a wait; None while a renewal of the message runs."""
        key = (client_id, group, text)
        held = self._held.get(key)
        if held is None:
            return Ending(text, _nothing)
        if held.busy.locked():
            return None
        del self._held[key]
        return Ending(held.handle.encode(), partial(self._held.__setitem__, key, held))

    def begin(self, client_id: str, topic: str, group: str, found: Sequence[Received]) -> None:
        """Keep messages hidden for a client."""
        now = self._clock.now_ms()
        for one in found:
            if len(self._held) < HELD_MAX:
                key = (client_id, group, one.handle.encode())
                self._held[key] = _Held(topic, group, one.handle, now)

    @asynccontextmanager
    async def ending(self, client_id: str, group: str, text: str) -> AsyncGenerator[str, None]:
        """Stop renewing while a client's request about a message runs; `text` is the client's handle. Gives
        the message's current handle. If the request fails, renewing continues, so that the client may repeat
        it.
        """
        key = (client_id, group, text)
        held = self._held.pop(key, None)
        if held is None:
            yield text
            return
        try:
            async with held.busy:
                present = held.handle.encode()
            yield present
        except BaseException:
            self._held[key] = held
            raise

    async def round(self) -> None:
        """Renew invisible times that end soon; release the messages of clients that have left.

        Each broker on its own, and one that does not answer is left until the next round: the messages of
        other brokers do not wait for it.
        """
        due: defaultdict[str, deque[Key]] = defaultdict(deque)
        soon = self._clock.now_ms() + AHEAD_MS
        for key, held in self._held.items():
            if held.handle.visible_ms <= soon or not self._is_connected(key[0]):
                due[held.handle.receipt.broker_name].append(key)
        await asyncio.gather(
            *(self._work(keys) for keys in due.values() for _ in range(min(AT_ONCE, len(keys))))
        )

    async def _work(self, keys: deque[Key]) -> None:
        """One of several workers for the messages of a broker."""
        while keys:
            key = keys.popleft()
            held = self._held.get(key)
            if held is None:
                continue  # ended meanwhile
            if not self._is_connected(key[0]):
                del self._held[key]
                answered = await self._hide(held, NACK_INVISIBLE_MS) is not None
            else:
                answered = await self._renew(key, held)
            if not answered and not held.refused:
                keys.clear()

    async def _renew(self, key: Key, held: _Held) -> bool:
        """Whether the broker answered."""
        if held.tries >= TRIES_MAX or self._clock.now_ms() - held.since_ms >= RENEWED_MS_MAX:
            self._held.pop(key, None)
            return True
        step = STEPS_MS[min(held.times, len(STEPS_MS) - 1)]
        async with held.busy:
            changed = await self._hide(held, max(step, RENEWED_INVISIBLE_MS))
            if changed is None:
                held.tries += 1
                return False
            held.handle, held.times, held.tries = changed, held.times + 1, 0
        return True

    async def _hide(self, held: _Held, millis: int) -> ReceiptHandle | None:
        """Hide a message again; None if the broker does not do it now."""
        try:
            address = await self._brokers.master_for(held.handle.receipt.broker_name, held.topic)
            return await self._brokers.change_invisible(address, held.topic, held.group, held.handle, millis)
        except SparrowError as error:
            held.refused = isinstance(error, BrokerError)
            if held.refused and not is_moved(error):
                held.tries = TRIES_MAX
            _log.info("the invisible time of a message of %s was not renewed: %s", held.topic, error)
            return None
