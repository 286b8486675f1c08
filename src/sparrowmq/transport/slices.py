"""Long work in short slices of the loop, so that one client does not delay others.

    def tell_all() -> Iterator[None]:
        for client in clients:
            client.notify(...)
            yield

    shared().run(tell_all())

The work begins immediately. When all sliced work has used `TURN_SECONDS` of this turn of the loop, it waits
for the next turn, and the work of several callers alternates. So all long work of a loop goes through its one
`shared()` object.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from math import inf
from time import perf_counter
from typing import Final, Generic, TypeVar, cast
from weakref import WeakKeyDictionary

from sparrowmq.transport.occasional import OccasionalLog

logger = logging.getLogger("sparrowmq.transport")

TURN_SECONDS: Final = 0.005
"""How long sliced work may take in one turn of the loop; a started step is completed."""

_END: Final = object()

T = TypeVar("T")


class Slices:
    """Runs works, which are iterators, step by step on the running loop.

    A step should take well below a millisecond. An exception after the first turn is logged and ends that
    work. Without a running loop, work is done immediately.
    """

    def __init__(
        self, *, turn_seconds: float = TURN_SECONDS, clock: Callable[[], float] = perf_counter
    ) -> None:
        self._turn_seconds = turn_seconds
        self._clock = clock
        self._waiting: deque[Iterator[object]] = deque()
        self._planned = False
        self._until = 0.0
        self._occasional = OccasionalLog(logger)

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, steps: Iterator[object]) -> None:
        """Start the work now, as far as this turn allows and no other work waits; continue in later turns."""
        if not self._planned:
            self._begin()
        if not self._waiting:
            while self._clock() < self._until:
                if next(steps, _END) is _END:
                    return
        self._waiting.append(steps)

    def finish(self, steps: Generator[object, None, T]) -> T | Awaitable[T]:
        """Do work in the same way. Returns its result if it is done immediately, otherwise an awaitable.

        Raises the work's exceptions. If the waiting caller is cancelled, the work ends after its current
        step.
        """
        outcome = _Outcome[T]()
        self.run(outcome.of(steps))
        return outcome.given()

    async def result(self, steps: Generator[object, None, T]) -> T:
        """The same, always awaited."""
        found = self.finish(steps)
        return await found if isinstance(found, asyncio.Future) else cast("T", found)

    def clear(self) -> None:
        """Drop all waiting work."""
        self._waiting.clear()

    def _begin(self) -> None:
        """The first sliced work of this turn."""
        try:
            asyncio.get_running_loop().call_soon(self._turn)
        except RuntimeError:
            self._until = inf
            return
        self._planned = True
        self._until = self._clock() + self._turn_seconds

    def _turn(self) -> None:
        self._planned = False
        waiting = self._waiting
        if not waiting:
            return
        self._begin()
        while waiting:
            steps = waiting.popleft()
            try:
                if next(steps, _END) is not _END:
                    waiting.append(steps)
            except Exception as error:
                text = "error in background work"
                self._occasional.write(logging.ERROR, type(error).__name__, text, error=error)
            if self._clock() >= self._until:
                return


class _Outcome(Generic[T]):
    """The result of work, or a future for a waiting caller."""

    def __init__(self) -> None:
        self._future: asyncio.Future[T] | None = None
        self._values: list[T] = []
        self._error: Exception | None = None

    def of(self, steps: Generator[object, None, T]) -> Iterator[object]:
        """The work, to be run."""
        while self._future is None or not self._future.done():
            try:
                step = next(steps)
            except StopIteration as end:
                self._end([end.value], None)
                return
            except Exception as error:
                self._end([], error)
                return
            yield step

    def _end(self, values: list[T], error: Exception | None) -> None:
        self._values, self._error = values, error
        if self._future is not None and not self._future.done():
            if error is None:
                self._future.set_result(values[0])
            else:
                self._future.set_exception(error)

    def given(self) -> T | asyncio.Future[T]:
        """The work's result or exception, or a future of it."""
        if self._error is not None:
            raise self._error
        if self._values:
            return self._values[0]
        self._future = asyncio.get_running_loop().create_future()
        return self._future


class PerTurn:
    """Limits an action to `most` times per turn of the loop; unlimited without a loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0

    def take(self) -> bool:
        """Whether it may be done once more in this turn."""
        if self._done == 0:
            try:
                asyncio.get_running_loop().call_soon(self._next_turn)
            except RuntimeError:
                return True
        if self._done >= self._most:
            return False
        self._done += 1
        return True

    def _next_turn(self) -> None:
        self._done = 0


class TurnGate:
    """Lets coroutines pass in their order, `most` of their weights in each turn of the loop.

    It is for work that cannot be cut into steps: what comes after `passed` until the next `await`.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._planned = False
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def passed(self, weight: int) -> None:
        """Return in a turn that has room; a weight above the limit has a turn of its own."""
        if self._waiting or (self._used and self._used + weight > self._most):
            future = asyncio.get_running_loop().create_future()
            self._waiting.append((weight, future))
            await future
            return
        self._used += weight
        self._plan()

    def _plan(self) -> None:
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._planned, self._used = False, 0
        while self._waiting:
            weight, future = self._waiting[0]
            if self._used and self._used + weight > self._most:
                break
            self._waiting.popleft()
            if not future.done():  # its caller was not cancelled
                future.set_result(None)
                self._used += weight
        if self._used:
            self._plan()


_shared: WeakKeyDictionary[asyncio.AbstractEventLoop, Slices] = WeakKeyDictionary()


def shared() -> Slices:
    """The `Slices` of the running loop; without a running loop, one that does everything immediately."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return Slices()
    found = _shared.get(loop)
    if found is None:
        found = _shared[loop] = Slices()
    return found


def finished(steps: Generator[object, None, T]) -> T | Awaitable[T]:
    """`Slices.finish` of the running loop's."""
    return shared().finish(steps)
