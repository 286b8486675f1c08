"""Which faults are temporary, and how lost messages are reported (spark:S-30, S-52 to S-54)."""

from __future__ import annotations

import logging
import re
from time import monotonic
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import (
    BrokerError,
    InvalidExpressionError,
    NoRoomError,
    NoRouteError,
    SettingsError,
    SparrowError,
    TransportError,
)
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import Span
from sparrowmq.spark.offsets.resets import OffsetReset
from sparrowmq.spark.options.table import ReadOptions

if TYPE_CHECKING:
    from sparrowmq.spark.offsets.losses import UnreadLoss

log = logging.getLogger("sparrowmq.spark")

_PASSING_CODES: Final = frozenset({1, 2, 14})
"""Errors of a broker that failed internally, is busy, or is starting or stopping."""
_ILLEGAL_QUEUE: Final = re.compile(r"queueId\[\d+\] is illegal")
_TOPIC_NOT_EXIST: Final = 17
_NO_FILTERS: Final = "does not support consumer to filter"
_FILTER_NOT_PARSED: Final = 23


class Occasionally:
    """Warns of a lasting fault at intervals, not at each of a hundred polls a second. For one thread."""

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds = seconds
        self._next = float("-inf")

    def warn(self, text: str, *values: object) -> None:
        """Log a warning unless one was logged within the last `seconds`."""
        now = monotonic()
        if now >= self._next:
            self._next = now + self._seconds
            log.warning(text, *values)


class DataLossError(SparrowError):
    """Messages in the range to read are no longer stored.

    `value` says which: a `Span`, an `OffsetReset` or an `UnreadLoss`.
    """


def is_passing(error: BaseException) -> bool:
    """Whether the same call may succeed later without intervention."""
    if isinstance(error, BrokerError):
        return error.code in _PASSING_CODES
    return isinstance(error, TransportError | NoRoomError | NoRouteError)


def is_deleted(error: BaseException) -> bool:
    """Whether a broker's answer to a pull means that the topic, or this queue of it, no longer exists.

    RocketMQ 4.x answers an illegal queue with the general error code (1), so its remark decides.
    """
    return is_illegal_queue(error) or (isinstance(error, BrokerError) and error.code == _TOPIC_NOT_EXIST)


def is_illegal_queue(error: BaseException) -> bool:
    """Whether a broker's answer to a pull means that the topic has fewer queues to read."""
    return isinstance(error, BrokerError) and bool(_ILLEGAL_QUEUE.search(error.remark))


def messages_lost(options: ReadOptions, queue: MessageQueue, start: int, end: int, why: str) -> None:
    """Raise `DataLossError` for the offsets from `start` to before `end`, or only warn if the options say
    so.
    """
    text = f"queue {queue}: offsets {start} to {end - 1} cannot be read, {why}"
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{text}. Set option failOnDataLoss=false to continue without them, or start with a new "
            f"checkpoint",
            value=Span(queue, start, end),
        )
    log.warning("%s; continuing without them because of failOnDataLoss=false", text)


def offset_reset(options: ReadOptions, reset: OffsetReset) -> None:
    """Like `messages_lost`, for a queue that was recreated or truncated since it was read."""
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{reset}. Set option failOnDataLoss=false to continue at offset {reset.offset}, or start with "
            f"a new checkpoint",
            value=reset,
        )
    log.warning("%s; continuing at offset %d because of failOnDataLoss=false", reset, reset.offset)


def unread_lost(options: ReadOptions, loss: UnreadLoss) -> None:
    """Raise `DataLossError` for unread messages of queues that are gone, unless this loss is accepted."""
    if loss.is_accepted(options.accept_loss):
        log.warning("%s; continuing without them because of acceptLoss=%s", loss, loss.token)
    elif options.fail_on_data_loss:
        raise DataLossError(
            f"{loss}. A topic with fewer queues to read can get them back, to read these messages: sparrow "
            f"topic update TOPIC --read-queues N. Set option acceptLoss={loss.token} to continue without "
            f"these messages, and no others; failOnDataLoss=false continues after every loss",
            value=loss,
        )
    else:
        log.warning("%s; continuing without them because of failOnDataLoss=false", loss)


def without_broker(broker: str) -> str:
    """The next step if a broker that is read does not answer."""
    return (
        f"start broker {broker} again; if it is lost for good, option lostBrokers={broker} reads the others, "
        f"without the messages that only it has"
    )


def unusable_filter(options: ReadOptions, error: BaseException) -> SettingsError | None:
    """What is wrong with the option `sql92` if a pull failed with `error`; None if nothing is."""
    if not options.sql92 or not isinstance(error, BrokerError | InvalidExpressionError):
        return None
    if _NO_FILTERS in str(error):
        hint = "Set enablePropertyFilter=true at the broker, or remove the option and filter in Spark"
    elif isinstance(error, InvalidExpressionError) or error.code == _FILTER_NOT_PARSED:
        hint = "It must be a condition on properties, such as amount > 100 AND TAGS IN ('created', 'paid')"
    else:
        return None
    return SettingsError(f"option sql92={options.sql92!r}: {error}. {hint}", "sql92", options.sql92)
