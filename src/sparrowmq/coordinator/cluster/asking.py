"""Queries about many things: a few in parallel, with a time limit, and shared by all callers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Final, Generic, Protocol, TypeVar

from sparrowmq.core.errors import NoRouteError, SparrowError
from sparrowmq.core.randomness import RANDOM

T = TypeVar("T")
REST_SECONDS_MAX: Final = 30.0
ASKED_AT_ONCE: Final = 8
"""Number of concurrent queries; brokers should hardly notice them."""
LOOK_SECONDS: Final = 30.0
"""Time limit of one query of many things; those not reached by then have failed."""


async def each(
    names: Iterable[str],
    look: Callable[[str], Awaitable[T]],
    failed: MutableMapping[str, str],
    *,
    seconds: float = LOOK_SECONDS,
    vanish: bool = False,
) -> dict[str, T]:
    """The results of `look` for the names, in their order; errors are put into `failed`.

    Names are processed in random order, so that if time runs out, the next call reaches others. With
    `vanish`, a name without a route was deleted in the meantime and does not count as failed. Raises errors
    other than `SparrowError`.
    """
    wanted = list(dict.fromkeys(names))
    found: dict[str, T] = {}
    ended: set[str] = set()
    waiting = iter(RANDOM.sample(wanted, len(wanted)))

    async def work() -> None:
        for name in waiting:
            try:
                found[name] = await look(name)
            except SparrowError as error:
                if not (vanish and isinstance(error, NoRouteError)):
                    failed[name] = str(error)
            ended.add(name)

    tasks = [asyncio.create_task(work()) for _ in range(min(ASKED_AT_ONCE, len(wanted)))]
    try:
        async with asyncio.timeout(seconds):
            await asyncio.gather(*tasks)
    except TimeoutError:
        late = [name for name in wanted if name not in ended]
        text = f"not checked within {seconds:g} s, as {len(late) - 1} others of {len(wanted)}"
        failed.update(dict.fromkeys(late, text))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {name: found[name] for name in wanted if name in found}


class Dated(Protocol):
    """The result of a query, and when the query began, in monotonic seconds."""

    @property
    def at(self) -> float:
        """When it began."""


D = TypeVar("D", bound=Dated)


class SharedAnswer(Generic[D]):
    """A query shared by all callers. Calls during a running query wait for that one."""

    def __init__(
        self,
        look: Callable[[], Awaitable[D]],
        monotonic: Callable[[], float] = time.monotonic,
        *,
        rest: float = 0.0,
    ) -> None:
        """After a query there is a pause of `rest` times its duration, at most `REST_SECONDS_MAX`."""
        self._look = look
        self._monotonic = monotonic
        self._rest = rest
        self._took = 0.0
        self._last: D | None = None
        self._under_way: asyncio.Task[D] | None = None

    async def get(self, fresh_seconds: float) -> D:
        """A result at most `fresh_seconds` old, or that of a new query. Raises its errors."""
        fresh = max(fresh_seconds, min(REST_SECONDS_MAX, self._rest * self._took))
        if self._last is not None and self._monotonic() - self._last.at < fresh:
            return self._last
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._again(), name="sparrow-look")
            self._under_way.add_done_callback(_seen)
        # a cancelled caller does not cancel it for others
        return await asyncio.shield(self._under_way)

    @property
    def last(self) -> D | None:
        """The last result, however old."""
        return self._last

    def forget(self) -> None:
        """Mark the result as outdated: the next call runs a new query."""
        self._last = None

    async def close(self) -> None:
        """Cancel the running query."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait([self._under_way])

    async def _again(self) -> D:
        begun = self._monotonic()
        try:
            self._last = await self._look()
            self._took = self._monotonic() - begun
            return self._last
        finally:
            self._under_way = None


def _seen(task: asyncio.Task[D]) -> None:
    """All callers may have left before the query failed: then nobody handles its error."""
    if not task.cancelled():
        task.exception()
