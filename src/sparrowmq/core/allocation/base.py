"""The interface of all strategies, their common checks, and Java's order of names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sparrowmq.core.errors import AllocationError
from sparrowmq.core.message import MessageQueue


class AllocateStrategy(Protocol):
    """Divides the queues of a topic among the members of a group."""

    @property
    def name(self) -> str:
        """RocketMQ's name of the strategy, which all members of a group share."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The queues of `client_id`, a member of `group`.

        `queues` are sorted by `queue_key` and `client_ids` by `utf16_key`; a client with two connections is
        in `client_ids` twice. Raises `AllocationError` for arguments that cannot be divided.
        """


def utf16_key(text: str) -> bytes:
    """Sort key that orders text as Java does, by UTF-16 code unit (client:Z-04)."""
    return text.encode("utf-16-be", "surrogatepass")


def queue_key(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    """Sort key of queues as Java orders them: topic, broker name, queue id."""
    return utf16_key(queue.topic), utf16_key(queue.broker_name), queue.queue_id


def position(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> int | None:
    """The index of `client_id` in `client_ids`; None when it is missing (client:C-17).

    At first a broker does not know a new client, which then gets no queues. Raises `AllocationError` when an
    argument is empty (client:C-16).
    """
    if not client_id:
        raise AllocationError("the client id is empty; a member of a group has one", what="client")
    if not queues:
        text = "there are no queues to assign; check that the topic has readable ones"
        raise AllocationError(text, what="queues")
    if not client_ids:
        raise AllocationError("the group has no members to assign queues to", what="members")
    return client_ids.index(client_id) if client_id in client_ids else None
