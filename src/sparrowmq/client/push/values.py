"""`decode=` of a subscription: handlers and loops get what it makes of a message."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparrowmq.client.base.callables import is_async
from sparrowmq.client.consumer.outcomes import Retry
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.core.message import ReceivedMessage

log = logging.getLogger("sparrowmq.client")

Decode = Callable[[Any], Any]
"""Takes a message, and returns the value that a handler or a loop gets; raising means retry."""


def check_decode(decode: Decode) -> None:
    """Raise TypeError unless it is a plain function."""
    if not callable(decode) or is_async(decode):
        raise TypeError(
            f"decode={decode!r:.200} must be a plain function that takes a message and returns a value, such "
            "as ReceivedMessage.json"
        )


def handler_of_values(handler: Callable[[Any], Any], decode: Decode) -> Callable[[Any], Any]:
    """A handler of messages that calls `handler` with their values. A value that cannot be made fails the
    call, as if `handler` had raised.
    """

    def values(argument: Any) -> Any:
        return list(map(decode, argument)) if isinstance(argument, list) else decode(argument)

    if is_async(handler):

        async def handle_async(argument: Any) -> Any:
            return await handler(values(argument))

        return handle_async

    def handle(argument: Any) -> Any:
        return handler(values(argument))

    return handle


class LoopValues:
    """What the loops of one consumer get of each message: what `decode` makes of it, or the message."""

    def __init__(self, group: str, decode: Decode | None, *, has_retry: bool) -> None:
        self._group = group
        self._decode = decode
        self._then = "it goes to retry" if has_retry else "broadcasting drops it"
        self._occasional = OccasionalLog(log)

    def value(self, message: ReceivedMessage) -> Any:
        """The value of a message. Raises `Retry` when it cannot be made."""
        if self._decode is None:
            return message
        try:
            return self._decode(message)
        except Retry:
            raise
        except Exception as error:
            self._occasional.write(
                logging.WARNING,
                f"{type(error).__name__} {message.topic}",
                f"decode failed in group {self._group} for message {message.message_id} ({message.queue} at "
                f"offset {message.queue_offset}); {self._then}",
                error=error,
            )
            raise Retry(f"decode failed: {type(error).__name__}: {error}") from error
