from __future__ import annotations

import math

import pytest

from sparrowmq.coordinator.history.grains import (
    GRAINS,
    MINUTES,
    QUARTERS,
    SECONDS,
    UNKNOWN,
    Figure,
    coarser,
    due,
    folded,
)


def test_coarse_step_lies_within_one_block_of_the_finer_grain() -> None:
    for fine, coarse in ((SECONDS, MINUTES), (MINUTES, QUARTERS)):
        assert coarse.step_ms % fine.step_ms == 0
        assert fine.block_ms % coarse.step_ms == 0


def test_grains_are_kept_for_an_hour_a_day_and_a_month() -> None:
    assert [(one.step_ms, one.keep_ms // one.step_ms) for one in GRAINS] == [
        (10_000, 360),
        (60_000, 1440),
        (900_000, 2880),
    ]


@pytest.mark.parametrize(
    ("figure", "value"),
    [(Figure.TOPIC_IN, 2.0), (Figure.GROUP_LAG, 3.0), (Figure.SERVICE_FAILED, 4.0)],
)
def test_longer_step_has_the_mean_of_rates_the_peak_of_lag_and_the_sum_of_counts(
    figure: Figure, value: float
) -> None:
    assert folded(figure, [1.0, UNKNOWN, 3.0]) == value
    assert math.isnan(folded(figure, [UNKNOWN, UNKNOWN]))


def test_chart_points_combine_several_steps_and_the_newest_are_complete() -> None:
    values = [float(number) for number in range(7)]
    assert coarser(Figure.GROUP_LAG, values, 7) == (values, 1)
    assert coarser(Figure.GROUP_LAG, values, 3) == ([0.0, 3.0, 6.0], 3)


def test_completed_steps_that_are_not_folded_are_found() -> None:
    assert list(due(None, 100, 3)) == [97, 98, 99]
    assert list(due(99, 100, 3)) == [99]
    assert list(due(100, 100, 3)) == []
    assert list(due(5, 100, 3)) == [97, 98, 99]
