"""Strategies by number of queues: even shares in two orders, and a list from the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from sparrowmq.core.allocation.base import position
from sparrowmq.core.message import MessageQueue


@dataclass(frozen=True, slots=True)
class Averagely:
    """Contiguous shares, the first members get one more: RocketMQ's default (client:C.5.1)."""

    name: ClassVar[str] = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The caller's share, see `AllocateStrategy`."""
        index = position(client_id, queues, client_ids)
        if index is None:
            return []
        size, rest = divmod(len(queues), len(client_ids))
        start = index * size + min(index, rest)
        return list(queues[start : start + size + (index < rest)])


@dataclass(frozen=True, slots=True)
class AveragelyByCircle:
    """Queues are dealt like cards (client:C.5.2)."""

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The caller's share, see `AllocateStrategy`."""
        index = position(client_id, queues, client_ids)
        return [] if index is None else list(queues[index :: len(client_ids)])


@dataclass(frozen=True, slots=True)
class ByConfig:
    """The queues that were configured, whatever queues and members there are (client:C.5.3, C-18).

    Reading a queue that does not exist finds nothing; a queue that another member also has is read twice.
    """

    queues: Sequence[MessageQueue]
    name: ClassVar[str] = "CONFIG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """All configured queues, for every topic that is divided."""
        return list(self.queues)
