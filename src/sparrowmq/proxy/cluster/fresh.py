"""Values by key that are fetched again after some seconds, with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Final, Generic, TypeVar

from sparrowmq.core.clock import Clock

ENTRIES_MAX: Final = 20_000

V = TypeVar("V")


class Fresh(Generic[V]):
    """Values of `fetch` by key, at most `seconds` old. Concurrent calls for one key share one fetch.

    Errors are not kept. Above `ENTRIES_MAX` keys the oldest value is dropped.
    """

    def __init__(
        self, fetch: Callable[[str], Coroutine[Any, Any, V]], clock: Clock, *, seconds: float
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._seconds = seconds
        self._values: dict[str, tuple[float, V]] = {}
        self._running: dict[str, asyncio.Future[V]] = {}

    async def get(self, key: str) -> V:
        """The value for `key`."""
        found = self._values.get(key)
        if found is not None and found[0] > self._clock.monotonic():
            return found[1]
        running = self._running.get(key)
        if running is None:
            # In a separate context: a value for several callers is not fetched with the account of one.
            running = asyncio.get_running_loop().create_task(self._fetch(key), context=Context())
            self._running[key] = running
            running.add_done_callback(lambda done: self._fetched(key, done))
        return await asyncio.shield(running)

    def known(self, key: str) -> V | None:
        """The value for `key` if it is kept; None when it must be fetched."""
        found = self._values.get(key)
        return found[1] if found is not None and found[0] > self._clock.monotonic() else None

    def _fetched(self, key: str, done: asyncio.Future[V]) -> None:
        del self._running[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._values.pop(key, None)
        if len(self._values) >= ENTRIES_MAX:
            del self._values[next(iter(self._values))]
        self._values[key] = (self._clock.monotonic() + self._seconds, done.result())

    def forget(self, key: str) -> None:
        """Fetch the value for `key` again when it is next needed."""
        self._values.pop(key, None)
