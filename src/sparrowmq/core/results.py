"""Results of sends and pulls."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final, Literal

import msgspec

from sparrowmq.core.errors import RecordError
from sparrowmq.core.message import MessageQueue, ReceivedMessage

_RECORD_SIZE: Final = struct.Struct(">i")
_RECORD_BYTES_MIN: Final = 91


class SendStatus(IntEnum):
    """Whether a stored message was also flushed and replicated in time (client:B-42). All of them mean that
    it is stored.
    """

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class SendResult(msgspec.Struct, frozen=True, gc=False):
    """Where a message was stored. For a batch, `message_ids` are the messages' ids (`message_id` and
    `offset_message_id` join them with commas) and the offset is the first one's.

    `recall_handle` belongs to a message with a delivery time; `Producer.recall` cancels it. `region` and
    `trace_on` are the broker's (client:B-44). `idempotent`: the broker checked the send of an idempotent
    producer; for a repeated send, this is the offset of the first one.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str = "DefaultRegion"
    trace_on: bool = True
    idempotent: bool = False

    @property
    def message_ids(self) -> list[str]:
        """The id of each message."""
        return self.message_id.split(",")


ReadFrom = Literal["master", "slave"]
"""Which replica of a broker to read from."""


class PullStatus(Enum):
    """Outcome of one pull (remoting:3)."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MESSAGE"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(frozen=True, slots=True)
class PullResult:
    """Decoded messages of one pull and the next offset; offsets are queue offsets."""

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class RawBatch:
    """A sequence of stored records, as the broker sent them, and the next offset.

    `buffer` has complete records (remoting:5.1). `next_offset` is the queue offset after the last record that
    the broker examined, so with a filter it may be beyond the returned records.
    """

    status: PullStatus
    buffer: bytes
    next_offset: int
    min_offset: int
    max_offset: int

    @property
    def count(self) -> int:
        """The number of records, counted on each access because bulk readers do not need it.

        Raises `ProtocolError` when the sizes, each in a record's first four bytes, do not add up.
        """
        count = position = start = 0
        end, size_at = len(self.buffer), _RECORD_SIZE.unpack_from
        while position <= end - _RECORD_BYTES_MIN:
            start = position
            size = size_at(self.buffer, position)[0]
            if size < _RECORD_BYTES_MIN:
                break
            position += size
            count += 1
        if position != end:
            start = start if position > end else position
            raise RecordError(
                f"record at byte {start} of {end}: its size does not fit the bytes that are there",
                what="size",
                value=start,
                limit=end,
            )
        return count
