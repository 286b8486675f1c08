"""Heartbeats, leaving, member lists and their change notices (broker:10.1 to 10.3)."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.members.unlike_members import UnlikeMembers
from sparrowmq.broker.tables.clients import LANGUAGE_CHARS_MAX, ConnectedMember, ConsumerGroup
from sparrowmq.core.errors import InvalidNameError, NoRoomError
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
from sparrowmq.transport.slices import finished, shared

if TYPE_CHECKING:
    from sparrowmq.broker.members.filters import ConsumerFilters
    from sparrowmq.broker.tables.shared_tables import SharedTables
    from sparrowmq.core.clock import Clock
    from sparrowmq.transport.connection import Connection

log = logging.getLogger("sparrowmq.broker")
SILENT_SECONDS_MAX: Final = 120.0


class Membership:
    """Keeps `ClientTable` current and notifies members when their group changes."""

    def __init__(
        self,
        tables: SharedTables,
        filters: ConsumerFilters,
        clock: Clock,
        *,
        topic_made: Callable[[], None],
        at_once: bool = True,
    ) -> None:
        self._clients = tables.clients
        self._groups = tables.groups
        self._topics = tables.topics
        self._filters = filters
        self._clock = clock
        self._topic_made = topic_made
        self._at_once = at_once
        self._unlike = UnlikeMembers()
        self._changed: dict[str, None] = {}
        self._telling: dict[str, bool] = {}
        """Groups whose members are being notified, and whether they changed again meanwhile."""

    def heartbeat(self, connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """34: register a client's producers and consumers; creates groups and retry topics on demand.

        Version 2 has a fingerprint and may omit unchanged subscriptions; the answer says whether the next
        heartbeat must contain them (remoting:4.2).
        """
        return finished(self._heartbeat(connection, command))

    def _heartbeat(self, connection: Connection, command: Command) -> Generator[None, None, Command]:
        data = yield from HeartbeatData.decoding(command.body)
        problem = self._clients.problem(
            connection,
            data.client_id,
            [producer.group for producer in data.producers],
            {consumer.group: consumer.subscriptions for consumer in data.consumers},
        )
        if problem:
            raise NoRoomError(problem)
        language = command.language[:LANGUAGE_CHARS_MAX]
        member = ConnectedMember(data.client_id, language, command.version, self._clock.monotonic())
        return (yield from self._take_in(connection, command, data, member))

    def _take_in(
        self, connection: Connection, command: Command, data: HeartbeatData, member: ConnectedMember
    ) -> Generator[None, None, Command]:
        """Register the groups one after the other, as long as the client is connected."""
        tell_again = not data.fingerprint
        for producer in data.producers:
            if not connection.closed:
                self._clients.add_producer(producer.group, connection, member)
                yield
        for consumer in data.consumers:
            config = None if connection.closed else self._groups.get(consumer.group)
            if config is None:
                if self._groups.is_full and not connection.closed:
                    raise NoRoomError(self._groups.missing(consumer.group))
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
                fingerprint=data.fingerprint,
            )
            changed = self._clients.add_consumer(
                incoming, connection, member, keep_subscriptions=data.without_sub
            )
            if not data.without_sub:
                self._compare(incoming, member.client_id)
                wanted = self._clients.consumers[consumer.group].subscriptions
                yield from self._filters.registering(consumer.group, wanted)
            if changed and consumer.group in self._clients.consumers:
                self._notify([self._clients.consumers[consumer.group]])
            yield
        ext = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": str(tell_again).lower()}
        return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE, ext)

    def _compare(self, incoming: ConsumerGroup, client_id: str) -> None:
        """Report members that subscribe differently. Members of broadcasting groups divide nothing."""
        group = self._clients.consumers.get(incoming.name)
        if group is None or incoming.message_model == MessageModel.BROADCASTING:
            return
        asked = incoming.subscriptions.values()
        now = self._clock.monotonic()
        if text := self._unlike.seen(group.name, client_id, asked, group.client_ids, now):
            log.warning("%s", text)

    def _is_news(self, name: str, beat: HeartbeatData) -> bool:
        """Whether a heartbeat of version 2 does not match the known state of a group.

        It comes from members with other subscriptions, or refers to subscriptions that were never sent to
        this broker, for example after its restart; the reference does not detect the latter.
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
                remark += ", and no such group; heartbeats create groups if autoCreateSubscriptionGroup is on"
            return Command(ResponseCode.SYSTEM_ERROR, command.opaque, FLAG_RESPONSE, remark=remark)
        body = ConsumerList(consumer_id_list=group.client_ids).encode()
        return Command(ResponseCode.SUCCESS, command.opaque, FLAG_RESPONSE, body=body)

    def connection_gone(self, connection: Connection) -> None:
        """A connection closed: remove its members and notify the others."""
        shared().run(self._leaving(connection))

    def _leaving(self, connection: Connection) -> Iterator[None]:
        """Process one group per step: a client may be in many."""
        for group in self._clients.leaving(connection):
            if group is not None:
                self._left([group])
            yield

    def drop_silent(self) -> None:
        """Close the connections of clients without a heartbeat for 120 s; called every 10 s."""
        shared().run(self._dropping(self._clock.monotonic() - SILENT_SECONDS_MAX))

    def _dropping(self, moment: float) -> Iterator[None]:
        for connection in self._clients.looked_at(moment):
            if connection is not None:
                connection.close(f"no heartbeat for {SILENT_SECONDS_MAX:.0f} s")
            yield

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
                self._unlike.forget(group.name)
        self._notify(groups)

    def _notify(self, groups: Iterable[ConsumerGroup]) -> None:
        if self._at_once:
            self._tell(groups)
        else:
            self._changed.update(dict.fromkeys(group.name for group in groups))

    def tell(self, name: str) -> None:
        """Notify a group's members at once to rebalance (40)."""
        group = self._clients.consumers.get(name)
        if group is not None:
            self._tell([group])

    def tell_changes(self) -> None:
        """Notify members of gathered changes; called every 15 s (`realTimeNotifyConsumerChange`)."""
        changed, self._changed = self._changed, {}
        self._tell(group for name in changed if (group := self._clients.consumers.get(name)) is not None)

    def _tell(self, groups: Iterable[ConsumerGroup]) -> None:
        """Notify the members of groups; changes in quick succession share one notification."""
        for group in groups:
            if group.name in self._telling:
                self._telling[group.name] = True
            else:
                self._telling[group.name] = False
                shared().run(self._tell_members(group.name))

    def _tell_members(self, name: str) -> Iterator[None]:
        """Notify a group's members in slices, and once more if it changed meanwhile."""
        again = True
        try:
            while again:  # ends when nothing changed during the notification
                self._telling[name] = False
                for connection in self._to_tell(name):
                    if not connection.closed:
                        ext = to_ext(NotifyConsumerIdsChangedRequest(consumer_group=name))
                        connection.notify(Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, ext=ext))
                        yield
                again = self._telling[name]
        finally:
            del self._telling[name]

    def _to_tell(self, name: str) -> list[Connection]:
        group, config = self._clients.consumers.get(name), self._groups.configs.get(name)
        if group is None or group.message_model == MessageModel.BROADCASTING:
            return []
        wanted = config is None or config.notify_consumer_ids_changed_enable
        return list(group.members) if wanted else []
