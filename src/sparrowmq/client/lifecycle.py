"""States of client objects and which may follow which (client:A.4)."""

from __future__ import annotations

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


class Lifecycle:
    """The state of one object called `name` in errors."""

    __slots__ = ("name", "state")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = State.CREATED

    def to(self, state: State) -> None:
        """Go to `state`. Raises `InvalidStateError` when that may not follow."""
        if state not in TRANSITIONS[self.state]:
            raise InvalidStateError(f"{self.name} is {self.state.value} and cannot become {state.value}")
        self.state = state

    def need_running(self) -> None:
        """Raise `InvalidStateError` unless running."""
        if self.state is State.RUNNING:
            return
        if self.state is State.CREATED:
            advice = "start it first: `async with` or start()"
        elif self.state in (State.CLOSING, State.CLOSED):
            advice = "make a new one"
        else:
            advice = "see the error that stopped it, close it and make a new one"
        raise InvalidStateError(f"{self.name} is {self.state.value}; {advice}")
