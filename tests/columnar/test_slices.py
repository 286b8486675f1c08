from __future__ import annotations

import numpy as np
import pyarrow as pa

from sparrowmq.columnar.slices import BufferSlices, is_ascii, is_utf8, offsets_of


def _slices(starts: list[int], ends: list[int]) -> BufferSlices:
    return BufferSlices(b"abcdefgh", np.array(starts, np.int64), np.array(ends, np.int64), pa.binary())


def test_slices_may_touch_be_empty_and_leave_gaps() -> None:
    assert _slices([0, 2, 4, 4], [2, 2, 4, 8]).all().to_pylist() == [b"ab", b"", b"", b"efgh"]


def test_take_picks_in_any_order_and_leaves_nulls() -> None:
    found = _slices([0, 3], [2, 5]).take(np.array([1, 0, 1], np.int32), np.array([False, True, False]))
    assert found.to_pylist() == [b"de", None, b"de"]


def test_no_slices_give_an_empty_array() -> None:
    assert _slices([], []).all().equals(pa.array([], pa.binary()))


def test_offsets_of_a_sliced_array() -> None:
    assert offsets_of(pa.array(["ab", "c", "def"]).slice(1)).tolist() == [2, 3, 6]


def test_utf8_is_checked_value_by_value() -> None:
    assert is_utf8(pa.array(["plain", "größe"]))
    assert is_utf8(pa.array([], pa.string()))
    split = BufferSlices("é".encode(), np.array([0, 1]), np.array([1, 2]), pa.string()).all()
    assert not is_utf8(split)


def test_ascii_looks_at_the_given_bytes_only() -> None:
    data = pa.py_buffer("aé".encode())
    assert is_ascii(data, 0, 1)
    assert not is_ascii(data, 0, 3)
    assert is_ascii(None, 0, 0)
