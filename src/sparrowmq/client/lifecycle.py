"""States of client objects and which may follow which (client:A.4)."""

from __future__ import annotations

import asyncio
import os
import weakref
from enum import Enum
from typing import Final

from sparrowmq.core.errors import InvalidStateError


class State(Enum):
    """Where a producer, consumer or admin client is in its life."""

    CREATED = "created"
    STARTING = "starting"
    RUNNING = "running"
    FAILED = "failed"
    """It could not start, or a background task died; it can only be closed."""
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
    """The state of one object called `name` in errors.

    In a forked child the parent's objects are closed: what they consist of runs in the parent. Nothing is
    asked on the way of a message for that.
    """

    __slots__ = ("__weakref__", "_parent", "_waiting", "name", "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.CREATED
        self._parent: int | None = None
        self._waiting: list[asyncio.Future[None]] = []
        _lives.add(self)

    def to(self, state: State) -> None:
        """Go to `state`. Raises `InvalidStateError` when that may not follow."""
        self._need_own_process()
        if state not in TRANSITIONS[self.state]:
            raise InvalidStateError(f"{self.name} is {self.state.value} and cannot become {state.value}")
        self.state = state
        if state not in _UNDER_WAY:
            waiting, self._waiting = self._waiting, []
            for one in waiting:
                if not one.done():
                    one.set_result(None)

    async def settled(self) -> None:
        """Wait until a start or a close that is under way has ended, however it did."""
        while self.state in _UNDER_WAY:
            waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(waiting)
            await waiting

    def need_running(self) -> None:
        """Raise `InvalidStateError` unless running."""
        if self.state is State.RUNNING:
            return
        self._need_own_process()
        if self.state is State.CREATED:
            advice = "start it first: `async with` or start()"
        elif self.state in (State.CLOSING, State.CLOSED):
            advice = "make a new one"
        else:
            advice = "see the error that stopped it, close it and make a new one"
        raise InvalidStateError(f"{self.name} is {self.state.value}; {advice}")

    def forked(self) -> None:
        """This is a copy in a child of the process it was made in; one that was not started may be used."""
        if self.state is State.CREATED:
            return
        self.state = State.CLOSED
        self._parent = os.getppid()

    def _need_own_process(self) -> None:
        if self._parent is not None:
            raise InvalidStateError(
                f"{self.name} was made in another process (pid {self._parent}, this is {os.getpid()}); "
                "make a new one here"
            )


class _Lives:
    """The lives of all client objects of this process; a forked child is told of its copies."""

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
