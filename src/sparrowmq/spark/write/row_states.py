"""What becomes of numbered rows with each answer of the broker: states, events, and the table of both. Pure.

`RENUMBERED` means fresh numbers under a later epoch: then, and only then, rows may be stored twice. It
happens when the rows are not those of the earlier try (they came in another order, as after a shuffle). An
error that is no event ends the task as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class RowState(Enum):
    """Where rows are on their way to `STORED`."""

    NUMBERED = "they have numbers, with which they are sent"
    UNPLACED = "the broker has stored them and forgotten where: they are read back and compared"
    DOUBTFUL = "they were stored and deleted since: they are kept until rows after them prove equal"
    ANEW = "their numbers are those of other rows"
    STORED = "each of them is stored"
    STOPPED = "the task ends"


class RowEvent(Enum):
    """What happens to them."""

    # The broker's answer to a send.
    TAKEN = "they are stored now, or were, as they are"
    FORGOTTEN = "90002: stored, the place is forgotten"
    REUSED = "90003: another message has the number"
    STEP_BEGUN = "90004: another try of this batch has begun later numbers"
    BATCH_BEGUN = "90004: a later batch has begun, so somebody else goes on"
    LOST = "90001, 90005: rows that were acknowledged are gone; the next try stores them"
    LIMIT = "90006: too many producers"
    LEFT = "the queue left its topic: rows that it does not have go to another one"
    # What the queue has under their numbers.
    SAME = "the same messages"
    OTHER = "another message"
    DELETED = "nothing any more"
    # What happens to rows after them.
    FOLLOWED = "rows after them are the same, or new"
    TOO_MANY_KEPT = "no more rows are kept in doubt"
    # Whether they may have other numbers.
    RENUMBERED = "they get the numbers of a later step"
    ONCE_ONLY = "option delivery=exactlyOnce: no row may be stored twice"
    STEPS_USED_UP = "the batch has no later step"


TRANSITIONS: Final[Mapping[RowState, Mapping[RowEvent, RowState]]] = {
    RowState.NUMBERED: {
        RowEvent.TAKEN: RowState.STORED,
        RowEvent.FORGOTTEN: RowState.UNPLACED,
        RowEvent.REUSED: RowState.ANEW,
        RowEvent.STEP_BEGUN: RowState.ANEW,
        RowEvent.BATCH_BEGUN: RowState.STOPPED,
        RowEvent.LOST: RowState.STOPPED,
        RowEvent.LIMIT: RowState.STOPPED,
        RowEvent.LEFT: RowState.NUMBERED,
    },
    RowState.UNPLACED: {
        RowEvent.SAME: RowState.STORED,
        RowEvent.OTHER: RowState.ANEW,
        RowEvent.DELETED: RowState.DOUBTFUL,
    },
    RowState.DOUBTFUL: {
        RowEvent.FOLLOWED: RowState.STORED,
        RowEvent.TOO_MANY_KEPT: RowState.ANEW,
        RowEvent.RENUMBERED: RowState.NUMBERED,
    },
    RowState.ANEW: {
        RowEvent.RENUMBERED: RowState.NUMBERED,
        RowEvent.ONCE_ONLY: RowState.STOPPED,
        RowEvent.STEPS_USED_UP: RowState.STOPPED,
    },
    RowState.STORED: {},
    RowState.STOPPED: {},
}

_ANSWERS: Final = frozenset(TRANSITIONS[RowState.NUMBERED])
_FINDINGS: Final = frozenset(TRANSITIONS[RowState.UNPLACED])
_LATER: Final = frozenset({RowEvent.FOLLOWED, RowEvent.TOO_MANY_KEPT})
_NUMBERS: Final = frozenset(TRANSITIONS[RowState.ANEW])
UNREACHABLE: Final[Mapping[RowState, frozenset[RowEvent]]] = {
    # Nothing is read back for rows that are sent, and they are not in doubt.
    RowState.NUMBERED: _FINDINGS | _LATER | _NUMBERS,
    # Rows that are read back are not sent; they have another state before anything follows.
    RowState.UNPLACED: _ANSWERS | _LATER | _NUMBERS,
    # Whether there may be other numbers is asked for the row that needs them; these go with it.
    RowState.DOUBTFUL: _ANSWERS | _FINDINGS | (_NUMBERS - {RowEvent.RENUMBERED}),
    # They have no numbers to be sent or read back with.
    RowState.ANEW: _ANSWERS | _FINDINGS | _LATER,
    # Nothing more happens.
    RowState.STORED: frozenset(RowEvent),
    RowState.STOPPED: frozenset(RowEvent),
}
"""Events that cannot happen in a state: `after` raises KeyError for them."""


def after(state: RowState, event: RowEvent) -> RowState:
    """The state after an event."""
    return TRANSITIONS[state][event]
