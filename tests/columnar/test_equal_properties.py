from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.columnar.equal_properties import read_equal_properties
from sparrowmq.protocol.properties import decode


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 4), min_size=1, max_size=4),
    st.integers(1, 40),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_equal_rows_give_what_the_reference_gives(
    shape: dict[str, int], count: int, closed: bool, rng: random.Random
) -> None:
    def row() -> bytes:
        parts = [f"{name}\x01{''.join(rng.choices('xyz', k=width))}\x02" for name, width in shape.items()]
        return "".join(parts).encode()[: None if closed else -1]

    rows = [row() for _ in range(count)]
    found = read_equal_properties(pa.array([b"skipped", *rows], pa.binary()).slice(1))
    assert found is not None
    expected = [decode(text) for text in rows]
    for name in (*shape, "missing"):
        values = found.column(name)
        values.validate(full=True)
        assert values.to_pylist() == [properties.get(name) for properties in expected]
    maps = found.map()
    maps.validate(full=True)
    assert [dict(properties) for properties in maps.to_pylist()] == expected


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [b"", b""],
        [b"a\x011\x02", b"b\x011\x02"],
        [b"a\x011\x02", b"a\x0111\x02"],
        [b"a\x0111\x02", b"a\x01\x01\x01\x02"],
        [b"a\x0112\x02", b"a\x01\x022\x02"],
        [b"a\x011\x02b\x012", b"a\x011\x02b\x01\x02"],
        [b"a\x011\x02a\x012\x02"] * 2,
        [b"\x011\x02"] * 2,
        [b"a\x01\x02"] * 2,
        [b"a"] * 2,
        [b"a\x00\x02"] * 2,
        ["a\x01é\x02".encode()] * 2,
    ],
    ids=str,
)
def test_other_rows_are_left_to_others(rows: list[bytes]) -> None:
    assert read_equal_properties(pa.array(rows, pa.binary())) is None
