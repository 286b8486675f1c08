"""Arrays that are built without `pyarrow.array` equal those that it builds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from sparrowmq.columnar.arrays import flags, numbers, numbers_of, repeated, texts


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.float64])
def test_numbers(kind: type) -> None:
    values: npt.NDArray[Any] = np.arange(20).astype(kind)
    missing = values % 3 == 0
    for some in (values, values[::2], values[:0]):
        assert numbers(some).equals(pa.array(some))
    found = numbers(values, missing)
    found.validate(full=True)
    assert found.equals(pa.array(values, mask=missing))
    assert found.null_count == 7
    assert numbers(values, np.zeros(20, np.bool_)).equals(pa.array(values))


def test_numbers_of_a_part_of_an_array() -> None:
    assert numbers_of(pa.array([5, 6, 7, 8], pa.int32()).slice(1, 2)).tolist() == [6, 7]


def test_flags() -> None:
    values = np.array([True, False, False, True, True, False, True, False, True])
    assert flags(values).equals(pa.array(values))


@pytest.mark.parametrize(
    "values",
    [[], ["a", None, "", "ü\U0001f600"], [None, None], ["x" * 9] * 17],
    ids=["none", "mixed", "nulls", "many"],
)
def test_texts(values: list[str | None]) -> None:
    found = texts(values, pa.string())
    found.validate(full=True)
    assert found.equals(pa.array(values, pa.string()))
    wide = [None if value is None else value.encode() for value in values]
    assert texts(wide, pa.binary()).equals(pa.array(wide, pa.binary()))


def test_texts_refuse_what_is_no_unicode() -> None:
    with pytest.raises(UnicodeEncodeError):
        texts(["\udc80"], pa.string())


@pytest.mark.parametrize("count", [0, 1, 5])
def test_repeated(count: int) -> None:
    assert repeated("bröker", count).equals(pa.array(["bröker"] * count, pa.string()))
