"""The newest messages of topics; one query serves all callers, and runs only while there are any."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sparrowmq.aio import Admin, PullConsumer
from sparrowmq.coordinator.cluster.asking import SharedAnswer
from sparrowmq.coordinator.cluster.bodies.unpacking import cost_of, heads
from sparrowmq.coordinator.cluster.message_search import MessageSearch, newest
from sparrowmq.coordinator.cluster.room import Room
from sparrowmq.core.clock import Clock
from sparrowmq.core.message import ReceivedMessage

FRESH_SECONDS: Final = 2.0
TAILS_MAX: Final = 64
"""Number of requests whose last result is kept."""
KEPT_BYTES: Final = 2 * 1024 * 1024
"""Maximum number of bytes of the kept messages of one result, without bodies; older ones are left out."""


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest messages, the newest first, from a query that began at `looked_ms`. Their bodies are
    cut to `unpacking.HEAD_BYTES`; `sizes` are those of the whole ones. `failed` as in `SearchResult`.
    """

    messages: Sequence[ReceivedMessage]
    sizes: Sequence[int]
    failed: Mapping[str, str]
    looked_ms: int
    at: float


@dataclass(slots=True)
class Tails:
    """Queries the newest messages."""

    admin: Callable[[], Awaitable[Admin]]
    reader: Callable[[], Awaitable[PullConsumer]]
    clock: Clock
    looks: Room
    _looks: OrderedDict[tuple[str, ...], SharedAnswer[Newest]] = field(default_factory=OrderedDict)

    async def newest(self, wish: MessageSearch) -> Newest:
        """A result at most `FRESH_SECONDS` old. Raises the errors of the query."""
        key = (wish.topic, type(wish.expression).__name__, str(wish.expression), str(wish.count))
        if key not in self._looks:
            self._looks[key] = SharedAnswer(lambda: self._look(wish), self.clock.monotonic)
        self._looks.move_to_end(key)
        while len(self._looks) > TAILS_MAX:
            await self._looks.popitem(last=False)[1].close()
        return await self._looks[key].get(FRESH_SECONDS)

    async def close(self) -> None:
        """Cancel running queries."""
        while self._looks:
            await self._looks.popitem()[1].close()

    async def _look(self, wish: MessageSearch) -> Newest:
        now, monotonic = self.clock.now_ms(), self.clock.monotonic
        async with self.looks.place(None):
            found = await newest(await self.admin(), await self.reader(), wish, monotonic=monotonic)
            messages, sizes = await heads(_kept(found.messages))
        return Newest(messages, sizes, found.failed, now, found.at)


def _kept(messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
    """The first ones, of `KEPT_BYTES` without their bodies. Pure."""
    size = 0
    for number, one in enumerate(messages):
        size += cost_of(one) - len(one.body)
        if number and size > KEPT_BYTES:
            return messages[:number]
    return messages
