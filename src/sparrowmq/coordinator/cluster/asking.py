"""Asking about many things: a few side by side, for a bounded time, and once for all who want to know."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Final, Generic, Protocol, TypeVar

from sparrowmq.core.errors import NoRouteError, SparrowError

T = TypeVar("T")
ASKED_AT_ONCE: Final = 8
"""Things that are looked at side by side; brokers shall hardly notice."""
LOOK_SECONDS: Final = 30.0
"""How long one look at many things may take; what it did not reach by then has failed."""


async def each(
    names: Iterable[str],
    look: Callable[[str], Awaitable[T]],
    failed: MutableMapping[str, str],
    *,
    seconds: float = LOOK_SECONDS,
    vanish: bool = False,
) -> dict[str, T]:
    """What `look` finds of each name, in their order; why it found nothing goes into `failed`.

    It goes through them in any order, so that with too many for the time another look reaches others. With
    `vanish`, what has no route any more was deleted since and has not failed. Raises what is no
    `SparrowError`.
    """
    wanted = list(dict.fromkeys(names))
    found: dict[str, T] = {}
    ended: set[str] = set()
    waiting = iter(random.sample(wanted, len(wanted)))

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
        text = f"not looked at within {seconds:g} s, like {len(late) - 1} others of {len(wanted)}"
        failed.update(dict.fromkeys(late, text))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return {name: found[name] for name in wanted if name in found}


class Dated(Protocol):
    """What a look found, and when it began, in monotonic seconds."""

    @property
    def at(self) -> float:
        """When it began."""


D = TypeVar("D", bound=Dated)


class Shared(Generic[D]):
    """A look that is made once for all who ask. Whoever asks while one is under way gets that one."""

    def __init__(
        self, look: Callable[[], Awaitable[D]], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._look = look
        self._monotonic = monotonic
        self._last: D | None = None
        self._under_way: asyncio.Task[D] | None = None

    async def get(self, fresh_seconds: float) -> D:
        """What was found at most `fresh_seconds` ago, or a new look finds. Raises what that raises."""
        if self._last is not None and self._monotonic() - self._last.at < fresh_seconds:
            return self._last
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._again(), name="sparrow-look")
        # One who asks and is cancelled takes it from nobody else.
        return await asyncio.shield(self._under_way)

    async def close(self) -> None:
        """Break off what is under way."""
        if self._under_way is not None:
            self._under_way.cancel()
            await asyncio.wait([self._under_way])

    async def _again(self) -> D:
        try:
            self._last = await self._look()
            return self._last
        finally:
            self._under_way = None
