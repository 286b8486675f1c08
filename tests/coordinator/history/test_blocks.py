from __future__ import annotations

import math
import zlib

import pytest

from sparrowmq.coordinator.history.blocks import (
    SERIES,
    empty,
    fitting,
    packed,
    place_of,
    unpacked,
    values_of,
)


def test_block_is_unchanged_after_packing_and_unpacking() -> None:
    block = empty(60)
    block[3 * 60 + 5] = 123456.0
    found = values_of(unpacked(packed(block), 60), 3, 60)
    assert found[5] == 123456.0
    assert sum(value == value for value in found) == 1


@pytest.mark.parametrize("data", [b"", b"nonsense", zlib.compress(b"x"), zlib.compress(b"\0" * 10**6)])
def test_invalid_block_has_only_unknown_values(data: bytes) -> None:
    assert all(math.isnan(value) for value in unpacked(data, 60))


def test_constant_figures_take_almost_no_space() -> None:
    block = empty(60)
    for place in range(SERIES * 60):
        block[place] = 0.0
    assert len(packed(block)) < 200


def test_every_number_is_packed_without_loss() -> None:
    assert [place_of(number) for number in (0, 63, 64)] == [(0, 0), (0, 63), (1, 0)]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e39])
def test_values_that_a_block_cannot_hold_are_unknown(value: float) -> None:
    assert math.isnan(fitting(value))
