"""Unread messages of queues that nobody can read any more: how many there are, and how a loss is accepted.

Pure. A loss has a token that names it: these queues, read up to these offsets, at this state of the
checkpoint, and at most so many messages. Any other loss has another token, so accepting one accepts no later
one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from sparrowmq.core.message import MessageQueue

UNKNOWN: Final = "all"
"""In a token: the number of messages is not known."""
_NAMED: Final = 5


@dataclass(frozen=True, slots=True, order=True)
class GoneQueue:
    """A queue that was read up to `place` and last known to end at `end` (None: not known)."""

    queue: MessageQueue
    place: int
    end: int | None
    why: str
    """Why nobody can read it."""

    @property
    def unread(self) -> int | None:
        """The number of its unread messages; None if it is not known."""
        return None if self.end is None else max(0, self.end - self.place)

    def __str__(self) -> str:
        if self.end is None:
            return f"{self.queue} from offset {self.place} on ({self.why}; its end is not known)"
        return f"{self.queue} offsets {self.place} to {self.end - 1} ({self.why})"


@dataclass(frozen=True, slots=True)
class UnreadLoss:
    """The queues with unread messages that are gone. `seen_ms` is that of the offset up to which was read."""

    queues: tuple[GoneQueue, ...]
    seen_ms: int

    @classmethod
    def of(cls, gone: Iterable[GoneQueue], seen_ms: int) -> UnreadLoss:
        """The loss in queues that are gone; it is empty if all were read to their end."""
        return cls(tuple(sorted(one for one in gone if one.unread != 0)), seen_ms)

    @property
    def count(self) -> int | None:
        """The number of messages; None if it is not known."""
        counts = [one.unread for one in self.queues]
        return None if None in counts else sum(count for count in counts if count is not None)

    @property
    def token(self) -> str:
        """Names this loss: a digest of where it begins, and its size."""
        places = [(*_names(one.queue), one.place) for one in self.queues]
        digest = blake2b(repr((places, self.seen_ms)).encode(), digest_size=6).hexdigest()
        return f"{digest}-{UNKNOWN if self.count is None else self.count}"

    def is_accepted(self, tokens: Collection[str]) -> bool:
        """Whether one of the tokens is of this loss, and of at least as many messages."""
        digest, _, _ = self.token.partition("-")
        sizes = [size for token in tokens for name, _, size in [token.partition("-")] if name == digest]
        if UNKNOWN in sizes:
            return True
        return self.count is not None and any(self.count <= int(size) for size in sizes)

    def __str__(self) -> str:
        count = "an unknown number of" if self.count is None else f"{self.count:,}"
        named = "; ".join(map(str, self.queues[:_NAMED]))
        more = f"; and {len(self.queues) - _NAMED} more queues" if len(self.queues) > _NAMED else ""
        return f"{count} unread messages cannot be read any more: {named}{more}"


def _names(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id
