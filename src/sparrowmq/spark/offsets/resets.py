"""Where a stream resumes in a queue that was recreated or truncated since it was read.

Pure. Either the topic was deleted and recreated, and all its messages are new; or the broker lost the end of
the queue, and the remaining messages were read before. The age of the oldest message decides: a message that
existed when the offset was last known to be valid is not new. So a recreated topic is detected even if it has
already grown past the offset. A queue that lost its end and has grown past the offset is detected by its mark
(`offsets.MessageMark`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparrowmq.core.message import MessageQueue
from sparrowmq.spark.offsets.offsets import MessageMark

SKEW_MS: Final = 60_000
"""Maximum assumed difference between the clocks of broker and driver."""


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """A queue that was read up to `read_to` and now has offsets from `first` to before `end`.

    `recreated`: its topic was deleted and created again.
    """

    queue: MessageQueue
    read_to: int
    first: int
    end: int
    recreated: bool

    @property
    def offset(self) -> int:
        """The offset at which to resume."""
        return self.first if self.recreated else min(self.end, self.read_to)

    def __str__(self) -> str:
        there = f"offsets {self.first} to {self.end - 1}" if self.end > self.first else "no messages"
        if self.recreated:
            why = f"its topic was deleted and recreated, and begins at offset {self.first}"
        else:
            since = "" if self.end < self.read_to else " and stored other messages at the same offsets"
            why = (
                f"its broker lost the end of the queue{since}; messages stored there since, up to offset "
                f"{self.offset}, are skipped"
            )
        return f"queue {self.queue} was read up to offset {self.read_to} and has {there} now: {why}"


def was_replaced(oldest_ms: int | None, seen_ms: int) -> bool:
    """Whether a queue that still reaches the offset was nevertheless recreated.

    Arguments as in `is_recreated`.
    """
    return bool(seen_ms) and oldest_ms is not None and oldest_ms > seen_ms + SKEW_MS


def is_recreated(oldest_ms: int | None, seen_ms: int, read: MessageMark | None = None) -> bool:
    """Whether all messages of a queue are new.

    `oldest_ms` is when its oldest one was stored (None: it has none), `seen_ms` when the queue still reached
    as far as it was read (0: not known), both epoch milliseconds. The mark of the last message read is more
    exact, because the broker's clock gave both times.
    """
    if oldest_ms is None:
        return True
    return oldest_ms >= seen_ms - SKEW_MS if read is None else oldest_ms > read.stored_ms
