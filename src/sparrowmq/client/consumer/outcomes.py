"""The results that handlers can return, and their meaning. Pure decisions.

Returning means success and raising means retry; `Retry` gives details. Ordered handlers that commit
themselves return a `ConsumeResult`.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from enum import Enum
from typing import Any

from sparrowmq.core.message import failure_text


class ConsumeResult(Enum):
    """What a handler may return; any other value means success."""

    SUCCESS = "success"
    LATER = "later"
    """The same as raising: the messages are redelivered."""
    COMMIT = "commit"
    """Ordered handlers with `auto_commit=False`: commit everything since the last commit (client:D-66)."""
    ROLLBACK = "rollback"
    """Ordered handlers with `auto_commit=False`: redeliver everything since the last commit."""


class Retry(Exception):
    """Raise it in a handler to have messages redelivered later.

    `after` seconds, rounded up to the next delay level of the broker that has the message (1 s to 2 h unless
    its `messageDelayLevel` says otherwise); by default the broker chooses, longer each time. `done`
    says how many messages of a batch, from its first, succeeded: only the others come again. `dead` makes
    them dead letters at once. In ordered consumption the queue stops for `after` seconds, between 0.01 and 30
    (`suspend_time` by default), and `done` counts as well.
    """

    def __init__(
        self, reason: str = "", *, after: float | None = None, done: int = 0, dead: bool = False
    ) -> None:
        super().__init__(reason or "the handler asked for a retry")
        if after is not None and not after >= 0:
            raise ValueError(f"after={after!r}: must be a number of seconds, 0 or more")
        if done < 0:
            raise ValueError(f"done={done!r}: must be the number of messages that succeeded, 0 or more")
        self.after = after
        self.done = done
        self.dead = dead


def why_of(failure: object) -> str:
    """What a handler failed with, as its message keeps it: an exception's type and text, or a result's."""
    if isinstance(failure, BaseException):
        return failure_text(f"{type(failure).__name__}: {failure}")
    return failure_text(f"the handler returned {failure}")


def refuse_unfinished(result: object) -> None:
    """Raise TypeError for a result of a handler that would never run: its message is not done.

    Any other value is fine: returning means done.
    """
    if inspect.iscoroutine(result):
        result.close()
        raise TypeError("a plain handler returned a coroutine; write it with `async def`")
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError("the handler returned a generator, which has not run; write it without `yield`")
    if inspect.isawaitable(result):
        raise TypeError(
            f"the handler returned {result!r:.200}, which nothing awaits; write it with `async def`"
        )


class ReturnType(Enum):
    """The result of a handler call for hooks and trace records (client:D.9)."""

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a call: the first `done` messages are finished, the others are redelivered."""

    done: int
    after: float | None = None
    dead: bool = False


def outcome_of(count: int, result: Any, error: BaseException | None) -> Outcome:
    """The outcome for `count` messages of a handler that returned `result` or raised `error` (client:D-50).

    A `Retry` may be raised or returned.
    """
    if error is None and isinstance(result, Retry):
        error = result
    if isinstance(error, Retry):
        return Outcome(min(error.done, count), error.after, error.dead)
    if error is not None or result is ConsumeResult.LATER:
        return Outcome(0)
    return Outcome(count)


def return_type(result: Any, error: BaseException | None, seconds: float, limit: float) -> ReturnType:
    """How a call that took `seconds` ended; one that took `limit` or more timed out even if it succeeded."""
    if error is not None and not isinstance(error, Retry):
        return ReturnType.EXCEPTION
    if seconds >= limit:
        return ReturnType.TIME_OUT
    failed = error is not None or isinstance(result, Retry) or result is ConsumeResult.LATER
    return ReturnType.FAILED if failed else ReturnType.SUCCESS
