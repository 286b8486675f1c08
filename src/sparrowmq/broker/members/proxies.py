"""Requests of proxies about their clients (90501 to 90503), which are SparrowMQ's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING

from sparrowmq.broker.base.offsets import answer, refusal
from sparrowmq.broker.tables.clients import LANGUAGE_CHARS_MAX, NAME_CHARS_MAX
from sparrowmq.broker.tables.proxied import ADDRESS_CHARS_MAX, ProxiedMember
from sparrowmq.core.errors import NoRoomError
from sparrowmq.core.names import retry_topic
from sparrowmq.protocol.bodies import HeartbeatData
from sparrowmq.protocol.call_headers import CheckTopicRightRequest, ProxiedClientRequest
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.headers import from_ext
from sparrowmq.transport.slices import finished, shared

if TYPE_CHECKING:
    from typing import Any

    from sparrowmq.broker.tables.groups import GroupTable
    from sparrowmq.broker.tables.proxied import ProxiedClients
    from sparrowmq.broker.tables.topics import TopicTable
    from sparrowmq.protocol.frame import Command
    from sparrowmq.transport.connection import Connection


class ProxyRequests:
    """Handlers of these requests. `topic_made` is called when a retry topic was made."""

    def __init__(
        self,
        proxied: ProxiedClients,
        groups: GroupTable,
        topics: TopicTable,
        *,
        topic_made: Callable[[], None],
    ) -> None:
        self._proxied = proxied
        self._groups = groups
        self._topics = topics
        self._topic_made = topic_made

    def handlers(self) -> dict[int, Any]:
        """The request codes answered here."""
        return {
            Code.REGISTER_PROXIED_CLIENT: self.register,
            Code.UNREGISTER_PROXIED_CLIENT: self.unregister,
            Code.CHECK_TOPIC_RIGHT: self.check_topic,
        }

    def register(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """90501: a proxy has a consumer of these groups; the body is a heartbeat. Groups and their retry
        topics are made as by a heartbeat. Raises `NoRoomError`.
        """
        return finished(self._register(connection, command))

    def _register(self, connection: Connection, command: Command) -> Generator[None, None, Command]:
        told = from_ext(ProxiedClientRequest, command.ext)
        data = yield from HeartbeatData.decoding(command.body)
        if len(data.client_id) > NAME_CHARS_MAX:
            remark = f"a client id has at most {NAME_CHARS_MAX} characters"
            return refusal(command, ResponseCode.INVALID_PARAMETER, remark)
        for consumer in data.consumers:
            config = None if connection.closed else self._groups.get(consumer.group)
            if config is None:
                remark = self._groups.missing(consumer.group)
                return refusal(command, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
            member = ProxiedMember(
                data.client_id,
                told.client_address[:ADDRESS_CHARS_MAX],
                told.language[:LANGUAGE_CHARS_MAX],
                told.client_version,
                consumer.consume_type,
                connection,
                consumer.subscriptions,
            )
            problem = self._proxied.problem(consumer.group, member)
            if problem:
                raise NoRoomError(problem)
            self._proxied.put(consumer.group, member)
            queues = config.retry_queue_nums
            if queues > 0 and self._topics.ensure_soon(retry_topic(consumer.group), queues):
                self._topic_made()
            yield
        return answer(command)

    def unregister(self, connection: Connection, command: Command) -> Command:
        """90502: the consumer left its group, or its proxy."""
        told = from_ext(ProxiedClientRequest, command.ext)
        self._proxied.remove(connection, told.consumer_group, told.client_id)
        return answer(command)

    def check_topic(self, connection: Connection, command: Command) -> Command:
        """90503: whether the caller may send to a topic, receive from it, or look at it. The answer is
        positive: others were refused before this (`broker.access`).
        """
        from_ext(CheckTopicRightRequest, command.ext)
        return answer(command)

    def connection_gone(self, connection: Connection) -> None:
        """A connection closed: forget what its proxy told of."""
        shared().run(self._proxied.leaving(connection))
