"""What sends and pulls give back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum

from sparrowmq.core.message import MessageQueue, ReceivedMessage


class SendStatus(IntEnum):
    """Whether a stored message was also flushed and replicated in time (client:B-42). All mean: stored."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


@dataclass(frozen=True, slots=True)
class SendResult:
    """Where a message was stored. For a batch the ids are comma-joined and the offset is the first one's."""

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None


class PullStatus(Enum):
    """Outcome of one pull (remoting:3)."""

    FOUND = "FOUND"
    NO_NEW_MESSAGE = "NO_NEW_MESSAGE"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    OFFSET_ILLEGAL = "OFFSET_ILLEGAL"


@dataclass(frozen=True, slots=True)
class PullResult:
    """Decoded messages of one pull and where to go on; offsets are queue offsets."""

    status: PullStatus
    messages: list[ReceivedMessage]
    next_offset: int
    min_offset: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class RawBatch:
    """Stored records back to back, as the broker sent them, and where to go on.

    `buffer` holds whole records (remoting:5.1), `count` of them; `next_offset` is the queue offset after the
    last one the broker examined, so with a filter it may be further than the records say.
    """

    status: PullStatus
    buffer: bytes
    count: int
    next_offset: int
    min_offset: int
    max_offset: int
