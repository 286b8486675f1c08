"""Property strings of rows that differ only in the bytes of their values.

Programs write such rows: the same names in the same order, and values of the same lengths. One comparison of
every row with the first one detects this; then every name, value and separator is in the same columns of a
matrix.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.columnar.arrays import numbers
from sparrowmq.columnar.slices import Int32s, is_ascii, offsets_of

Matrix = npt.NDArray[np.uint8]

_NAME_END: Final = 1
_VALUE_END: Final = 2
_SEPARATORS_BELOW: Final = 3


class EqualProperties:
    """The properties of all `rows`; `values` are the columns of each name's value."""

    def __init__(self, rows: Matrix, names: tuple[str, ...], values: list[tuple[int, int]]) -> None:
        self._rows = rows
        self._names = names
        self._values = values

    def map(self) -> pa.Array:
        """All properties as `map<string, string>`."""
        count, pairs = len(self._rows), len(self._names)
        values = np.concatenate([self._rows[:, start:end] for start, end in self._values], axis=1)
        bounds = _bounds(count, tuple(end - start for start, end in self._values))
        texts = pa.Array.from_buffers(pa.string(), count * pairs, [None, bounds, pa.py_buffer(values)])
        rows = np.arange(0, (count + 1) * pairs, pairs, dtype=np.int32)
        return pa.MapArray.from_arrays(numbers(rows), _names(self._names, count), texts)

    def column(self, name: str) -> pa.Array:
        """The values of one property as strings; null if the rows do not have it."""
        count = len(self._rows)
        if name not in self._names:
            return pa.nulls(count, pa.string())
        start, end = self._values[self._names.index(name)]
        values = np.ascontiguousarray(self._rows[:, start:end])
        bounds = _bounds(count, (end - start,))
        return pa.Array.from_buffers(pa.string(), count, [None, bounds, pa.py_buffer(values)])


@lru_cache(maxsize=32)
def _bounds(count: int, widths: tuple[int, ...]) -> pa.Buffer:
    """The bounds of values with these widths in `count` rows, back to back."""
    ends = np.cumsum((0, *widths))
    found = np.empty(count * len(widths) + 1, np.int32)
    found[:-1] = (np.arange(count)[:, None] * ends[-1] + ends[:-1]).reshape(-1)
    found[-1] = count * ends[-1]
    return pa.py_buffer(found)


@lru_cache(maxsize=8)
def _names(names: tuple[str, ...], count: int) -> pa.Array:
    """The names of `count` rows."""
    texts = [name.encode() for name in names]
    data = pa.py_buffer(b"".join(texts) * count)
    bounds = _bounds(count, tuple(map(len, texts)))
    return pa.Array.from_buffers(pa.string(), count * len(names), [None, bounds, data])


def read_equal_properties(strings: pa.Array) -> EqualProperties | None:
    """The properties in `strings`, a binary array without nulls; None unless its rows have this form.

    Also None for rows that must be compared one by one: non-ASCII text, empty or duplicate names, empty
    values.
    """
    ends = offsets_of(strings)
    buffer = strings.buffers()[2]
    if len(ends) < 2 or buffer is None:
        return None
    first, last, width = int(ends[0]), int(ends[-1]), int(ends[1] - ends[0])
    if not width or (np.diff(ends) != width).any() or not is_ascii(buffer, first, last):
        return None
    rows = np.frombuffer(buffer, np.uint8)[first:last].reshape(-1, width)
    places = _places(rows[0])
    if places is None:
        return None
    names, values, separators = places
    fixed = np.ones(width, np.bool_)
    for start, end in values:
        fixed[start:end] = False
    if (rows != rows[0]).any(axis=0)[fixed].any():
        return None
    if np.count_nonzero(rows < _SEPARATORS_BELOW) != separators * len(rows):
        return None
    return EqualProperties(rows, names, values)


def _places(row: npt.NDArray[Any]) -> tuple[tuple[str, ...], list[tuple[int, int]], int] | None:
    """Names, positions of their values and the number of separators of one row; None if it is not plain."""
    marks: Int32s = np.flatnonzero(row < _SEPARATORS_BELOW).astype(np.int32)
    kinds, ends = row[marks].tolist(), marks.tolist()
    if row[-1] != _VALUE_END:  # writers may omit the last separator
        kinds.append(_VALUE_END)
        ends.append(len(row))
    pairs = len(ends) // 2
    if kinds != [_NAME_END, _VALUE_END] * pairs:
        return None
    starts = [0, *(end + 1 for end in ends[:-1])]
    if any(start == end for start, end in zip(starts, ends, strict=True)):
        return None
    text = row.tobytes().decode("ascii")
    names = tuple(text[start:end] for start, end in zip(starts[0::2], ends[0::2], strict=True))
    if len(set(names)) < pairs:
        return None
    return names, list(zip(starts[1::2], ends[1::2], strict=True)), len(marks)
