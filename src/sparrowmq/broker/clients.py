"""Who is connected: producer and consumer groups, their members and subscriptions (broker:10)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sparrowmq.core.subscription import SubscriptionData

if TYPE_CHECKING:
    from sparrowmq.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel
    from sparrowmq.transport.connection import Connection


@dataclass(slots=True)
class Member:
    """One client in a group, on one connection.

    `last_seen` and `asked`, when it was last asked what it subscribes, are monotonic seconds.
    """

    client_id: str
    language: str
    version: int
    last_seen: float
    asked: float = 0.0


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group with members: what it subscribes and who they are.

    `fingerprint` is that of the latest heartbeat of version 2; 0 before there was one.
    """

    name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[Connection, Member] = field(default_factory=dict)
    fingerprint: int = 0

    @property
    def client_ids(self) -> list[str]:
        """Ids of the members; one that reconnects appears once."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def subscribe(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Take over a heartbeat's subscriptions; True when a topic was added or removed (broker:10.2)."""
        changed = False
        topics = set()
        for data in wanted:
            topics.add(data.topic)
            known = self.subscriptions.get(data.topic)
            changed = changed or known is None
            if known is None or data.version > known.version:
                self.subscriptions[data.topic] = data
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            changed = True
        return changed


class ClientTable:
    """Producers and consumers by group. A group without members does not exist."""

    def __init__(self) -> None:
        self.producers: dict[str, dict[Connection, Member]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._producer_ids: dict[str, dict[Connection, int]] = {}
        """Connections by the client id of their producers; in how many groups each is."""

    def add_producer(self, group: str, connection: Connection, member: Member) -> None:
        """Register or refresh a producer."""
        members = self.producers.setdefault(group, {})
        before = members.get(connection)
        members[connection] = member
        if before is None or before.client_id != member.client_id:
            connections = self._producer_ids.setdefault(member.client_id, {})
            connections[connection] = connections.get(connection, 0) + 1
            if before is not None:
                self._uncount(before.client_id, connection)

    def producer(self, client_id: str) -> Connection | None:
        """The connection of the producer with a client id, the newest when it has several."""
        return next(reversed(self._producer_ids.get(client_id, {})), None)

    def consumer(self, group: str, client_id: str) -> Connection | None:
        """The connection of a group's member with a client id, the newest when it has several."""
        members = self.consumers[group].members if group in self.consumers else {}
        found = [connection for connection, member in members.items() if member.client_id == client_id]
        return found[-1] if found else None

    def add_consumer(
        self,
        incoming: ConsumerGroup,
        connection: Connection,
        member: Member,
        *,
        keep_subscriptions: bool = False,
    ) -> bool:
        """Register or refresh a consumer; True when members or topics changed.

        `keep_subscriptions` is for a heartbeat that left them out (remoting:4.2).
        """
        group = self.consumers.setdefault(incoming.name, incoming)
        group.consume_type = incoming.consume_type
        group.message_model = incoming.message_model
        group.consume_from_where = incoming.consume_from_where
        joined = connection not in group.members
        group.members[connection] = member
        if keep_subscriptions:
            return joined
        changed = group is incoming or group.subscribe(incoming.subscriptions.values())
        return joined or changed

    def remove(
        self, connection: Connection, *, producer_group: str | None, consumer_group: str | None
    ) -> ConsumerGroup | None:
        """Take a client out of the named groups; the consumer group it left, if it was in it."""
        if producer_group and producer_group in self.producers:
            self._remove_producer(producer_group, connection)
        return self._remove_consumer(consumer_group, connection) if consumer_group else None

    def remove_connection(self, connection: Connection) -> list[ConsumerGroup]:
        """Take a connection out of every group; the consumer groups it was in."""
        for name in [n for n, members in self.producers.items() if connection in members]:
            self._remove_producer(name, connection)
        names = [n for n, group in self.consumers.items() if connection in group.members]
        left = (self._remove_consumer(name, connection) for name in names)
        return [group for group in left if group is not None]

    def silent_since(self, moment: float) -> Iterator[Connection]:
        """Connections with a member last seen before `moment` (monotonic seconds)."""
        seen: set[Connection] = set()
        tables = [*self.producers.values(), *(group.members for group in self.consumers.values())]
        for members in tables:
            for connection, member in members.items():
                if member.last_seen < moment and connection not in seen:
                    seen.add(connection)
                    yield connection

    def groups_of_topic(self, topic: str) -> list[str]:
        """Online consumer groups that subscribe the topic, sorted."""
        return sorted(g.name for g in self.consumers.values() if topic in g.subscriptions)

    def _remove_producer(self, name: str, connection: Connection) -> None:
        members = self.producers[name]
        gone = members.pop(connection, None)
        if not members:
            del self.producers[name]
        if gone is not None:
            self._uncount(gone.client_id, connection)

    def _uncount(self, client_id: str, connection: Connection) -> None:
        """One group fewer knows the connection under this id."""
        connections = self._producer_ids[client_id]
        connections[connection] -= 1
        if not connections[connection]:
            del connections[connection]
            if not connections:
                del self._producer_ids[client_id]

    def _remove_consumer(self, name: str, connection: Connection) -> ConsumerGroup | None:
        group = self.consumers.get(name)
        if group is None or group.members.pop(connection, None) is None:
            return None
        if not group.members:
            del self.consumers[name]
        return group
