"""Variable-length slices of a buffer as Arrow arrays, gathered by Arrow's `take` without a Python loop.

The buffer is treated as an Arrow array of slice, gap, slice, … over its own bytes, without a copy; `take`
then copies the wanted slices in C++ (spark:5).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.columnar.arrays import numbers

Int32s = npt.NDArray[np.int32]


class BufferSlices:
    """Slices `starts[i]:ends[i]` of `buffer` as values of `kind` (string or binary).

    Slices must be ascending and must not overlap; the buffer must be shorter than 2 GiB. The arrays that
    `take` and `all` return own their bytes.
    """

    def __init__(
        self, buffer: Any, starts: npt.NDArray[Any], ends: npt.NDArray[Any], kind: pa.DataType
    ) -> None:
        count = len(starts)
        bounds = np.empty(2 * count, np.int32)
        bounds[0::2] = starts
        bounds[1::2] = ends
        self._count = count
        self._kind = kind
        data = buffer if isinstance(buffer, pa.Buffer) else pa.py_buffer(buffer)
        self._pairs = (
            pa.Array.from_buffers(kind, 2 * count - 1, [None, pa.py_buffer(bounds), data]) if count else None
        )

    def all(self) -> pa.Array:
        """Every slice."""
        return self.take(np.arange(self._count, dtype=np.int32))

    def take(self, which: Int32s, missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
        """The slices with the numbers `which`; null where `missing`."""
        if self._pairs is None:
            return pa.nulls(len(which), self._kind)
        return self._pairs.take(numbers(which * 2, missing))


def offsets_of(array: pa.Array) -> Int32s:
    """The bounds of the values of a string or binary array in its data buffer: one element more
    than values.
    """
    bounds = np.frombuffer(array.buffers()[1], np.int32)
    return bounds[array.offset : array.offset + len(array) + 1]


def is_ascii(buffer: pa.Buffer | None, start: int, end: int) -> bool:
    """Whether all bytes in `start:end` of `buffer` are below 128."""
    if buffer is None or end <= start:
        return True
    return bool(np.frombuffer(buffer, np.uint8)[start:end].max() < 128)


def is_utf8(array: pa.Array) -> bool:
    """Whether every value of a string array is valid UTF-8; neither Arrow nor Spark checks (spark:D-07)."""
    bounds = offsets_of(array) if len(array) else np.zeros(2, np.int32)
    if is_ascii(array.buffers()[2], int(bounds[0]), int(bounds[-1])):
        return True
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
