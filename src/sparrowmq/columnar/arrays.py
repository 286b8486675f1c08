"""Arrow arrays from NumPy arrays and lists, without `pyarrow.array`, which loads pandas if it is installed.

Loading pandas takes half a second, and Spark starts several processes for every query. It also triples the
number of objects that Spark's worker traverses after each task. `pyarrow.scalar`, `repeat` and
`Array.to_numpy` load pandas, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def numbers(values: npt.NDArray[Any], missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """`values` without a copy, null where `missing`; integers or floats in this machine's byte order."""
    whole = np.ascontiguousarray(values)
    kind = pa.from_numpy_dtype(whole.dtype)
    return pa.Array.from_buffers(kind, len(whole), [_validity(missing), pa.py_buffer(whole)])


def numbers_of(array: pa.Array) -> npt.NDArray[Any]:
    """The inverse of `numbers`, without a copy, for an array without nulls."""
    found = np.frombuffer(array.buffers()[1], array.type.to_pandas_dtype())
    return found[array.offset : array.offset + len(array)]


def flags(values: npt.NDArray[np.bool_]) -> pa.Array:
    """Booleans."""
    bits = pa.py_buffer(np.packbits(values, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, bits])


def texts(values: Sequence[str | None] | Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    """Strings or bytes as `kind`, which is string or binary; None is null.

    Raises UnicodeEncodeError for a string that is not valid Unicode, `OverflowError` for a total of 2 GiB or
    more.
    """
    parts = [value.encode() if isinstance(value, str) else value or b"" for value in values]
    bounds = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([len(part) for part in parts], out=bounds[1:])
    if bounds[-1] > np.iinfo(np.int32).max:
        raise OverflowError(f"{bounds[-1]} bytes do not fit in one array of {kind}; the limit is 2147483647")
    missing = np.fromiter((value is None for value in values), np.bool_, len(parts))
    buffers = [_validity(missing), pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(b"".join(parts))]
    return pa.Array.from_buffers(kind, len(parts), buffers)


def repeated(value: str, count: int) -> pa.Array:
    """The same string `count` times."""
    data = value.encode()
    bounds = np.arange(count + 1, dtype=np.int32) * np.int32(len(data))
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(bounds), pa.py_buffer(data * count)])


def _validity(missing: npt.NDArray[np.bool_] | None) -> pa.Buffer | None:
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))
