"""The number of messages to request per pull, learned from a broker's responses. Pure.

SparrowMQ's brokers return as many as fit in 8 MiB, Apache's 32 (8 when read from disk), whatever is requested
(broker:5.2). Concurrent pulls must not overlap, so the reader has to predict how far a response will reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

TRY_MORE_ROUNDS: Final = 16
"""After this many rounds a longer stride is tried."""
PULLS_MAX: Final = 2
"""If a stride takes more pulls than this, it is too long."""
_RECORD_BYTES_GUESS: Final = 1024.0
_FILLED: Final = 0.97
"""How full a response should be: one too long needs a second pull, and the data of both are copied."""


@dataclass(slots=True)
class PullSize:
    """The stride for one broker: messages per pull, at most `most`."""

    most: int
    stride: int = field(init=False)
    record_bytes: float = _RECORD_BYTES_GUESS
    """Bytes of a response per offset of progress, from the last response with any."""
    _rounds: int = 0

    def __post_init__(self) -> None:
        self.stride = self.most

    def first_count(self) -> int:
        """Messages to request in the first pull of a round; from time to time more than the stride."""
        self._rounds += 1
        if self.stride < self.most and self._rounds >= TRY_MORE_ROUNDS:
            self._rounds = 0
            return min(self.most, 2 * self.stride)
        return self.stride

    def fitting(self, bytes_max: int) -> int:
        """Messages that fit a response of this size, at least one."""
        return max(1, int(bytes_max * _FILLED / self.record_bytes))

    def learn(self, asked: int, given: Sequence[int], size: int) -> None:
        """Record that a pull of `asked` messages advanced by `given` offsets and returned `size` bytes of
        records. If these are as many bytes as were expected for all `asked`, messages became larger, and this
        does not tell how many the broker returns.
        """
        expected = asked * self.record_bytes
        if size:
            self.record_bytes = max(1.0, size / max(1, sum(given)))
        if sum(given) < asked and size < expected:
            self.stride = max(1, *given)
        elif sum(given) >= asked and len(given) == 1:
            self.stride = max(self.stride, asked)


class PullSizes:
    """The strides of a process for all brokers, kept between tasks."""

    def __init__(self) -> None:
        self._of_broker: dict[tuple[str, str, int], PullSize] = {}

    def of(self, name_server: str, broker_name: str, batch_rows: int) -> PullSize:
        """The stride of a broker, for batches of so many rows."""
        key = (name_server, broker_name, batch_rows)
        return self._of_broker.setdefault(key, PullSize(batch_rows))
