"""Who is connected: producer and consumer groups, their members and subscriptions (broker:10)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparrowmq.core.subscription import SubscriptionData

if TYPE_CHECKING:
    from sparrowmq.protocol.bodies import ConsumeFromWhere, ConsumeType, MessageModel
    from sparrowmq.transport.connection import Connection


MEMBERS_MAX: Final = 200_000
"""Default limit of members of all groups, producers and consumers; a client counts once per group."""
MEMBERS_OF_ONE: Final = 100
"""Number of groups that one connection may always join while there is room. It may join more only if they are
at most a quarter of the remaining room, so that a few connections cannot use all of it."""
SHARE: Final = 4
NAME_CHARS_MAX: Final = 255
SUBSCRIPTION_BYTES: Final = 500
TAG_BYTES: Final = 100
SUBSCRIBED_MAX: Final = 64 * 1024 * 1024
"""Maximum size of all groups' subscriptions, as `subscribed_bytes` counts it."""
LANGUAGE_CHARS_MAX: Final = 32


def subscribed_bytes(wanted: Iterable[SubscriptionData]) -> int:
    """Approximate memory of subscriptions."""
    return sum(
        SUBSCRIPTION_BYTES
        + len(one.topic)
        + len(one.expression)
        + sum(TAG_BYTES + len(tag) for tag in one.tags)
        for one in wanted
    )


@dataclass(slots=True)
class ConnectedMember:
    """One client in a group, on one connection.

    `last_seen` is in monotonic seconds, and so is `asked`, the time of the last query for its subscriptions.
    """

    client_id: str
    language: str
    version: int
    last_seen: float
    asked: float = 0.0


@dataclass(slots=True)
class ConsumerGroup:
    """A consumer group with members: its subscriptions and its members.

    `fingerprint` is that of the latest heartbeat of version 2; 0 before the first one.
    """

    name: str
    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[Connection, ConnectedMember] = field(default_factory=dict)
    told: dict[Connection, int] = field(default_factory=dict)
    """The newest version of a subscription that each member has told, by its own clock."""
    fingerprint: int = 0
    size: int = 0
    """Bytes of the subscriptions, as `ClientTable` counts them."""

    @property
    def client_ids(self) -> list[str]:
        """Ids of the members; a reconnected member appears once."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    def subscribe(self, connection: Connection, wanted: Collection[SubscriptionData]) -> bool:
        """Replace the subscriptions by a heartbeat's; True if a topic was added or removed (broker:10.2).

        What a member says for the first time counts, in the order of arrival: versions are times, and the
        clocks of two members cannot be compared.
        """
        changed = False
        topics = set()
        before = self.told.get(connection)
        for data in wanted:
            topics.add(data.topic)
            known = self.subscriptions.get(data.topic)
            changed = changed or known is None
            if known is None or before is None or data.version > before:
                self.subscriptions[data.topic] = data
        for topic in self.subscriptions.keys() - topics:
            del self.subscriptions[topic]
            changed = True
        self.note(connection, wanted)
        return changed

    def note(self, connection: Connection, told: Iterable[SubscriptionData]) -> None:
        """A member told these subscriptions."""
        before = self.told.get(connection, 0)
        self.told[connection] = max([before, *(data.version for data in told)])

    def was_told(self, connection: Connection, version: int) -> bool:
        """Whether the client on a connection has told the subscription that it refers to. A connection that
        told none may refer to that of any member."""
        newest = self.told.get(connection)
        return version <= (max(self.told.values(), default=0) if newest is None else newest)


class ClientTable:
    """Producers and consumers by group, of which all groups together have at most `members_max`. A group
    without members does not exist.
    """

    def __init__(self, members_max: int = MEMBERS_MAX) -> None:
        self.members_max = members_max
        self.producers: dict[str, dict[Connection, ConnectedMember]] = {}
        self.consumers: dict[str, ConsumerGroup] = {}
        self._producer_ids: dict[str, dict[Connection, int]] = {}
        """Connections by the client id of their producers, and the number of groups of each."""
        self._producing: dict[Connection, dict[str, None]] = {}
        self._consuming: dict[Connection, dict[str, None]] = {}
        """The groups of each connection."""
        self.count = 0
        """Members of all groups."""
        self.subscribed = 0
        """Bytes of all groups' subscriptions."""

    def problem(
        self,
        connection: Connection,
        client_id: str,
        producers: list[str],
        wanted: Mapping[str, Iterable[SubscriptionData]],
    ) -> str:
        """Why a connection cannot join these groups, or an empty result.

        `wanted` has its subscriptions by consumer group.
        """
        consumers = list(wanted)
        if len(client_id) > NAME_CHARS_MAX:
            return f"a client id has at most {NAME_CHARS_MAX} characters, {client_id[:80]!r}… is longer"
        long = next((name for name in (*producers, *consumers) if len(name) > NAME_CHARS_MAX), None)
        if long is not None:
            return f"a group's name has at most {NAME_CHARS_MAX} characters, {long[:80]!r}… has {len(long)}"
        made, used = self._producing.get(connection, {}), self._consuming.get(connection, {})
        new = sum(name not in made for name in producers) + sum(name not in used for name in consumers)
        if new and self.count + new > self.members_max:
            return (
                f"the groups of this broker have {self.count} members and the limit is "
                f"{self.members_max} (membersMax): a new one is accepted when others leave"
            )
        most = max(MEMBERS_OF_ONE, (self.members_max - self.count) // SHARE)
        if new and len(made) + len(used) + new > most:
            return (
                f"this connection is in {len(made) + len(used)} groups and the limit for one is {most}, a "
                f"quarter of the unused part of {self.members_max} members (membersMax): use one connection "
                f"for each client"
            )
        known = sum(group.size for name in consumers if (group := self.consumers.get(name)) is not None)
        more = sum(map(subscribed_bytes, wanted.values())) - known
        if more > 0 and self.subscribed + more > SUBSCRIBED_MAX:
            return (
                f"the subscriptions of this broker's groups take {self.subscribed} bytes and the limit is "
                f"{SUBSCRIBED_MAX}: {more} more bytes are accepted when members leave"
            )
        return ""

    def add_producer(self, group: str, connection: Connection, member: ConnectedMember) -> None:
        """Register or refresh a producer."""
        members = self.producers.setdefault(group, {})
        before = members.get(connection)
        members[connection] = member
        if before is None:
            self._producing.setdefault(connection, {})[group] = None
            self.count += 1
        if before is None or before.client_id != member.client_id:
            connections = self._producer_ids.setdefault(member.client_id, {})
            connections[connection] = connections.get(connection, 0) + 1
            if before is not None:
                self._uncount(before.client_id, connection)

    def producer(self, client_id: str) -> Connection | None:
        """The connection of the producer with a client id; the newest if there are several."""
        return next(reversed(self._producer_ids.get(client_id, {})), None)

    def consumer(self, group: str, client_id: str) -> Connection | None:
        """The connection of a group's member with a client id; the newest if there are several."""
        members = self.consumers[group].members if group in self.consumers else {}
        found = [connection for connection, member in members.items() if member.client_id == client_id]
        return found[-1] if found else None

    def add_consumer(
        self,
        incoming: ConsumerGroup,
        connection: Connection,
        member: ConnectedMember,
        *,
        keep_subscriptions: bool = False,
    ) -> bool:
        """Register or refresh a consumer; True when members or topics changed.

        `keep_subscriptions` is for a heartbeat that omitted them (remoting:4.2).
        """
        group = self.consumers.setdefault(incoming.name, incoming)
        group.consume_type = incoming.consume_type
        group.message_model = incoming.message_model
        group.consume_from_where = incoming.consume_from_where
        group.fingerprint = incoming.fingerprint
        joined = connection not in group.members
        if joined:
            self._consuming.setdefault(connection, {})[group.name] = None
            self.count += 1
        group.members[connection] = member
        if keep_subscriptions:
            self._measure(group)
            return joined
        changed = group.subscribe(connection, incoming.subscriptions.values()) or group is incoming
        self._measure(group)
        return joined or changed

    def renew(self, group: ConsumerGroup, data: SubscriptionData) -> bool:
        """A member sent a newer subscription; False, with no change, when there is no room for it."""
        more = subscribed_bytes([data]) - subscribed_bytes([group.subscriptions[data.topic]])
        if more > 0 and self.subscribed + more > SUBSCRIBED_MAX:
            return False
        group.subscriptions[data.topic] = data
        self._measure(group)
        return True

    def remove(
        self, connection: Connection, *, producer_group: str | None, consumer_group: str | None
    ) -> ConsumerGroup | None:
        """Remove a client from the named groups; returns the consumer group if it was a member."""
        if producer_group and producer_group in self.producers:
            self._remove_producer(producer_group, connection)
        return self._remove_consumer(consumer_group, connection) if consumer_group else None

    def leaving(self, connection: Connection) -> Iterator[ConsumerGroup | None]:
        """Remove a connection from every group in steps; each returns the consumer group it left, if any."""
        for name in list(self._producing.get(connection, ())):
            if name in self.producers:
                self._remove_producer(name, connection)
            yield None
        for name in list(self._consuming.get(connection, ())):
            yield self._remove_consumer(name, connection)

    def looked_at(self, moment: float) -> Iterator[Connection | None]:
        """Connections with a member last seen before `moment` (monotonic seconds), in steps.

        Most steps find none. Members that join meanwhile may be missed.
        """
        seen: set[Connection] = set()
        tables = [*self.producers.values(), *(group.members for group in self.consumers.values())]
        for members in tables:
            for connection, member in list(members.items()):
                if member.last_seen < moment and connection not in seen:
                    seen.add(connection)
                    yield connection
            yield None

    def groups_of_topic(self, topic: str) -> list[str]:
        """Online consumer groups that subscribe to the topic, sorted."""
        return sorted(g.name for g in self.consumers.values() if topic in g.subscriptions)

    def _remove_producer(self, name: str, connection: Connection) -> None:
        members = self.producers[name]
        gone = members.pop(connection, None)
        if not members:
            del self.producers[name]
        if gone is not None:
            _leave(self._producing, connection, name)
            self.count -= 1
            self._uncount(gone.client_id, connection)

    def _uncount(self, client_id: str, connection: Connection) -> None:
        """Decrease the number of groups that know the connection under this id."""
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
        group.told.pop(connection, None)
        _leave(self._consuming, connection, name)
        self.count -= 1
        if not group.members:
            del self.consumers[name]
            self.subscribed -= group.size
            group.size = 0
        return group

    def _measure(self, group: ConsumerGroup) -> None:
        """Recalculate the size of a group's subscriptions."""
        size = subscribed_bytes(group.subscriptions.values())
        self.subscribed += size - group.size
        group.size = size


def _leave(groups: dict[Connection, dict[str, None]], connection: Connection, name: str) -> None:
    """Remove the group from the connection's groups."""
    names = groups[connection]
    del names[name]
    if not names:
        del groups[connection]
