"""Transaction checks by brokers: the request, and the producer that answers it (client:B-102)."""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparrowmq.client.cluster.namespaces import unwrap_messages
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
    """The producers that answer transaction checks (39), by group; one table per client instance.

    `namespace` is removed from the names in the messages.
    """

    def __init__(self, namespace: str | None = None) -> None:
        self._namespace = namespace
        self._checkers: dict[str, Checker] = {}
        self._as_stored: set[str] = set()
        self._occasional = OccasionalLog(log)

    def register(self, group: str, checker: Checker, *, as_stored: bool = False) -> None:
        """Register `checker` for `group`; with `as_stored` it gets compressed bodies as they are."""
        self._checkers[group] = checker
        if as_stored:
            self._as_stored.add(group)

    def unregister(self, group: str) -> None:
        """Remove the checker of `group`."""
        self._checkers.pop(group, None)
        self._as_stored.discard(group)

    def receive(self, address: str, request: Command) -> None:
        """Handle a broker's check. There is no direct response; the end of the transaction is the answer
        (client:A-86).
        """
        try:
            header = headers.from_ext(CheckTransactionStateRequest, request.ext)
            record = decode_record(request.body)
            message = to_message(record, header.broker_name or "", decompress=False)
            group = message.properties.get(PROPERTY_PRODUCER_GROUP, "")
            group = without_namespace(self._namespace, group)
            if group in self._checkers and group not in self._as_stored:
                message = to_message(record, header.broker_name or "")
        except SparrowError as error:
            self._occasional.write(
                logging.WARNING,
                "unreadable",
                f"{address} asks about a transaction that is unreadable: {error}",
            )
            return
        unwrap_messages(self._namespace, [message])
        checker = self._checkers.get(group)
        if checker is None:
            self._occasional.write(
                logging.WARNING,
                "nobody",
                f"{address} asks about a transaction of group {group!r}, which has no listener here",
            )
            return
        checker(address, header, message)
