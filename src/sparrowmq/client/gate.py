"""The bound on sends in flight, in number and bytes: callers wait in order until there is room."""

from __future__ import annotations

import asyncio
from collections import deque

from sparrowmq.core.errors import TooManyRequestsError


class Gate:
    """Counts what is in flight. Used on one event loop.

    A single item larger than `bytes_max` passes when nothing else is in flight, so it cannot wait for ever.
    """

    __slots__ = ("_bytes_max", "_count_max", "_drained", "_waiting", "bytes", "count")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._waiting: deque[tuple[asyncio.Future[None], int]] = deque()
        self._drained: asyncio.Event | None = None
        self.count = 0
        self.bytes = 0

    @property
    def waiting(self) -> int:
        """Callers that wait for room."""
        return len(self._waiting)

    def try_enter(self, size: int) -> bool:
        """Take room for `size` bytes if there is some and nobody waits."""
        if self._waiting or not self._has_room(size):
            return False
        self.count += 1
        self.bytes += size
        return True

    async def enter(self, size: int, timeout: float) -> None:
        """Take room, waiting up to `timeout` seconds. Raises `TooManyRequestsError` after that."""
        if self.try_enter(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (turn, size)
        self._waiting.append(entry)
        try:
            await asyncio.wait_for(turn, max(0.0, timeout))
        except TimeoutError:
            self._give_up(entry)
            raise TooManyRequestsError(
                f"{self.count} sends ({self.bytes} bytes) are in flight, limits {self._count_max} and "
                f"{self._bytes_max} bytes, and none ended within {timeout:.3f} s; send less at once or raise "
                "in_flight_max"
            ) from None
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size)
            self._give_up(entry)
            raise

    def leave(self, size: int) -> None:
        """Give room back and let waiting callers in."""
        self.count -= 1
        self.bytes -= size
        if self._waiting:
            self._admit()
        if self._drained is not None and not self.count:
            self._drained.set()

    async def drain(self, timeout: float) -> bool:
        """Wait until nothing is in flight, up to `timeout` seconds; whether that was reached."""
        if not self.count:
            return True
        self._drained = asyncio.Event()
        try:
            await asyncio.wait_for(self._drained.wait(), timeout)
        except TimeoutError:
            return False
        finally:
            self._drained = None
        return True

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
