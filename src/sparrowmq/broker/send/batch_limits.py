"""How large a batch may be: its records are stored together (broker:2.4)."""

from __future__ import annotations

from typing import Final

from sparrowmq.protocol.batch import BATCH_FIXED_BYTES, has_more

FIXED_BYTES_V1: Final = 91
RECORD_EXTRA_BYTES: Final = 65_536
"""A record, or a batch of records, may exceed the largest body by this much (broker:2.4)."""


class BatchLimits:
    """The limit of one broker. `added_bytes` is the size of its additions to each message's properties."""

    def __init__(self, body_max: int, added_bytes: int) -> None:
        self.most = body_max + RECORD_EXTRA_BYTES
        self._added_bytes = added_bytes

    def size(self, topic: str, body: bytes, count: int) -> int:
        """Total size in bytes of the records of a batch of `count` messages."""
        added = FIXED_BYTES_V1 + len(topic) + self._added_bytes - BATCH_FIXED_BYTES
        return len(body) + count * added

    def is_over(self, topic: str, body: bytes) -> bool:
        """Whether the records of a batch would be too large, determined without decoding its messages."""
        if self.size(topic, body, len(body) // BATCH_FIXED_BYTES) <= self.most:
            return False
        room = self.most - len(body)
        return room < 0 or has_more(body, room // self.size(topic, b"", 1))
