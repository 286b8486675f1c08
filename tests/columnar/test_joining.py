from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.columnar.joining import RowPiece, first_with, join, missing, rows_of, sizes_of

VALUES = st.lists(st.none() | st.binary(max_size=5), max_size=20)


def _column(values: list[bytes | None], skip: int) -> pa.Array:
    """A slice, as batches of Spark's may be."""
    return pa.array([*[b"skipped"] * skip, *values, b"behind"], pa.binary()).slice(skip, len(values))


@given(VALUES, st.integers(0, 9), st.data())
def test_pieces_stand_in_the_order_of_the_rows(
    values: list[bytes | None], skip: int, data: st.DataObject
) -> None:
    count = len(values)
    present = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    column = _column([value or b"" for value in values], skip)
    found = join(
        count,
        [
            RowPiece(b"<"),
            RowPiece(column, np.array(present, np.bool_)),
            RowPiece(b"|"),
            RowPiece(column),
            RowPiece(b">"),
        ],
    )
    expected = [
        b"<%b|%b>" % ((value or b"") if there else b"", value or b"")
        for value, there in zip(values, present, strict=True)
    ]
    found.validate(full=True)
    assert found.to_pylist() == expected


@given(st.lists(st.integers(0, 4), max_size=10))
def test_several_may_make_one_value(counts: list[int]) -> None:
    texts = [b"%d," % number for number in range(sum(counts))]
    found = join(len(texts), [RowPiece(_column([*texts], 1))], per_row=counts)
    ends = np.cumsum([0, *counts]).tolist()
    assert found.to_pylist() == [b"".join(texts[low:high]) for low, high in itertools.pairwise(ends)]


@given(VALUES, st.integers(0, 9))
def test_sizes_and_nulls_are_those_of_the_values(values: list[bytes | None], skip: int) -> None:
    column = _column(values, skip)
    assert sizes_of(column).tolist() == [len(value or b"") for value in values]
    assert missing(column).tolist() == [value is None for value in values]
    assert missing(pa.nulls(3)).all()


@given(VALUES, st.integers(0, 9))
def test_the_first_row_with_a_byte_is_found(values: list[bytes | None], skip: int) -> None:
    expected = next((row for row, value in enumerate(values) if {1, 2} & set(value or b"")), None)
    assert first_with(_column(values, skip), b"\x01\x02") == expected


def test_bytes_behind_a_null_do_not_count() -> None:
    bounds = pa.py_buffer(np.array([0, 1, 2], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(b"\x02"), bounds, pa.py_buffer(b"\x01a")])
    assert column.to_pylist() == [None, b"a"]
    assert first_with(column, b"\x01\x02") is None
    assert sizes_of(column).tolist() == [0, 1]


@pytest.mark.parametrize("count", [0, 3])
def test_numbers_are_rows_of_their_bytes(count: int) -> None:
    found = rows_of(np.arange(2 * count, dtype=">i2").reshape(count, 2), 4)
    assert found.to_pylist() == [bytes((0, 2 * row, 0, 2 * row + 1)) for row in range(count)]
