"""Consistent hashing: a member that joins or leaves moves few queues (client:C.5.6)."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import ClassVar, Final

from sparrowmq.core.allocation.base import position
from sparrowmq.core.errors import AllocationError
from sparrowmq.core.message import MessageQueue

VIRTUAL_NODES: Final = 10
"""Default number of points of each member on the ring."""


def md5_point(text: str) -> int:
    """The reference's hash: the first four bytes of the MD5 of the text, unsigned, big-endian."""
    return int.from_bytes(md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


@dataclass(frozen=True, slots=True)
class ConsistentHash:
    """Each queue belongs to the first member on the ring at or after the queue's point.

    `virtual_nodes` is how many points a member has, `point` the hash function. Shares may be uneven. Raises
    `AllocationError` for a negative number of points; with 0 points no member gets a queue.
    """

    virtual_nodes: int = VIRTUAL_NODES
    point: Callable[[str], int] = md5_point
    name: ClassVar[str] = "CONSISTENT_HASH"

    def __post_init__(self) -> None:
        if self.virtual_nodes < 0:
            text = f"virtual_nodes={self.virtual_nodes}: must be 0 or more"
            raise AllocationError(text, what="virtual_nodes", value=self.virtual_nodes)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The caller's share, see `AllocateStrategy`."""
        if position(client_id, queues, client_ids) is None:
            return []
        ring = self._ring(client_ids)
        points = sorted(ring)
        if not points:
            return []
        point, count = self.point, len(points)
        owners = [ring[at] for at in points]
        return [
            queue for queue in queues if owners[bisect_left(points, point(_text(queue))) % count] == client_id
        ]

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """Points and their owners. The points of a client that is listed twice are numbered consecutively."""
        ring: dict[int, str] = {}
        held: Counter[str] = Counter()
        for client_id in client_ids:
            first = held[client_id]
            for number in range(first, first + self.virtual_nodes):
                at = self.point(f"{client_id}-{number}")
                loser = ring.get(at)
                if loser is not None:
                    held[loser] -= 1
                ring[at] = client_id
                held[client_id] += 1
        return ring


def _text(queue: MessageQueue) -> str:
    """A queue as Java prints it."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
