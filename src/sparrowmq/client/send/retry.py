"""Whether and when a failed send is retried: pure decisions (client:B.8, B-42, B-43)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sparrowmq.core.errors import (
    BrokerError,
    ClientError,
    InvalidMessageError,
    InvalidNameError,
    InvalidStateError,
    NoRoomError,
    SparrowError,
    TransportError,
)
from sparrowmq.protocol.codes import ResponseCode

CLIENT_FAULT: Final = 10003
"""RocketMQ's code for a send whose last attempt failed in the client, not at a broker (client:B-43)."""
_FINAL: Final = (InvalidMessageError, InvalidNameError, InvalidStateError, NoRoomError)


def is_retryable(error: Exception, retry_codes: Collection[int]) -> bool:
    """Whether a send that failed with `error` may be retried on another queue.

    True for transport failures and for errors that this client found for one queue (no master, refused by a
    hook); for broker responses only with a code in `retry_codes`. False for errors that other queues would
    repeat (a message beyond a limit, a closed producer, a used-up timeout).
    """
    if isinstance(error, TransportError):
        return True
    if isinstance(error, ClientError):
        return not isinstance(error, _FINAL)
    return isinstance(error, BrokerError) and error.code in retry_codes


def is_queue_gone(error: object) -> bool:
    """Whether a broker answered that its topic has no such queue: the topic became smaller.

    RocketMQ answers so with the code of all invalid parameters; its remark tells the case.
    """
    return (
        isinstance(error, BrokerError)
        and error.code == ResponseCode.INVALID_PARAMETER
        and "queueId[" in error.remark
    )


def is_retryable_async(error: Exception) -> bool:
    """Whether an asynchronous send that failed with `error` may be retried (client:B-27, B-28).

    Only transport failures; the caller gets broker responses with any code.
    """
    return isinstance(error, TransportError)


def final_error(
    error: SparrowError, *, topic: str, message_id: str, tries: int, seconds: float, brokers: Collection[str]
) -> SparrowError:
    """`error` of the last attempt, with a note about all attempts; its type stays, and its code if it has
    one. Logs of brokers and spans have the same `message_id`; of a batch, the note has its first.
    """
    if type(error) is ClientError and error.code == -1:
        error.code = CLIENT_FAULT
    where = ", ".join(dict.fromkeys(brokers)) or "no broker"
    times = "once" if tries == 1 else f"{tries} times"
    first, *others = message_id.split(",")
    what = f"{first} and {len(others)} others" if others else first
    error.add_note(
        f"the send of message {what} to {topic!r} was tried {times} in {seconds:.3f} s, on {where}"
    )
    return error
