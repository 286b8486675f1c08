"""When a failed send is tried again, as pure decisions (client:B.8, B-42, B-43)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    InvalidMessageError,
    InvalidNameError,
    InvalidStateError,
    SparrowError,
    TooManyRequestsError,
    TransportError,
)

CLIENT_FAULT: Final = 10003
"""RocketMQ's code of a send whose last try failed in the client, not at a broker (client:B-43)."""
_FINAL: Final = (InvalidMessageError, InvalidNameError, InvalidStateError, TooManyRequestsError)


def is_retryable(error: Exception, retry_codes: Collection[int]) -> bool:
    """Whether a send that failed with `error` may be tried on another queue.

    Transport failures are, and what this client found about one queue (no master, a hook refused it); broker
    answers only with a code in `retry_codes`. What no queue would mend (a message that breaks a limit, a
    closed producer, a used-up budget) is not.
    """
    if isinstance(error, TransportError):
        return True
    if isinstance(error, ClientError):
        return not isinstance(error, _FINAL)
    return isinstance(error, BrokerError) and error.code in retry_codes


def is_retryable_async(error: Exception) -> bool:
    """Whether an asynchronous send that failed with `error` may be tried again (client:B-27, B-28).

    Only what failed in transport: what a broker answered goes to the caller, whatever its code.
    """
    return isinstance(error, TransportError)


def final_error(
    error: SparrowError, *, topic: str, tries: int, seconds: float, brokers: Collection[str]
) -> SparrowError:
    """`error` of the last try, with a note of what was tried; its type stays, and its code if it has one."""
    if type(error) is ClientError and error.code == -1:
        error.code = CLIENT_FAULT
    if tries > 1:
        where = ", ".join(dict.fromkeys(brokers)) or "no broker"
        error.add_note(f"the send to {topic!r} was tried {tries} times in {seconds:.3f} s, on {where}")
    return error
