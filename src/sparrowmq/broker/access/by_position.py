"""Requests that name a stored message by its position: the caller needs a right to that message's topic.

The gate checks the topic in the header, but the position decides which message is read, sent back or
committed. So brokers with access control check the message's own topic as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.broker.access.rights import RIGHTS
from sparrowmq.core.errors import RecordError
from sparrowmq.core.names import INNER_TOPICS
from sparrowmq.core.rights import Fields
from sparrowmq.protocol import properties as property_string
from sparrowmq.transport.dispatch import refusal

if TYPE_CHECKING:
    from sparrowmq.broker.access.gate import AccessGate
    from sparrowmq.protocol.frame import Command
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.transport.connection import Connection

PLACES: Final = {code: right.place for code, right in RIGHTS.items() if right.place is not None}
"""Physical offset in a request's fields, parsed exactly as in the handlers: no request bypasses the check."""


def topic_of(record: StoredRecord) -> str:
    """The topic to which a message was sent, even while an internal topic stores it."""
    if record.topic in INNER_TOPICS:
        real = property_string.find(record.properties, b"REAL_TOPIC")
        if real is not None:
            return real.decode("utf-8", "replace")
    return record.topic


class PlacedRequests:
    """Asks `gate` about the topic of the message such a request names, before its handler runs."""

    def __init__(self, gate: AccessGate, read: Callable[[int], StoredRecord | None]) -> None:
        self._gate = gate
        self._read = read

    def guard(self, handlers: Mapping[int, Any]) -> dict[int, Any]:
        """The handlers; those of such requests are preceded by the check."""
        return {
            code: self._asking(handler, PLACES[code]) if code in PLACES else handler
            for code, handler in handlers.items()
        }

    def _asking(self, handler: Any, place: Callable[[Fields], int]) -> Any:
        def handle(connection: Connection, command: Command) -> Any:
            try:
                record = self._read(place(command.ext))
            except RecordError:
                record = None  # no id: the handler reports it
            if record is not None:
                refused = self._gate.topic_refusal(connection.peer[0], command, topic_of(record))
                if refused is not None:
                    return refusal(*refused)
            return handler(connection, command)

        return handle
