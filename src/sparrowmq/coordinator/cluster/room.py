"""Places for what takes much memory: so many at once, and so many of one person."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sparrowmq.core.errors import RefusedError


class Room:
    """Places that are taken and given back. Who finds none waits for a limited time."""

    def __init__(self, what: str, most: int, of_one: int, seconds: float, retry_seconds: int) -> None:
        """`most` places, `of_one` for one person; a caller that has waited for `seconds` gets an error that
        says to try again after `retry_seconds`. `what` takes them, in the plural.
        """
        self._what, self._most, self._of_one = what, most, of_one
        self._seconds, self._retry_seconds = seconds, retry_seconds
        self._taken: Counter[str | None] = Counter()
        self._waiting: set[asyncio.Future[None]] = set()

    def __repr__(self) -> str:
        return f"<Room {self._taken.total()} of {self._most} {self._what}>"

    @property
    def taken(self) -> int:
        """Places that are taken now."""
        return self._taken.total()

    @asynccontextmanager
    async def place(self, person: str | None) -> AsyncIterator[None]:
        """A place of a person; None for work that several users share.

        Raises `RefusedError`, which names the limit: 429 when the person has all that one may have, 503 when
        all are taken.
        """
        await self._enter(person)
        try:
            yield
        finally:
            self._taken[person] -= 1
            for waiter in self._waiting:
                if not waiter.done():
                    waiter.set_result(None)  # all check again: the place may be of no use to the first

    async def _enter(self, person: str | None) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._seconds
        while (refused := self._refused(person)) is not None:
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiting.add(waiter)
            try:
                async with asyncio.timeout_at(until):
                    await waiter
            except TimeoutError:
                raise refused from None
            finally:
                self._waiting.discard(waiter)
        self._taken[person] += 1

    def _refused(self, person: str | None) -> RefusedError | None:
        what, again = self._what, f"try again in {self._retry_seconds} s"
        if person is not None and self._taken[person] >= self._of_one:
            text = f"{person} has {self._taken[person]} {what} in progress and the limit for one user is "
            return RefusedError(
                f"{text}{self._of_one}; {again}", status=429, retry_seconds=self._retry_seconds
            )
        if self.taken >= self._most:
            text = f"{self.taken} {what} are in progress and the limit is {self._most}; {again}"
            return RefusedError(text, status=503, retry_seconds=self._retry_seconds)
        return None
