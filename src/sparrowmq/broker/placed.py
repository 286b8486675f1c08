"""Requests that name a stored message by its place: whoever asks needs a right to that message's topic.

Headers name a topic, too, and the gate judges it; but the place decides which message is read, sent back or
committed. Only brokers with access control look twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.errors import RecordError
from sparrowmq.core.ids import parse_offset_message_id
from sparrowmq.core.names import INNER_TOPICS
from sparrowmq.protocol import properties as property_string
from sparrowmq.protocol.call_headers import (
    ConsumeMessageDirectlyRequest,
    EndTransactionRequest,
    ResumeCheckHalfMessageRequest,
)
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.headers import ConsumerSendMsgBackRequest, ViewMessageRequest, from_ext
from sparrowmq.transport.dispatch import refusal

if TYPE_CHECKING:
    from sparrowmq.broker.access import Gate
    from sparrowmq.protocol.frame import Command
    from sparrowmq.protocol.record import StoredRecord
    from sparrowmq.transport.connection import Connection

Fields = Mapping[str, str]


def _of_id(text: str | None) -> int:
    return parse_offset_message_id(text or "")[2]


PLACES: Final[dict[int, Callable[[Fields], int]]] = {
    Code.VIEW_MESSAGE_BY_ID: lambda ext: from_ext(ViewMessageRequest, ext).offset,
    Code.CONSUMER_SEND_MSG_BACK: lambda ext: from_ext(ConsumerSendMsgBackRequest, ext).offset,
    Code.END_TRANSACTION: lambda ext: from_ext(EndTransactionRequest, ext).commit_log_offset,
    Code.RESUME_CHECK_HALF_MESSAGE: lambda ext: _of_id(from_ext(ResumeCheckHalfMessageRequest, ext).msg_id),
    Code.CONSUME_MESSAGE_DIRECTLY: lambda ext: _of_id(from_ext(ConsumeMessageDirectlyRequest, ext).msg_id),
}
"""Physical offset in a request's fields. They are read as the handlers read them: nothing falls between."""


def topic_of(record: StoredRecord) -> str:
    """The topic a message was sent to, also while an inner topic keeps it."""
    if record.topic in INNER_TOPICS:
        real = property_string.find(record.properties, b"REAL_TOPIC")
        if real is not None:
            return real.decode("utf-8", "replace")
    return record.topic


class PlacedRequests:
    """Asks `gate` about the topic of what such a request names, before its handler runs."""

    def __init__(self, gate: Gate, read: Callable[[int], StoredRecord | None]) -> None:
        self._gate = gate
        self._read = read

    def guard(self, handlers: Mapping[int, Any]) -> dict[int, Any]:
        """The same handlers; those of such requests ask first."""
        return {
            code: self._asking(handler, PLACES[code]) if code in PLACES else handler
            for code, handler in handlers.items()
        }

    def _asking(self, handler: Any, place: Callable[[Fields], int]) -> Any:
        def handle(connection: Connection, command: Command) -> Any:
            try:
                record = self._read(place(command.ext))
            except RecordError:
                record = None  # no id: the handler says so
            if record is not None:
                refused = self._gate.topic_refusal(connection.peer[0], command, topic_of(record))
                if refused is not None:
                    return refusal(*refused)
            return handler(connection, command)

        return handle
