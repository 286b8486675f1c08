"""Heartbeats, leaving, member lists and their change notices (broker:10.1 to 10.3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.clients import ClientTable, ConsumerGroup, Member
from sparrowmq.core.errors import InvalidNameError
from sparrowmq.core.names import check_topic, retry_topic
from sparrowmq.protocol.bodies import ConsumerList, HeartbeatData, MessageModel
from sparrowmq.protocol.codes import RequestCode, ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command
from sparrowmq.protocol.headers import (
    GetConsumerListByGroupRequest,
    NotifyConsumerIdsChangedRequest,
    UnregisterClientRequest,
    from_ext,
    to_ext,
)

if TYPE_CHECKING:
    from sparrowmq.broker.filters import ConsumerFilters
    from sparrowmq.broker.groups import GroupTable
    from sparrowmq.broker.topics import TopicTable
    from sparrowmq.transport.connection import Connection

SILENT_SECONDS_MAX: Final = 120.0


class Membership:
    """Keeps `ClientTable` true and tells members when their group changes."""

    def __init__(
        self,
        clients: ClientTable,
        groups: GroupTable,
        topics: TopicTable,
        filters: ConsumerFilters,
        *,
        topic_made: Callable[[], None],
        at_once: bool = True,
    ) -> None:
        self._clients = clients
        self._groups = groups
        self._topics = topics
        self._filters = filters
        self._topic_made = topic_made
        self._at_once = at_once
        self._changed: dict[str, None] = {}

    def heartbeat(self, connection: Connection, command: Command) -> Command:
        """34: register a client's producers and consumers; makes groups and retry topics on demand.

        Version 2 has a fingerprint, and may leave out subscriptions that did not change; the answer says
        whether the next one has to have them (remoting:4.2).
        """
        data = HeartbeatData.decode(command.body)
        tell_again = not data.fingerprint
        member = Member(data.client_id, command.language, command.version, time.monotonic())
        for producer in data.producers:
            self._clients.add_producer(producer.group, connection, member)
        for consumer in data.consumers:
            config = self._groups.get(consumer.group)
            if config is None:
                continue
            if self._make_retry_topic(consumer.group, config.retry_queue_nums):
                self._topic_made()
            tell_again |= self._is_news(consumer.group, data)
            incoming = ConsumerGroup(
                consumer.group,
                consumer.consume_type,
                consumer.message_model,
                consumer.consume_from_where,
                {wanted.topic: wanted for wanted in consumer.subscriptions},
            )
            changed = self._clients.add_consumer(
                incoming, connection, member, keep_subscriptions=data.without_sub
            )
            self._clients.consumers[consumer.group].fingerprint = data.fingerprint
            if not data.without_sub:
                self._filters.register(consumer.group, consumer.subscriptions)
            if changed:
                self._notify([self._clients.consumers[consumer.group]])
        ext = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": str(tell_again).lower()}
        return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE, ext)

    def _is_news(self, name: str, beat: HeartbeatData) -> bool:
        """Whether a heartbeat of version 2 does not go with what is known of a group.

        It comes from members with other subscriptions, or speaks of subscriptions that nobody told yet, as
        after a restart of this broker; the reference does not notice the latter.
        """
        group = self._clients.consumers.get(name)
        if group is None or not group.subscriptions:
            return beat.without_sub
        return group.fingerprint not in (0, beat.fingerprint)

    def unregister(self, connection: Connection, command: Command) -> Command:
        """35: a client leaves the named groups."""
        request = from_ext(UnregisterClientRequest, command.ext)
        left = self._clients.remove(
            connection, producer_group=request.producer_group, consumer_group=request.consumer_group
        )
        if left is not None:
            self._left([left])
        return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE)

    def members(self, connection: Connection, command: Command) -> Command:
        """38: the client ids of a consumer group."""
        name = from_ext(GetConsumerListByGroupRequest, command.ext).consumer_group
        group = self._clients.consumers.get(name)
        if group is None:
            remark = f"no consumer for this group, {name}"
            if name not in self._groups.configs:
                remark += ", nor such a group; heartbeats make groups where autoCreateSubscriptionGroup is on"
            return Command(ResponseCode.SYSTEM_ERROR, command.opaque, FLAG_RESPONSE, remark=remark)
        body = ConsumerList(consumer_id_list=group.client_ids).encode()
        return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE, body=body)

    def connection_gone(self, connection: Connection) -> None:
        """A connection closed: its members are gone, the others are told."""
        self._left(self._clients.remove_connection(connection))

    def drop_silent(self) -> None:
        """Close the connections whose clients sent no heartbeat for 120 s; called every 10 s."""
        for connection in list(self._clients.silent_since(time.monotonic() - SILENT_SECONDS_MAX)):
            connection.close(f"no heartbeat for {SILENT_SECONDS_MAX:.0f} s")

    def _make_retry_topic(self, group: str, queues: int) -> bool:
        topic = retry_topic(group)
        try:
            check_topic(topic)
        except InvalidNameError:
            return False
        return queues > 0 and self._topics.ensure_soon(topic, queues)

    def _left(self, groups: list[ConsumerGroup]) -> None:
        """A member left these groups."""
        for group in groups:
            if not group.members:
                self._filters.unregister(group.name)
        self._notify(groups)

    def _notify(self, groups: Iterable[ConsumerGroup]) -> None:
        if self._at_once:
            self._tell(groups)
        else:
            self._changed.update(dict.fromkeys(group.name for group in groups))

    def tell(self, name: str) -> None:
        """Have a group's members look at their queues again (40), at once."""
        group = self._clients.consumers.get(name)
        if group is not None:
            self._tell([group])

    def tell_changes(self) -> None:
        """Tell of the changes that were gathered; called every 15 s (`realTimeNotifyConsumerChange`)."""
        changed, self._changed = self._changed, {}
        self._tell(group for name in changed if (group := self._clients.consumers.get(name)) is not None)

    def _tell(self, groups: Iterable[ConsumerGroup]) -> None:
        for group in groups:
            config = self._groups.configs.get(group.name)
            wanted = config is None or config.notify_consumer_ids_changed_enable
            if group.message_model == MessageModel.BROADCASTING or not wanted:
                continue
            ext = to_ext(NotifyConsumerIdsChangedRequest(consumer_group=group.name))
            for connection in list(group.members):
                if not connection.closed:
                    connection.notify(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext=ext))
