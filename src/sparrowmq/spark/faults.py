"""Which faults pass by themselves, and what happens when messages are gone (spark:S-30, S-52 to S-54)."""

from __future__ import annotations

import logging
from time import monotonic
from typing import Final

from sparrowmq.core.errors import (
    BrokerError,
    InvalidExpressionError,
    NoRouteError,
    SettingsError,
    SparrowError,
    TooManyRequestsError,
    TransportError,
)
from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.options import ReadOptions

log = logging.getLogger("sparrowmq.spark")

_PASSING_CODES: Final = frozenset({1, 2, 14})
"""A broker that has an error, is busy, or is starting or stopping."""
_NO_FILTERS: Final = "does not support consumer to filter"
_FILTER_NOT_PARSED: Final = 23


class Occasionally:
    """Warns of a lasting fault now and then, not at each of a hundred polls a second. For one thread."""

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
    """Messages that were to be read are not stored any more."""


def is_passing(error: BaseException) -> bool:
    """Whether the same call may work later without anybody's doing."""
    if isinstance(error, BrokerError):
        return error.code in _PASSING_CODES
    return isinstance(error, TransportError | TooManyRequestsError | NoRouteError)


def messages_lost(options: ReadOptions, queue: MessageQueue, start: int, end: int, why: str) -> None:
    """Raise `DataLossError` for the offsets from `start` to before `end`, or only warn when so asked."""
    _lost(options, f"queue {queue}: offsets {start} to {end - 1} cannot be read, {why}")


def topics_lost(options: ReadOptions, topics: list[str]) -> None:
    """As `messages_lost`, for topics that were deleted."""
    names = ", ".join(topics)
    _lost(options, f"deleted under the query: {names}; the brokers are there and do not serve it")


def _lost(options: ReadOptions, text: str) -> None:
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{text}. Set option failOnDataLoss=false to go on without them, or start anew with another "
            "checkpoint"
        )
    log.warning("%s; going on without them, as failOnDataLoss=false says", text)


def unusable_filter(options: ReadOptions, error: BaseException) -> SettingsError | None:
    """What is wrong with the option `sql92` when a pull failed with `error`; None: nothing."""
    if not options.sql92 or not isinstance(error, BrokerError | InvalidExpressionError):
        return None
    if _NO_FILTERS in str(error):
        hint = "Set enablePropertyFilter=true at the broker, or leave the option out and filter in Spark"
    elif isinstance(error, InvalidExpressionError) or error.code == _FILTER_NOT_PARSED:
        hint = "It takes a condition over properties, such as amount > 100 AND TAGS IN ('created', 'paid')"
    else:
        return None
    return SettingsError(f"option sql92={options.sql92!r}: {error}. {hint}")
