"""The methods of `aio.PullConsumer` that fetching and look-ups use."""

from __future__ import annotations

from typing import Protocol

from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import RawBatch, ReadFrom
from sparrowmq.core.subscription import Expression


class RawConsumer(Protocol):
    """The methods of `aio.PullConsumer` that a fetcher uses."""

    async def fetch_raw(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        max_bytes: int,
        max_messages: int,
        expression: Expression,
        read_from: ReadFrom | None = None,
    ) -> RawBatch:
        """Stored records from `offset` on."""
