"""Calls that wait for answers: matching by opaque, deadlines, and the limit of calls in flight.

Deadlines share timers: calls that expire in the same slot of 50 ms are in one list with one timer, so a call
needs no separate timer and ends at most one slot late.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from sparrowmq.core.errors import (
    ConnectionLostError,
    NoRoomError,
    RequestTimeoutError,
)
from sparrowmq.protocol.codes import request_name
from sparrowmq.protocol.frame import Command

SLOTS_PER_SECOND: Final = 20
OPAQUE_MAX: Final = 0x7FFFFFFF


class OpaqueCounter:
    """Correlation numbers: 0 to 2^31 - 1, then from 0 again."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """The next number."""
        opaque = self._next
        self._next = (opaque + 1) & OPAQUE_MAX
        return opaque


class InFlight:
    """The limit of calls in flight, and the waiting callers in order of arrival."""

    __slots__ = ("_waiters", "limit", "used")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiters: deque[asyncio.Future[None]] = deque()

    def try_acquire(self) -> bool:
        """Acquire a place if one is free."""
        if self.used >= self.limit:
            return False
        self.used += 1
        return True

    async def acquire(self, deadline: float) -> None:
        """Acquire a place, waiting until `deadline` (loop time). Raises `NoRoomError` after it."""
        if self.try_acquire():
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled():
                self.release()
            if isinstance(error, TimeoutError):
                raise NoRoomError(
                    f"{self.limit} requests are already in flight and none ended in time; send more slowly",
                    limit=self.limit,
                ) from None
            raise

    def release(self) -> None:
        """Release a place: to the first waiting caller, if any."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self.used -= 1


class PendingCalls:
    """The calls in flight of one connection.

    A cancelled call counts as in flight until its response or deadline, because the server may still execute
    it.
    """

    def __init__(
        self,
        peer: str,
        in_flight: InFlight,
        loop: asyncio.AbstractEventLoop,
        on_expired: Callable[[float], None] | None = None,
    ) -> None:
        """`on_expired` is called after calls expired, with the age of the oldest in seconds."""
        self._peer = peer
        self._own = ""
        self._in_flight = in_flight
        self._loop = loop
        self._on_expired = on_expired
        self._waiting: dict[int, tuple[asyncio.Future[Command], int, float, float]] = {}
        self._slots: dict[int, tuple[list[int], asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def connected_from(self, own: str) -> None:
        """This end's `host:port`: errors name it, as servers do in their logs."""
        self._own = own

    def start(self, opaque: int, timeout: float, code: int, waited: float = 0.0) -> asyncio.Future[Command]:
        """A future for the answer to `opaque`; the caller has acquired a place.

        `timeout` in seconds, of which `waited` have passed.
        """
        future: asyncio.Future[Command] = self._loop.create_future()
        self._waiting[opaque] = (future, code, timeout, waited)
        slot = int((self._loop.time() + timeout - waited) * SLOTS_PER_SECOND) + 1
        held = self._slots.get(slot)
        if held is None:
            timer = self._loop.call_at(slot / SLOTS_PER_SECOND, self._expire, slot)
            self._slots[slot] = ([opaque], timer)
        else:
            held[0].append(opaque)
        return future

    def resolve(self, answer: Command) -> bool:
        """Pass a response to its call. False when no call waits for it."""
        entry = self._waiting.pop(answer.opaque, None)
        if entry is None:
            return False
        self._in_flight.release()
        if not entry[0].done():
            entry[0].set_result(answer)
        return True

    def fail(self, reason: str) -> None:
        """End every call with `ConnectionLostError`."""
        for _, timer in self._slots.values():
            timer.cancel()
        self._slots.clear()
        waiting, self._waiting = self._waiting, {}
        for opaque, (future, code, _, _) in waiting.items():
            self._in_flight.release()
            if not future.done():
                future.set_exception(
                    ConnectionLostError(
                        f"the connection to {self._peer} closed ({reason}) before request "
                        f"{self._name(opaque, code)} was answered; the request may or may not have been "
                        f"executed",
                        address=self._peer,
                        value=code,
                    )
                )

    def _name(self, opaque: int, code: int) -> str:
        return f"{request_name(code)} number {opaque}" + (f" of {self._own}" if self._own else "")

    def _expire(self, slot: int) -> None:
        opaques, _ = self._slots.pop(slot)
        out = 0.0
        for opaque in opaques:
            entry = self._waiting.pop(opaque, None)
            if entry is None:
                continue
            future, code, timeout, waited = entry
            out = max(out, timeout - waited)
            self._in_flight.release()
            if not future.done():
                future.set_exception(
                    RequestTimeoutError(
                        f"no answer from {self._peer} to request {self._name(opaque, code)} within "
                        f"{timeout:.3g} s; the request may or may not have been executed",
                        address=self._peer,
                        value=code,
                        limit=timeout,
                    )
                )
        if out and self._on_expired is not None:
            self._on_expired(out)
