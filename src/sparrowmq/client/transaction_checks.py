"""Brokers that ask how a transaction ended: the question, and who answers it (client:B-102)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import PROPERTY_PRODUCER_GROUP, ReceivedMessage
from sparrowmq.core.names import without_namespace
from sparrowmq.protocol import headers
from sparrowmq.protocol.call_headers import CheckTransactionStateRequest
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.record import decode_record, to_message
from sparrowmq.transport.occasional import OccasionalLog

log = logging.getLogger("sparrowmq.client")

Checker = Callable[[str, CheckTransactionStateRequest, ReceivedMessage], None]


class TransactionChecks:
    """Who answers brokers that ask for transactions (39), by producer group; one per client instance.

    Names in the messages that come are taken out of `namespace`.
    """

    def __init__(self, namespace: str | None = None) -> None:
        self._namespace = namespace
        self._checkers: dict[str, Checker] = {}
        self._occasional = OccasionalLog(log)

    def register(self, group: str, checker: Checker) -> None:
        """`checker` answers for `group`."""
        self._checkers[group] = checker

    def unregister(self, group: str) -> None:
        """Nobody answers for `group` any more."""
        self._checkers.pop(group, None)

    def receive(self, address: str, request: Command) -> None:
        """A broker asks; there is no direct answer, the end of the transaction is one (client:A-86)."""
        try:
            header = headers.from_ext(CheckTransactionStateRequest, request.ext)
            message = to_message(decode_record(request.body), header.broker_name or "")
        except SparrowError as error:
            self._occasional.write(
                logging.WARNING, "unreadable", f"{address} asks for a transaction that is unreadable: {error}"
            )
            return
        message.topic = without_namespace(self._namespace, message.topic)
        group = without_namespace(self._namespace, message.properties.get(PROPERTY_PRODUCER_GROUP, ""))
        checker = self._checkers.get(group)
        if checker is None:
            self._occasional.write(
                logging.WARNING,
                "nobody",
                f"{address} asks for a transaction of group {group!r}, which has no listener here",
            )
            return
        checker(address, header, message)
