"""The states of client objects, and the allowed transitions (client:A.4)."""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from types import TracebackType
from typing import Final, NoReturn, Self

from sparrowmq.core.errors import ClientError, GroupTakenError, InvalidStateError

log = logging.getLogger("sparrowmq.client")


class State(Enum):
    """The state of a producer, consumer or admin client."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """The start failed, or a background task ended with an error; it can only be closed."""
    CLOSING = "closing"
    CLOSED = "closed"


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.CREATED: frozenset({State.STARTING, State.CLOSED}),
    State.STARTING: frozenset({State.RUNNING, State.FAILED, State.CREATED}),  # back: name taken (client:A-31)
    State.RUNNING: frozenset({State.FAILED, State.CLOSING}),
    State.FAILED: frozenset({State.CLOSING, State.CLOSED}),
    State.CLOSING: frozenset({State.CLOSED}),
    State.CLOSED: frozenset(),
}

_UNDER_WAY: Final = (State.STARTING, State.CLOSING)


class Lifecycle:
    """The state of one object; errors call it `name`.

    In a forked child the parent's objects are closed, because their tasks and connections belong to the
    parent. Sends and deliveries do not check for this.
    """

    __slots__ = ("__weakref__", "_parent", "_waiting", "name", "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.CREATED
        self._parent: int | None = None
        self._waiting: list[asyncio.Future[None]] = []
        _lives.add(self)

    def to(self, state: State) -> None:
        """Change to `state`. Raises `InvalidStateError` if the transition is not allowed."""
        self._need_own_process()
        if state not in TRANSITIONS[self.state]:
            text = f"{self.name} is {self.state.value} and cannot become {state.value}"
            raise InvalidStateError(text, what=state.value, value=self.state.value)
        self.state = state
        if state not in _UNDER_WAY:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Start the object in the `with` block: it is running after it, failed after an error, and not
        started if its group is taken. A background task may have failed meanwhile.
        """
        self.to(State.STARTING)
        after = State.FAILED
        try:
            yield
            after = State.RUNNING
        except GroupTakenError:
            after = State.CREATED
            raise
        finally:
            if self.state is State.STARTING:
                self.to(after)

    async def close(self, end: Callable[[], Awaitable[None]]) -> None:
        """Close the object; `end` runs once, if it was started. Waits for a start or close in progress."""
        await self.settled()
        if self.state is State.CREATED:
            self.to(State.CLOSED)
        if self.state in (State.RUNNING, State.FAILED):
            self.to(State.CLOSING)
            try:
                await end()
            finally:
                self.to(State.CLOSED)

    async def settled(self) -> None:
        """Wait until a start or close in progress has ended, successfully or not."""
        while self.state in _UNDER_WAY:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def task_died(self, task: str, error: BaseException) -> ClientError:
        """Log the error with which a background task ended; returns the error for the object's users."""
        log.error("the background task %r of %s died", task, self.name, exc_info=error)
        failure = ClientError(
            f"{self.name} stopped because its background task {task!r} died: {type(error).__name__}: "
            f"{error}; close it and create a new one",
            what="task",
            value=task,
        )
        failure.__cause__ = error
        return failure

    def need_running(self) -> None:
        """Raises `InvalidStateError` unless running."""
        if self.state is State.RUNNING:
            return
        self._need_own_process()
        if self.state is State.CREATED:
            advice = "start it first: `async with` or start()"
        elif self.state in (State.CLOSING, State.CLOSED):
            advice = "make a new one"
        else:
            advice = "see the error that stopped it, close it and create a new one"
        text = f"{self.name} is {self.state.value}; {advice}"
        raise InvalidStateError(text, what="running", value=self.state.value)

    def forked(self) -> None:
        """Mark this copy in a forked child as closed. One that was not started may be used."""
        if self.state is State.CREATED:
            return
        self.state = State.CLOSED
        self._parent = os.getppid()

    def _need_own_process(self) -> None:
        if self._parent is not None:
            raise InvalidStateError(
                f"{self.name} was created in another process (pid {self._parent}, this is {os.getpid()}); "
                f"create a new one here",
                what="process",
                value=self._parent,
            )


class NotPickled:
    """It has connections, which cannot be copied or sent to another process."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"cannot pickle or copy {type(self).__name__!r} object: it has connections; create one in each "
            f"process, for example within the function that a Spark task or a worker runs"
        )


class ClientObject(NotPickled, ABC):
    """A producer, consumer or admin client: started and closed, also by `async with`."""

    _life: Lifecycle

    @property
    def state(self) -> State:
        """The lifecycle state; FAILED when the start or a background task failed."""
        return self._life.state

    @abstractmethod
    async def start(self) -> None:
        """Start, once."""

    @abstractmethod
    async def close(self) -> None:
        """Close. Idempotent."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class _Lives:
    """The lifecycles of all client objects of this process; a fork marks the child's copies."""

    def __init__(self) -> None:
        self._all: weakref.WeakSet[Lifecycle] = weakref.WeakSet()
        self._watching = False

    def add(self, life: Lifecycle) -> None:
        if not self._watching and hasattr(os, "register_at_fork"):
            self._watching = True
            os.register_at_fork(after_in_child=self._forked)
        self._all.add(life)

    def _forked(self) -> None:
        for life in list(self._all):
            life.forked()
        self._all.clear()


_lives: Final = _Lives()
