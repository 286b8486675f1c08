"""The limit of sends in flight, in number and bytes: callers wait in order until there is room.

It also tracks sends that are not in flight yet or between two attempts, so that closing can wait for all of
them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from sparrowmq.core.errors import InvariantError, NoRoomError


class Gate:
    """Counts sends in flight. Used on one event loop.

    A single send larger than `bytes_max` passes when nothing else is in flight, so it cannot wait forever.
    """

    __slots__ = ("_bytes_max", "_coming", "_count_max", "_drained", "_waiting", "bytes", "count")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._drained: asyncio.Event | None = None
        self._coming = 0
        self.count = 0
        self.bytes = 0

    @property
    def waiting(self) -> int:
        """The number of callers that wait for room."""
        return len(self._waiting)

    @property
    def unfinished(self) -> int:
        """A lower bound of the sends in flight or announced; some are both."""
        return max(self.count, self._coming)

    def try_enter(self, size: int) -> bool:
        """Take room for `size` bytes if it is available and no caller waits."""
        if self._waiting or not self._has_room(size):
            return False
        self.count += 1
        self.bytes += size
        return True

    async def enter(self, size: int, timeout: float) -> None:
        """Take room, waiting up to `timeout` seconds. Raises `NoRoomError` after that."""
        if self.try_enter(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (turn, size)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(max(0.0, timeout)):
                await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # room became available at the same moment
            self._give_up(entry)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise NoRoomError(
                f"{self.count} sends ({self.bytes} bytes) are in flight, limits {self._count_max} and "
                f"{self._bytes_max} bytes, and none ended within {timeout:.3f} s; send less at once or raise "
                "in_flight_max",
                limit=self._count_max,
            ) from None

    def leave(self, size: int) -> None:
        """Return room and admit waiting callers. Raises `InvariantError` for room that was not taken."""
        if self.count < 1 or self.bytes < size:
            text = f"{size} bytes are released, but {self.count} sends hold {self.bytes} bytes"
            raise InvariantError(text, what="bytes", value=size, limit=self.bytes)
        self.count -= 1
        self.bytes -= size
        if self._waiting:
            self._admit()
        if self._drained is not None:
            self._note_drained()

    def announce(self) -> None:
        """Announce a send that may enter several times: `drain` waits until it is withdrawn."""
        self._coming += 1

    def withdraw(self) -> None:
        """Withdraw an announced send, because it has ended."""
        self._coming -= 1
        self._note_drained()

    @contextmanager
    def coming(self) -> Iterator[None]:
        """Announce a send for the duration of the block."""
        self.announce()
        try:
            yield
        finally:
            self.withdraw()

    async def drain(self, timeout: float) -> bool:
        """Wait until nothing is in flight or announced, up to `timeout` seconds. Returns whether that was
        reached. Several callers may wait.
        """
        try:
            async with asyncio.timeout(timeout):
                while self.count or self._coming:
                    self._drained = self._drained or asyncio.Event()
                    await self._drained.wait()
        except TimeoutError:
            return False
        return True

    def _note_drained(self) -> None:
        if self._drained is not None and not self.count and not self._coming:
            self._drained.set()
            self._drained = None

    def _has_room(self, size: int) -> bool:
        return self.count < self._count_max and (self.bytes + size <= self._bytes_max or not self.count)

    def _admit(self) -> None:
        while self._waiting:
            turn, size = self._waiting[0]
            if not turn.done():
                if not self._has_room(size):
                    return
                self.count += 1
                self.bytes += size
                turn.set_result(None)
            self._waiting.popleft()

    def _give_up(self, entry: tuple[asyncio.Future[None], int]) -> None:
        if entry in self._waiting:
            self._waiting.remove(entry)
            self._admit()
