"""The interface of a consumer's offset store, and the part that stores keep in memory (client:D.13)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from sparrowmq.core.message import MessageQueue

Births = dict[MessageQueue, int]
"""For each queue the birth of the topic to which its offsets belong: a number that the broker gives a topic
when it is created, so one that is created again with the same name has another. Unknown ones are missing.
"""


class OffsetStore(Protocol):
    """Stores a consumer's offsets: for each queue the next one to consume."""

    async def load(self) -> None:
        """Called once before anything else. Raises `ClientError` when the stored offsets cannot be read."""

    def get(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Raise the offset in memory; it is never lowered by this."""

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset in memory, wherever it was."""

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset in memory and keep it unchanged until it is forgotten (client:D-27)."""

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset in memory."""

    async def read(self, queue: MessageQueue) -> int | None:
        """The stored offset, or None; also puts it in memory. Raises `SparrowError`."""

    async def persist(self, queues: Iterable[MessageQueue], *, confirmed: bool = False) -> bool:
        """Store the in-memory offsets of `queues`. Returns whether all were stored.

        With `confirmed` it waits until they are certainly stored.
        """

    async def persist_all(self, queues: Collection[MessageQueue]) -> bool:
        """`persist`, and forget all other queues; does nothing without queues (client:D-77)."""


def births_of(store: OffsetStore) -> Births:
    """The births of a store's offsets. A user's store has none: they are remembered beside it."""
    return store.births if isinstance(store, MemoryOffsets) else {}


class MemoryOffsets:
    """The memory of an offset store; `births` of the offsets in it."""

    def __init__(self) -> None:
        self.births: Births = {}
        self._offsets: dict[MessageQueue, int] = {}
        self._frozen: set[MessageQueue] = set()

    def get(self, queue: MessageQueue) -> int | None:
        """The offset in memory."""
        return self._offsets.get(queue)

    def advance(self, queue: MessageQueue, offset: int) -> None:
        """Raise the offset in memory; it is never lowered by this. A missing entry is made (client:D-75)."""
        if offset > self._offsets.get(queue, -1) and queue not in self._frozen:
            self._offsets[queue] = offset

    def set(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset in memory, wherever it was."""
        if queue not in self._frozen:
            self._offsets[queue] = offset

    def freeze(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset in memory; calls that still run change nothing until it is forgotten."""
        self._offsets[queue] = offset
        self._frozen.add(queue)

    def forget(self, queue: MessageQueue) -> None:
        """Drop the offset in memory."""
        self._offsets.pop(queue, None)
        self.births.pop(queue, None)
        self._frozen.discard(queue)

    def _known(self, queues: Iterable[MessageQueue]) -> list[tuple[MessageQueue, int]]:
        return [(queue, offset) for queue in queues if (offset := self._offsets.get(queue)) is not None]

    def _forget_others(self, queues: Collection[MessageQueue]) -> None:
        kept = set(queues)
        for queue in [queue for queue in self._offsets if queue not in kept]:
            self.forget(queue)
