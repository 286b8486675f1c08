"""Compares the messages of another attempt with stored ones, by reading the queue once, in order.

A broker knows only the positions of a producer's latest ranges. For earlier messages it reports where the
producer's epoch begins in the queue. This module reads on from there, chunk by chunk, and holds at most one
response in memory, whatever the size of the batch. Other messages of the queue are skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sparrowmq.columnar.marks import Numbered, family_ids, stored_messages
from sparrowmq.core.errors import BrokerError
from sparrowmq.core.message import MessageQueue
from sparrowmq.core.results import PullStatus, RawBatch
from sparrowmq.spark.options.table import WriteOptions
from sparrowmq.spark.write.identity import RowIdentity, first_epoch
from sparrowmq.spark.write.refusals import WriteRefusedError
from sparrowmq.spark.write.row_states import RowEvent
from sparrowmq.spark.write.send import retried

log = logging.getLogger("sparrowmq.spark")

READ_BYTES: Final = 4 * 1024 * 1024
_READ_MESSAGES: Final = 16_384
_LOOKS_AT_END: Final = 5
_LOOK_SECONDS: Final = 0.1
_NO_QUEUE: Final = "queueId["
"""In a broker's refusal to read a queue that it does not have, of any code."""
_FORBIDDEN: Final = frozenset({16, 24, 26})
"""Errors of a broker that does not let this account read: no permission, no such subscription or group."""


class Reader(Protocol):
    """The methods of `aio.PullConsumer` that are used."""

    async def fetch_raw(
        self, queue: MessageQueue, offset: int, *, max_bytes: int, max_messages: int
    ) -> RawBatch:
        """Stored records from `offset` on."""


ReaderOf = Callable[[], Awaitable[Reader]]
HashArray = npt.NDArray[np.uint64]


class Compared(NamedTuple):
    """The first `same` messages are stored unchanged; the next `gone` can no longer be found."""

    event: RowEvent
    same: int
    gone: int = 0


class QueueRead:
    """The chunks of a queue from an offset on, forward only.

    A read with a temporary failure is retried for as long as `options` allow.
    """

    def __init__(self, reader: ReaderOf, queue: MessageQueue, position: int, options: WriteOptions) -> None:
        self._reader = reader
        self._options = options
        self.queue = queue
        self.position = position
        self.end: int | None = None
        """The end of the queue at the first response: later messages are not read."""

    async def next(self) -> bytes | None:
        """Stored records; None at the queue's end. Messages deleted meanwhile are skipped."""
        if self.end is not None and self.position >= self.end:
            return None
        for look in range(_LOOKS_AT_END):
            what = f"reading {self.queue} back at {self.position}"
            answer = await retried(self._options, what, self._fetch, routed=True)
            if answer.status is PullStatus.OFFSET_ILLEGAL and answer.min_offset > self.position:
                self.position = answer.min_offset
            elif answer.next_offset > self.position:
                self.position = answer.next_offset
                self.end = answer.max_offset if self.end is None else self.end
                return answer.buffer
            elif look:  # newly stored messages may not be visible yet
                await asyncio.sleep(_LOOK_SECONDS)
        return None

    async def _fetch(self) -> RawBatch:
        reader = await self._reader()
        return await reader.fetch_raw(
            self.queue, self.position, max_bytes=READ_BYTES, max_messages=_READ_MESSAGES
        )


class StoredRun:
    """The messages of one epoch of a producer in a queue, in order; forward only."""

    def __init__(self, read: QueueRead, producer: str, epoch: int) -> None:
        self._read = read
        self._producer = producer
        self._epoch = epoch
        self._held: deque[Numbered] = deque()
        self._ended = False

    async def compare(self, sent: Sequence[Numbered]) -> Compared:
        """Compare `sent` with the queue; its numbers follow those of the previous call.

        Raises errors that make reads impossible.
        """
        for index, message in enumerate(sent):
            stored = await self._at(message.sequence)
            if stored is None or stored.sequence > message.sequence:
                rest = len(sent) - index
                gone = rest if stored is None else min(rest, stored.sequence - message.sequence)
                return Compared(RowEvent.DELETED, index, gone)
            if not stored.is_same(message):
                return Compared(RowEvent.OTHER, index)
        return Compared(RowEvent.SAME, len(sent))

    async def _at(self, sequence: int) -> Numbered | None:
        """The first message from a number on; None when the queue has none."""
        while True:  # ends: every round reads further, up to the queue's end
            while self._held:
                if self._held[0].sequence >= sequence:
                    return self._held[0]
                self._held.popleft()
            if self._ended or not await self._more():
                self._ended = True
                return None

    async def _more(self) -> bool:
        """Read on; False at the queue's end, and if reading is not allowed."""
        queue = self._read.queue
        try:
            chunk = await self._read.next()
        except BrokerError as error:
            if error.code not in _FORBIDDEN:
                raise
            log.warning(
                "%s may not be read, so rows of an earlier attempt are not compared: %s", queue, error
            )
            return False
        if chunk:
            found = stored_messages(chunk, self._producer, self._epoch, queue.topic, queue.queue_id)
            self._held.extend(found)
        return chunk is not None


async def stored_keys(
    reads: Sequence[QueueRead], identity: RowIdentity, topic: str, found: Callable[[HashArray], None]
) -> None:
    """Pass the key hashes of rows stored by earlier runs of a batch, queue by queue.

    Raises `WriteRefusedError` if reading is not allowed, and errors that make reads impossible.
    """
    head, epochs = identity.key_ids_head.encode(), range(first_epoch(identity.batch), identity.epoch(0))
    for read in reads:
        while (chunk := await _allowed(read)) is not None:  # ends at the queue's end
            ids = family_ids(chunk, identity.family(topic), epochs) if chunk else []
            own = b"".join(
                one[len(head) :] for one in ids if one.startswith(head) and len(one) == 2 * len(head)
            )
            found(np.frombuffer(bytes.fromhex(own.decode()), ">u8").astype(np.uint64))


async def _allowed(read: QueueRead) -> bytes | None:
    try:
        return await read.next()
    except BrokerError as error:
        if _NO_QUEUE in error.remark:
            log.info("%s does not exist any more, so it has no rows of earlier runs: %s", read.queue, error)
            return None
        if error.code not in _FORBIDDEN:
            raise
        raise WriteRefusedError(
            f"queue {read.queue} may not be read, so it is unknown which rows an earlier run of this batch "
            f"stored. Allow the account to subscribe to the topic, then run it again. The broker said: "
            f"{error}",
            value=error.code,
        ) from error
