"""Asks a consumer what it subscribes when a pull knows more than its last heartbeat said.

Java's client gives its subscriptions a new version whenever its queues change, and says so with a heartbeat
at once. That heartbeat is left out when another one is under way, which a consumer's first rebalance and its
first periodic heartbeat, both a second after the start, bring about now and then. Until the next one, 30 s
later, its pulls are newer than what the broker knows and are refused (broker:5.3). Asking for its running
info (307) brings the subscriptions up to date instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol.bodies import ConsumerRunningInfo
from sparrowmq.protocol.call_headers import GetConsumerRunningInfoRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import to_ext

if TYPE_CHECKING:
    from sparrowmq.broker.clients import ClientTable
    from sparrowmq.broker.filters import ConsumerFilters
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
ASK_SECONDS: Final = 1.0
"""A member is asked at most this often; Java repeats a refused pull every second."""

ANSWER_SECONDS_MAX: Final = 3.0


class Inquiry:
    """Keeps the subscriptions of online consumer groups true between heartbeats."""

    def __init__(self, clients: ClientTable, filters: ConsumerFilters) -> None:
        self._clients = clients
        self._filters = filters

    def ask(self, connection: Connection, group: str) -> None:
        """Ask the member behind `connection` for its subscriptions, and take over what is newer."""
        online = self._clients.consumers.get(group)
        member = None if online is None else online.members.get(connection)
        now = time.monotonic()
        if member is None or now - member.asked < ASK_SECONDS:
            return
        member.asked = now
        request = GetConsumerRunningInfoRequest(consumer_group=group, client_id=member.client_id)
        command = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, ext=to_ext(request))
        try:
            answer = connection.call(command, ANSWER_SECONDS_MAX)
        except SparrowError as error:
            log.debug("%s cannot be asked for the subscriptions of %s: %s", connection, group, error)
            return
        answer.add_done_callback(lambda done: self._take(group, done))

    def _take(self, group: str, done: asyncio.Future[Command]) -> None:
        online = self._clients.consumers.get(group)
        if done.cancelled() or done.exception() is not None or online is None:
            return  # it will be asked again when it pulls again
        answer = done.result()
        if answer.code != ResponseCode.SUCCESS:
            return
        try:
            info = ConsumerRunningInfo.decode(answer.body)
        except SparrowError as error:
            log.debug("the running info of a member of %s cannot be read: %s", group, error)
            return
        for data in info.subscriptions:
            known = online.subscriptions.get(data.topic)
            if known is None or known.expression_type != data.expression_type:
                continue
            if data.version > known.version:
                online.subscriptions[data.topic] = data
                self._filters.renew(group, data)
