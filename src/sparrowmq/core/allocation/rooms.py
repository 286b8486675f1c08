"""Strategies that know machine rooms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from sparrowmq.core.allocation.base import AllocateStrategy, position, utf16_key
from sparrowmq.core.errors import AllocationError
from sparrowmq.core.message import MessageQueue

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Only queues of brokers called `room@name` in one of `rooms` are divided (client:C.5.4).

    All members take part, regardless of their room.
    """

    rooms: Collection[str]
    name: ClassVar[str] = "MACHINE_ROOM"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The caller's share, see `AllocateStrategy`."""
        index = position(client_id, queues, client_ids)
        if index is None:
            return []
        kept = [queue for queue in queues if _room(queue.broker_name) in self.rooms]
        size, rest = divmod(len(kept), len(client_ids))
        share = kept[index * size : (index + 1) * size]
        if index < rest:
            share.append(kept[index + size * len(client_ids)])
        return share


def _room(broker_name: str) -> str | None:
    """The room of `room@name`; None for other names. Java's split drops empty parts at the end."""
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


class RoomResolver(Protocol):
    """Knows in which room a queue's broker and a client run; an empty room is an error."""

    def queue_room(self, queue: MessageQueue) -> str:
        """The room of the queue's broker."""

    def client_room(self, client_id: str) -> str:
        """The room of a client."""


@dataclass(frozen=True, slots=True)
class MachineRoomNearby:
    """Queues go to members in their room; queues of rooms without members go to all members (client:C.5.5).

    `inner` divides within a room.
    """

    inner: AllocateStrategy
    resolver: RoomResolver

    @property
    def name(self) -> str:
        """RocketMQ's name, with the inner strategy's."""
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The caller's share, see `AllocateStrategy`. Raises `AllocationError` for an empty room."""
        if position(client_id, queues, client_ids) is None:
            return []
        queue_rooms = _by_room(queues, self.resolver.queue_room)
        members = _by_room(client_ids, self.resolver.client_room)
        own = self.resolver.client_room(client_id)
        share = []
        if own in queue_rooms:
            share += self.inner.allocate(group, client_id, queue_rooms[own], members[own])
        for room in sorted(queue_rooms.keys() - members.keys(), key=utf16_key):
            share += self.inner.allocate(group, client_id, queue_rooms[room], client_ids)
        return share


def _by_room(items: Sequence[T], room_of: Callable[[T], str]) -> dict[str, list[T]]:
    rooms: dict[str, list[T]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            text = f"{item} has no machine room; the resolver must name one for each"
            raise AllocationError(text, what="room", value=item)
        rooms.setdefault(room, []).append(item)
    return rooms
