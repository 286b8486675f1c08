"""How many messages to ask a broker for in one pull, learned from its answers. Pure.

Our brokers give as many as fit 8 MiB, Apache's 32 (8 when they come from disk), whatever is asked
(broker:5.2). Pulls in flight must not overlap, so the reader has to know how far an answer will reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

TRY_MORE_ROUNDS: Final = 16
"""After so many rounds a longer stride is tried."""
PULLS_MAX: Final = 2
"""Pulls that may be needed for one stride before the stride is found too long."""
_RECORD_BYTES_GUESS: Final = 1024.0
_FILLED: Final = 0.97
"""How full an answer is meant to be: one too long needs a second pull, and what both gave is copied."""


@dataclass(slots=True)
class Pace:
    """The stride for one broker: messages per pull, at most `most`."""

    most: int
    stride: int = field(init=False)
    record_bytes: float = _RECORD_BYTES_GUESS
    """Bytes an answer needs for each offset it goes on, by the last one that had any."""
    _rounds: int = 0

    def __post_init__(self) -> None:
        self.stride = self.most

    def first_count(self) -> int:
        """Messages to ask for in the first pull of a round: from time to time more than the stride."""
        self._rounds += 1
        if self.stride < self.most and self._rounds >= TRY_MORE_ROUNDS:
            self._rounds = 0
            return min(self.most, 2 * self.stride)
        return self.stride

    def fitting(self, bytes_max: int) -> int:
        """Messages that fit an answer of so many bytes, one at least."""
        return max(1, int(bytes_max * _FILLED / self.record_bytes))

    def learn(self, asked: int, given: Sequence[int], size: int) -> None:
        """For `asked` messages the answers went `given` offsets on, with `size` bytes of records."""
        if size:
            self.record_bytes = max(1.0, size / max(1, sum(given)))
        if sum(given) < asked:
            self.stride = max(1, *given)
        elif len(given) == 1:
            self.stride = max(self.stride, asked)
