"""Caches whose keys clients choose: their size is limited, and long texts are not kept."""

from __future__ import annotations

import pytest
from tests.support import about

from sparrowmq.core.bounded import LONG_CHARS, SHORT_CHARS, remembered


def test_results_are_cached_for_short_texts_a_few_long_ones_and_no_huge_ones() -> None:
    calls: list[str] = []

    @remembered(100, long_entries=2)
    def upper(text: str) -> str:
        calls.append(text)
        return text.upper()

    short, huge = "a" * SHORT_CHARS, "h" * (LONG_CHARS + 1)
    long = [f"{number}" + "l" * SHORT_CHARS for number in range(3)]
    for text in (short, *long, huge) * 2:
        assert upper(text) == text.upper()
    assert (calls.count(short), calls.count(huge)) == (1, 2)
    assert [calls.count(text) for text in long] == [2, 2, 2]
    assert upper(long[2]) and calls.count(long[2]) == 2


def test_errors_are_not_cached() -> None:
    @remembered(1, long_entries=1)
    def fail(text: str) -> str:
        raise ValueError(text)

    for _ in range(2):
        with pytest.raises(ValueError, check=about(args=("x",))):
            fail("x")
