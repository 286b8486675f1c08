"""Consumers that are connected to a proxy, which told of them: for tools, not for the division of queues.

A proxy tells of each of its consumers (90501) on its own connection. They belong to that connection: when
it is lost they are forgotten, and the proxy tells of them again. They receive by POP from all queues, so they
are not in the member lists by which members divide queues.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.tables.clients import SUBSCRIBED_MAX, subscribed_bytes

if TYPE_CHECKING:
    from sparrowmq.core.subscription import SubscriptionData
    from sparrowmq.protocol.bodies import ConsumeType
    from sparrowmq.transport.connection import Connection

PROXIED_MAX: Final = 100_000
"""Maximum number of such members of all groups."""
PROXIED_OF_ONE: Final = 100
"""A connection may always have so many while there is room, and more if they are at most a quarter of the
remaining room."""
SHARE: Final = 4
ADDRESS_CHARS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ProxiedMember:
    """One consumer of a group. `connection` is that of its proxy, `address` (`host:port`) is its own."""

    client_id: str
    address: str
    language: str
    version: int
    consume_type: ConsumeType
    connection: Connection
    subscriptions: tuple[SubscriptionData, ...] = field(default=())


Place = tuple[str, str]
"""A group and a client id."""


class ProxiedClients:
    """The consumers that proxies told of, by group and client id."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, ProxiedMember]] = {}
        self._places: dict[Connection, dict[Place, None]] = {}
        self.count = 0
        self.subscribed = 0
        """Bytes of all subscriptions."""

    def __repr__(self) -> str:
        return f"<ProxiedClients {self.count} of {len(self._places)} proxies>"

    def problem(self, group: str, member: ProxiedMember) -> str:
        """Why a member cannot be taken in, or an empty result."""
        known = self.find(group, member.client_id)
        if known is None and self.count >= PROXIED_MAX:
            return f"the groups of this broker have {PROXIED_MAX} members at proxies, which is the limit"
        most = max(PROXIED_OF_ONE, (PROXIED_MAX - self.count) // SHARE)
        mine = self._places.get(member.connection, {})
        if (group, member.client_id) not in mine and len(mine) >= most:
            return (
                f"this connection has {len(mine)} members and the limit for one is {most}, a quarter of the "
                f"unused part of {PROXIED_MAX}"
            )
        more = subscribed_bytes(member.subscriptions)
        if known is not None:
            more -= subscribed_bytes(known.subscriptions)
        if more > 0 and self.subscribed + more > SUBSCRIBED_MAX:
            return f"the subscriptions of members at proxies take {SUBSCRIBED_MAX} bytes, which is the limit"
        return ""

    def put(self, group: str, member: ProxiedMember) -> None:
        """Take in a member, in place of one with the same id."""
        self._remove(group, member.client_id)
        self._groups.setdefault(group, {})[member.client_id] = member
        self._places.setdefault(member.connection, {})[group, member.client_id] = None
        self.count += 1
        self.subscribed += subscribed_bytes(member.subscriptions)

    def find(self, group: str, client_id: str) -> ProxiedMember | None:
        """A member by its id."""
        return self._groups.get(group, {}).get(client_id)

    def of_group(self, group: str) -> list[ProxiedMember]:
        """The members of a group."""
        return list(self._groups.get(group, {}).values())

    def remove(self, connection: Connection, group: str, client_id: str) -> None:
        """A proxy says that a member left; without effect for one that another proxy told of since."""
        if (group, client_id) in self._places.get(connection, {}):
            self._remove(group, client_id)

    def leaving(self, connection: Connection) -> Iterator[None]:
        """Forget the members of a lost connection, one in each step."""
        for group, client_id in list(self._places.get(connection, ())):
            self.remove(connection, group, client_id)
            yield

    def _remove(self, group: str, client_id: str) -> None:
        members = self._groups.get(group, {})
        gone = members.pop(client_id, None)
        if gone is None:
            return
        if not members:
            del self._groups[group]
        places = self._places[gone.connection]
        del places[group, client_id]
        if not places:
            del self._places[gone.connection]
        self.count -= 1
        self.subscribed -= subscribed_bytes(gone.subscriptions)
