"""Polling of a pull consumer: messages in batches or one at a time, positions, pauses (client:E.3)."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING

from sparrowmq.client.base.lifecycle import Lifecycle, State
from sparrowmq.client.base.offset_store_protocol import OffsetStore
from sparrowmq.client.base.settings import PullSettings, check_range
from sparrowmq.client.pull.queue_lookups import QueueLookups
from sparrowmq.core.errors import ClientError
from sparrowmq.core.message import MessageQueue, ReceivedMessage

if TYPE_CHECKING:  # loaded only when a member joins a group
    from sparrowmq.client.pull.polling import LitePull, LoopReader
    from sparrowmq.client.pull.pull_member import PullMember


class PolledQueues(QueueLookups):
    """The part of `PullConsumer` that polls."""

    settings: PullSettings
    _life: Lifecycle
    _failure: ClientError | None
    _lite: LitePull | None
    _member: PullMember | None

    @abstractmethod
    def _need_lite(self) -> LitePull:
        """What reads ahead; raises `InvalidStateError` when nothing is subscribed or assigned."""

    @abstractmethod
    def _need_store(self) -> OffsetStore:
        """The group's offsets; raises `ClientError` without a group."""

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that this consumer reads now, sorted."""
        return [] if self._member is None else sorted(self._member.owned())

    async def poll(self, timeout: float | None = None) -> list[ReceivedMessage]:
        """The next messages of one queue, at most `pull_batch`; empty when none arrived in time.

        `timeout` in seconds defaults to `poll_timeout` (5). The messages count as handled when the next ones
        are asked for, at `commit`, and when the consumer is closed without an error. Raises
        `InvalidStateError` when nothing is subscribed or assigned, `SettingsError` for a negative timeout.
        """
        self._running()
        lite = self._need_lite()
        limit = self.settings.poll_timeout if timeout is None else timeout
        check_range("timeout", limit, 0, 86400, "seconds")
        messages = await lite.poll(limit)
        if self._failure is not None and not messages:
            raise self._failure
        return messages

    def __aiter__(self) -> AsyncIterator[ReceivedMessage]:
        """The messages of all queues, one at a time, until the consumer is closed.

        A message counts as handled when the loop asks for the next one, or when `commit` is called. The one
        at which the loop is left, by `break` or an error, is delivered again. Raises the errors of `poll`,
        and `InvalidStateError` when another loop or a `poll` has taken over.
        """
        return self._iterate(self._need_lite())

    async def _iterate(self, lite: LitePull) -> AsyncIterator[ReceivedMessage]:
        reader = lite.new_reader()
        try:
            while message := await self._next_message(reader):
                yield message
        finally:
            lite.leave(reader)

    async def _next_message(self, reader: LoopReader) -> ReceivedMessage | None:
        """Wait for the next message, while due offsets are committed. None when the consumer was closed."""
        while self._life.state not in (State.CLOSING, State.CLOSED):
            lite = self._need_lite()
            if found := await lite.poll(self.settings.auto_commit_interval, reader):
                return found[0]
        if self._failure is not None:
            raise self._failure
        return None

    async def position(self, queue: MessageQueue) -> int | None:
        """The offset of the next message to handle in `queue`: of the next one polled, or else as committed.
        None if there is none.
        """
        found = None if self._lite is None else self._lite.position(queue)
        return await self.fetch_consume_offset(queue) if found is None else found

    @property
    def lag(self) -> dict[MessageQueue, int]:
        """Messages not handled yet per polled queue, as of the last pull."""
        return {} if self._lite is None else self._lite.lag()

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Poll `queue` from `offset` on; its buffered messages are discarded.

        Raises `ClientError` when the queue is not in `assignment`, `SettingsError` when the offset is below
        the smallest stored one or above the next one.
        """
        lite = self._need_lite()
        lite.need(queue)
        low, high = await asyncio.gather(self.min_offset(queue), self.max_offset(queue))
        check_range(f"offset of {queue}", offset, low, high)
        lite.seek(queue, offset)

    async def seek_to_beginning(self, queue: MessageQueue) -> None:
        """Poll `queue` from the oldest stored message on."""
        self._need_lite().need(queue)
        offset = await self.min_offset(queue)
        self._need_lite().seek(queue, offset)

    seek_to_begin = seek_to_beginning

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Poll only messages that are stored in `queue` from now on."""
        self._need_lite().need(queue)
        offset = await self.max_offset(queue)
        self._need_lite().seek(queue, offset)

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop reading from these queues; buffered messages are still returned by `poll`. Raises
        `ClientError` for a queue that is not in `assignment`.
        """
        self._need_lite().pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Resume reading from paused queues. Raises the same errors as `pause`."""
        self._need_lite().resume(queues)

    @property
    def paused(self) -> list[MessageQueue]:
        """The paused queues, sorted."""
        return [] if self._lite is None else self._lite.paused

    # Offsets in memory

    def store_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the next offset to consume in memory; it may be smaller than before. It is sent every
        `persist_interval` seconds for queues of the member's share. Other queues need `commit`.
        """
        check_range("offset", offset, 0, 2**63 - 1)
        self._need_store().set(queue, offset)

    update_consume_offset = store_offset

    async def fetch_consume_offset(self, queue: MessageQueue, *, from_store: bool = False) -> int | None:
        """The next offset to consume: the one in memory, or else the broker's. With `from_store` only the
        broker's. None if there is none.
        """
        store = self._need_store()
        known = None if from_store else store.get(queue)
        return await self._reader.committed(queue) if known is None else known
