"""Numbers are loaded as they were saved; missing or short files contain none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import about

from sparrowmq.core.errors import StoreError
from sparrowmq.store.base.number_file import FILE_BYTES, load_numbers, save_numbers

NUMBERS = st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=8)


@given(NUMBERS, st.booleans())
def test_saved_numbers_are_loaded(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[int], sync: bool
) -> None:
    path = tmp_path_factory.mktemp("numbers") / "file"
    path.write_bytes(b"\xff" * 5000)
    save_numbers(path, *numbers, sync=sync)
    data = path.read_bytes()
    assert len(data) == FILE_BYTES
    assert data.startswith(b"".join(number.to_bytes(8, "big", signed=True) for number in numbers))
    assert load_numbers(path, len(numbers)) == tuple(numbers)


def test_missing_file_contains_none_without_a_warning(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert load_numbers(tmp_path / "none", 3) == ()
    assert caplog.text == ""


@pytest.mark.parametrize("size", [0, 1, 23])
def test_short_file_contains_none_and_is_reported(
    size: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "short"
    path.write_bytes(bytes(size))
    assert load_numbers(path, 3) == ()
    assert f"{path} has {size} bytes instead of 4096 and is recreated" in caplog.text


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, check=about(what="read", value=tmp_path)):
        load_numbers(tmp_path, 3)
