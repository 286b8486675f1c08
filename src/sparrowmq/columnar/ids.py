"""Columns of unique message ids, in the form of `core.ids.UniqueIds` (remoting:5.4)."""

from __future__ import annotations

import time
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.core.ids import UniqueIds
from sparrowmq.protocol.crc import crc32

IDS_MAX: Final = 65536
"""Maximum ids per call: the counter has two bytes."""

_COUNTER_CHARS: Final = 4
_DIGITS: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def hex_column(rows: npt.NDArray[np.uint8]) -> pa.Array:
    """Each row of bytes as upper-case hex, a string array."""
    count, width = len(rows), 2 * rows.shape[1]
    texts = np.empty((count, width), np.uint8)
    texts[:, ::2], texts[:, 1::2] = _DIGITS[rows >> 4], _DIGITS[rows & 15]
    bounds = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(texts)])


def body_checksums(bodies: pa.Array) -> npt.NDArray[np.uint32]:
    """The CRC-32 of each value of a binary array; of null that of no bytes."""
    values = (value or b"" for value in bodies.to_pylist()) if bodies.null_count else bodies.to_pylist()
    return np.fromiter(map(crc32, values), np.uint32, len(bodies))


class UniqueIdColumns:
    """Makes columns of `UNIQ_KEY`s that are unique across calls, processes and machines. Not thread-safe.

    Each call uses a different millisecond, so ids are ahead of the clock by at most one millisecond per call.
    """

    def __init__(self, host: str) -> None:
        self._ids = UniqueIds(host)
        self._last_ms = 0
        digits = np.frombuffer(b"0123456789ABCDEF", np.uint8)
        values = np.arange(IDS_MAX)
        self._counters = np.stack([digits[values >> shift & 15] for shift in (12, 8, 4, 0)], axis=1)

    def next(self, count: int, now_ms: int | None = None) -> pa.Array:
        """`count` ids (at most `IDS_MAX`) as a string array; `now_ms` defaults to the clock."""
        if not 0 <= count <= IDS_MAX:
            raise ValueError(f"{count} ids in one call; the limit is {IDS_MAX}")
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        self._last_ms = max(now_ms, self._last_ms + 1)
        prefix = self._ids.next(self._last_ms)[:-_COUNTER_CHARS].encode()
        width = len(prefix) + _COUNTER_CHARS
        texts = np.empty((count, width), np.uint8)
        texts[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
        texts[:, len(prefix) :] = self._counters[:count]
        bounds = np.arange(0, (count + 1) * width, width, dtype=np.int32)
        return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(texts)])
