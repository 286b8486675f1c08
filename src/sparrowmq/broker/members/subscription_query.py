"""Asks a consumer for its subscriptions when a pull has a newer version than its last heartbeat.

Java's client gives its subscriptions a new version whenever its queues change, and immediately sends a
heartbeat. It skips this heartbeat if another one is in progress, which sometimes happens because a consumer's
first rebalance and its first periodic heartbeat both come a second after the start. Until the next heartbeat,
30 s later, its pulls have a newer version than the broker knows and would be refused (broker:5.3). So the
broker asks for its running info (307), which contains the subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import SparrowError
from sparrowmq.protocol.bodies import ConsumerRunningInfo
from sparrowmq.protocol.call_headers import GetConsumerRunningInfoRequest
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import Command
from sparrowmq.protocol.headers import to_ext

if TYPE_CHECKING:
    from sparrowmq.broker.members.filters import ConsumerFilters
    from sparrowmq.broker.tables.clients import ClientTable
    from sparrowmq.core.clock import Clock
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
ASK_SECONDS: Final = 1.0
"""A member is queried at most this often; Java repeats a refused pull every second."""

ANSWER_SECONDS_MAX: Final = 3.0


class SubscriptionQuery:
    """Keeps the subscriptions of online consumer groups current between heartbeats."""

    def __init__(self, clients: ClientTable, filters: ConsumerFilters, clock: Clock) -> None:
        self._clients = clients
        self._filters = filters
        self._clock = clock

    def ask(self, connection: Connection, group: str) -> None:
        """Query the member on `connection` for its subscriptions, and store newer ones."""
        online = self._clients.consumers.get(group)
        member = None if online is None else online.members.get(connection)
        now = self._clock.monotonic()
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
        answer.add_done_callback(lambda done: self._take(connection, group, done))

    def _take(self, connection: Connection, group: str, done: asyncio.Future[Command]) -> None:
        online = self._clients.consumers.get(group)
        is_member = online is not None and connection in online.members
        if done.cancelled() or done.exception() is not None or online is None or not is_member:
            return  # it will be queried again on its next pull
        answer = done.result()
        if answer.code != ResponseCode.SUCCESS:
            return
        try:
            info = ConsumerRunningInfo.decode(answer.body)
        except SparrowError as error:
            log.debug("the running info of a member of %s cannot be read: %s", group, error)
            return
        before, taken = online.told.get(connection, -1), []
        for data in info.subscriptions:
            known = online.subscriptions.get(data.topic)
            if known is None or known.expression_type != data.expression_type:
                continue
            if data.version > before and self._clients.renew(online, data):
                self._filters.renew(group, data)
                taken.append(data)
        online.note(connection, taken)
