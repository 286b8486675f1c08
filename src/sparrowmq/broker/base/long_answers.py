"""Large answers (tables of many queues or groups) that are built in slices, a few answers at a time.

Without this limit a broker would build all requested answers at once, and a thousand partial tables do not
fit in its memory.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final

from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.transport.slices import finished, shared

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from sparrowmq.transport.connection import Connection

GONE: Final = "the requesting client disconnected"
AT_ONCE: Final = 4
"""Number of answers built at the same time; at most one per connection."""


class LongAnswers:
    """Builds answers; a client with many requests waits for its own, while those of others proceed."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)
        self._locks: dict[int, asyncio.Lock] = {}
        self._users: Counter[int] = Counter()

    def __repr__(self) -> str:
        return f"<LongAnswers for {len(self._locks)} connections>"

    def begin(
        self, connection: Connection, steps: Generator[object, None, Command]
    ) -> Command | Awaitable[Command]:
        """The answer that `steps` return; at once where no loop runs. Raises the exceptions of the steps."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return finished(steps)
        return self._made(connection, steps)

    async def _made(self, connection: Connection, steps: Generator[object, None, Command]) -> Command:
        key = id(connection)
        lock = self._locks.setdefault(key, asyncio.Lock())
        self._users[key] += 1
        try:
            async with lock, self._places:
                if connection.closed:
                    return Command(ResponseCode.SYSTEM_BUSY, flag=FLAG_RESPONSE, remark=GONE)
                return await shared().result(steps)
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key], self._locks[key]
