"""Property strings of many records at once: names and values as Arrow arrays (remoting:5.3).

The vector path finds all separators of a chunk at once. It requires names and values that are not empty,
valid UTF-8, no duplicate names, and alternating separators; the last separator may be missing. Other chunks
are decoded row by row with `protocol.properties.decode`, so the results are the same. Rows that differ only
in the bytes of their values have an even shorter path, `equal_properties`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.columnar.arrays import numbers, numbers_of, texts
from sparrowmq.columnar.equal_properties import EqualProperties, read_equal_properties
from sparrowmq.columnar.slices import BufferSlices, Int32s, is_ascii, is_utf8, offsets_of
from sparrowmq.protocol.properties import decode as decode_properties


class Properties:
    """The properties of every row: a map column, and single properties by name."""

    def __init__(self, bounds: Int32s, names: pa.Array, values: BufferSlices | pa.Array) -> None:
        self._bounds = bounds
        self._names = names
        self._values = values
        self._uniform = _uniform_names(bounds, names)
        self._coded: tuple[npt.NDArray[Any], list[str]] | None = None

    def map(self) -> pa.Array:
        """All properties as `map<string, string>`."""
        values = self._values.all() if isinstance(self._values, BufferSlices) else self._values
        return pa.MapArray.from_arrays(numbers(self._bounds), self._names, values)

    def column(self, name: str) -> pa.Array:
        """The values of one property as strings, null where a row has none."""
        rows = len(self._bounds) - 1
        if self._uniform is not None:
            if name not in self._uniform:
                return pa.nulls(rows, pa.string())
            return self._take(self._bounds[:-1] + np.int32(self._uniform.index(name)), None)
        codes, known = self._codes()
        if name not in known:
            return pa.nulls(rows, pa.string())
        hits = np.flatnonzero(codes == known.index(name))
        at = np.full(rows, -1, np.int32)
        at[np.searchsorted(self._bounds, hits, side="right") - 1] = hits
        return self._take(np.maximum(at, 0), at < 0)

    def has_doubles(self) -> bool:
        """Whether a row has a name more than once; a map must not hold it twice (spark:D-06)."""
        if self._uniform is not None:
            return len(set(self._uniform)) < len(self._uniform)
        codes, known = self._codes()
        rows = np.repeat(np.arange(len(self._bounds) - 1), np.diff(self._bounds))
        marks = rows * len(known) + codes
        return len(np.unique(marks)) < len(marks)

    def _take(self, which: Int32s, missing: npt.NDArray[np.bool_] | None) -> pa.Array:
        if isinstance(self._values, BufferSlices):
            return self._values.take(which, missing)
        return self._values.take(numbers(which, missing))

    def _codes(self) -> tuple[npt.NDArray[Any], list[str]]:
        if self._coded is None:
            coded = self._names.dictionary_encode()
            self._coded = (numbers_of(coded.indices), coded.dictionary.to_pylist())
        return self._coded


def _uniform_names(bounds: Int32s, names: pa.Array) -> list[str] | None:
    """The names of the first row if every row has the same ones in the same order, else None.

    Messages of one producer do; the comparison is one pass over the names' bytes.
    """
    rows = len(bounds) - 1
    width = int(bounds[1] - bounds[0]) if rows else 0
    if not width or len(names) != rows * width or (np.diff(bounds) != width).any():
        return None
    ends = offsets_of(names)
    lengths = np.diff(ends).reshape(rows, width)
    if (lengths != lengths[0]).any():
        return None
    data = np.frombuffer(names.buffers()[2], np.uint8)[ends[0] : ends[-1]].reshape(rows, -1)
    if (data != data[0]).any():
        return None
    first: list[str] = names.slice(0, width).to_pylist()
    return first


def read_properties(strings: pa.Array) -> Properties | EqualProperties:
    """The properties in `strings`, a binary array of property strings, one per row, without nulls."""
    equal = read_equal_properties(strings)
    if equal is not None:
        return equal
    found = _by_vectors(strings)
    if found is None or found.has_doubles():
        return _by_rows(strings)
    return found


def _by_rows(strings: pa.Array) -> Properties:
    rows = [decode_properties(text) for text in strings.to_pylist()]
    bounds = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=bounds[1:])
    names = texts([name for row in rows for name in row], pa.string())
    values = texts([value for row in rows for value in row.values()], pa.string())
    return Properties(bounds, names, values)


def _by_vectors(strings: pa.Array) -> Properties | None:
    """The properties, or None when they need `_by_rows`."""
    ends = offsets_of(strings)
    first, last = int(ends[0]), int(ends[-1])
    buffer = strings.buffers()[2]
    if buffer is None or last == first:
        return Properties(
            np.zeros(len(strings) + 1, np.int32), pa.nulls(0, pa.string()), pa.nulls(0, pa.string())
        )
    data = np.frombuffer(buffer, np.uint8)[:last]
    marks = np.flatnonzero(data[first:] < 3).astype(np.int32) + np.int32(first)
    kinds = data[marks]
    if not kinds.all():
        return None
    counts = np.diff(np.searchsorted(marks[kinds == 2], ends, side="left"))
    starts, marks, kinds, added = _with_last_separators(data, ends, marks, kinds)
    if len(marks) & 1 or (kinds[0::2] != 1).any() or (kinds[1::2] != 2).any() or (marks == starts).any():
        return None
    names = BufferSlices(buffer, starts[0::2], marks[0::2], pa.string()).all()
    values = BufferSlices(buffer, starts[1::2], marks[1::2], pa.string())
    if not is_ascii(buffer, first, last) and not (is_utf8(names) and is_utf8(values.all())):
        return None
    if added is not None:
        counts[added] += 1
    bounds = np.zeros(len(ends), np.int32)
    np.cumsum(counts, out=bounds[1:])
    return Properties(bounds, names, values)


def _with_last_separators(
    data: npt.NDArray[np.uint8], ends: Int32s, marks: Int32s, kinds: npt.NDArray[np.uint8]
) -> tuple[Int32s, Int32s, npt.NDArray[np.uint8], npt.NDArray[np.int64] | None]:
    """Starts of all names and values and the separators after them, including omitted ones.

    A row's last separator may be missing (spark:D-05); the row's end replaces it. The last element is the
    list of these rows.
    """
    starts = np.empty(len(marks), np.int32)
    filled = np.flatnonzero(ends[1:] > ends[:-1])
    row_ends = ends[1:][filled]
    open_rows = data[row_ends - 1] != 2
    if not open_rows.any():
        if len(marks):
            starts[0] = ends[0]
            starts[1:] = marks[:-1] + 1
        return starts, marks, kinds, None
    extra = row_ends[open_rows]
    at = np.searchsorted(marks, extra, side="left")
    merged = np.insert(marks, at, extra)
    merged_kinds = np.insert(kinds, at, np.uint8(2))
    real = np.ones(len(merged), np.int32)
    real[at + np.arange(len(at))] = 0
    starts = np.empty(len(merged), np.int32)
    starts[0] = ends[0]
    starts[1:] = merged[:-1] + real[:-1]
    return starts, merged, merged_kinds, filled[open_rows]
