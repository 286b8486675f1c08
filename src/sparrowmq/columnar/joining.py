"""Rows of bytes joined from pieces: columns, and texts that all rows have in common.

All pieces are in one array, and Arrow's `take` copies them in the order of the rows. Arrow's own kernel for
joining is several times slower, and handles nulls, which do not occur here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparrowmq.columnar.arrays import numbers, texts
from sparrowmq.columnar.slices import Int32s, offsets_of

Flags = npt.NDArray[np.bool_]


class RowPiece(NamedTuple):
    """One piece of each row: constant bytes, or the row's value in a string or binary array."""

    value: bytes | pa.Array
    present: Flags | None = None
    """The rows that have it; None: all."""


def join(count: int, pieces: Sequence[RowPiece], *, per_row: int | Sequence[int] = 1) -> pa.Array:
    """The pieces of `count` rows back to back, as a binary array with one value per group of rows.

    `per_row` is how many of the `count` rows make one value: a constant, or a number for each value. The
    total must be below 2 GiB.
    """
    constants = [b"", *(piece.value for piece in pieces if isinstance(piece.value, bytes))]
    sources, base = [texts(constants, pa.binary())], len(constants)
    places = np.empty((count, len(pieces)), np.int32)
    constant = 0
    for column, (value, present) in enumerate(pieces):
        if isinstance(value, bytes):
            constant += 1
            places[:, column] = constant
        else:
            places[:, column] = np.arange(base, base + count, dtype=np.int32)
            sources.append(value if value.type == pa.binary() else value.view(pa.binary()))
            base += count
        if present is not None:
            places[~present, column] = 0
    joined = pa.concat_arrays(sources).take(numbers(places.reshape(-1)))
    ends = offsets_of(joined)[:: len(pieces)] if count else np.zeros(1, np.int32)
    bounds = ends[::per_row] if isinstance(per_row, int) else ends[np.cumsum((0, *per_row))]
    data = joined.buffers()[2] if count else pa.py_buffer(b"")
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(np.ascontiguousarray(bounds)), data]
    )


def rows_of(values: npt.NDArray[Any], width: int) -> pa.Array:
    """Integers of this many bytes each, as bytes."""
    bounds = np.arange(0, (len(values) + 1) * width, width, dtype=np.int32)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(bounds), data])


def sizes_of(array: pa.Array) -> Int32s:
    """The length in bytes of each value of a string or binary array; 0 for null."""
    if not len(array):
        return np.zeros(0, np.int32)
    found: Int32s = np.diff(offsets_of(array))
    return found if not array.null_count else np.where(missing(array), np.int32(0), found)


def missing(array: pa.Array) -> Flags:
    """Which values are null."""
    bits = array.buffers()[0]
    if bits is None or not array.null_count:
        return np.full(len(array), array.type == pa.null(), np.bool_)
    unpacked = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    found: Flags = unpacked[array.offset : array.offset + len(array)] == 0
    return found


def first_with(array: pa.Array, bytes_: bytes) -> int | None:
    """The first row whose value contains one of these bytes; None if there is none."""
    if not len(array):
        return None
    bounds = offsets_of(array)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)[bounds[0] : bounds[-1]]
    if not len(data) or data.min() > max(bytes_):
        return None
    hits = np.flatnonzero(np.isin(data, np.frombuffer(bytes_, np.uint8))) + bounds[0]
    rows = np.searchsorted(bounds, hits, side="right") - 1
    rows = rows[~missing(array)[rows]]
    return int(rows[0]) if len(rows) else None
