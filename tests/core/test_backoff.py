"""Delays between retries."""

from __future__ import annotations

import random
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.backoff import Backoff


def test_delays_grow_to_the_maximum() -> None:
    delays = Backoff(first=1, most=5, factor=2, jitter=0).delays(random.Random(1))
    assert list(islice(delays, 6)) == [1, 2, 4, 5, 5, 5]


@given(st.integers(), st.floats(0, 0.9))
def test_jitter_stays_within_its_share(seed: int, jitter: float) -> None:
    backoff = Backoff(first=1, most=8, factor=2, jitter=jitter)
    bases = (1, 2, 4, 8, 8)
    for base, delay in zip(bases, backoff.delays(random.Random(seed)), strict=False):
        assert base * (1 - jitter) <= delay <= base * (1 + jitter)


def test_the_same_seed_gives_the_same_delays_and_no_seed_others() -> None:
    one, two = (list(islice(Backoff().delays(random.Random(7)), 5)) for _ in range(2))
    assert one == two
    assert list(islice(Backoff().delays(), 5)) != one


def test_jitter_is_computed_from_the_random_number() -> None:
    numbers = random.Random(7)
    expected = [base * (1 + 0.5 * (2 * numbers.random() - 1)) for base in (1, 3, 9)]
    delays = Backoff(first=1, most=9, factor=3, jitter=0.5).delays(random.Random(7))
    assert list(islice(delays, 3)) == pytest.approx(expected)


def test_delays_can_be_constant() -> None:
    assert list(islice(Backoff(first=0.5, most=0.5, factor=1, jitter=0).delays(), 3)) == [0.5] * 3


@pytest.mark.parametrize(
    "arguments",
    [{"first": 0}, {"first": -1}, {"first": 2, "most": 1}, {"factor": 0.5}, {"jitter": 1}, {"jitter": -0.1}],
)
def test_invalid_arguments_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="not a back-off"):
        Backoff(**arguments)
