"""Delay levels."""

from __future__ import annotations

import pytest

from sparrowmq.core.delay import DEFAULT_LEVELS, DelayLevels, delay_ms


@pytest.mark.proves("client:D-100")
@pytest.mark.parametrize(
    ("level", "delay"),
    [(1, 1000), (3, 10_000), (5, 60_000), (16, 1_800_000), (18, 7_200_000), (99, 7_200_000)],
)
def test_delays_of_levels_equal_those_of_rocketmq(level: int, delay: int) -> None:
    assert delay_ms(level) == delay


def test_eighteen_levels_have_increasing_delays() -> None:
    assert len(DEFAULT_LEVELS.delays) == 18
    assert list(DEFAULT_LEVELS.delays) == sorted(set(DEFAULT_LEVELS.delays))


@pytest.mark.parametrize("level", [0, -1])
def test_levels_below_one_are_refused(level: int) -> None:
    with pytest.raises(ValueError, match=f"not {level}"):
        delay_ms(level)


@pytest.mark.proves("client:D-57", "client:D-100")
@pytest.mark.parametrize(
    ("seconds", "level"),
    [(0, 1), (1, 1), (1.001, 2), (10, 3), (10.5, 4), (7200, 18), (7201, 18), (float("inf"), 18)],
)
def test_delay_is_rounded_up_to_a_level(seconds: float, level: int) -> None:
    assert DEFAULT_LEVELS.level_after(seconds) == level


@pytest.mark.parametrize(("seconds", "level"), [(0, 1), (1.5, 3), (3, 3), (4, 2), (21, 4), (9999, 4)])
def test_levels_may_be_in_any_order(seconds: float, level: int) -> None:
    assert DelayLevels.parse("1s 20s 3s 1h").level_after(seconds) == level


@pytest.mark.parametrize(
    "text", ["", "1x", "s", "-1s", "1.5s", "367d", "10000000000s", "1 s", " ".join(["1s"] * 1001)]
)
def test_invalid_levels_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"levels|is not a delay"):
        DelayLevels.parse(text)


def test_366_days_and_1000_levels_are_accepted() -> None:
    assert DelayLevels.parse("366d").delays == (366 * 86_400_000,)
    assert DelayLevels.parse(" ".join(["1s"] * 1000)).highest == 1000


def test_levels_accept_four_units() -> None:
    levels = DelayLevels.parse("3s 2m 1h 1d")
    assert levels.delays == (3000, 120_000, 3_600_000, 86_400_000)
    assert (levels.highest, levels.cut(2), levels.cut(9)) == (4, 2, 4)
    assert levels.delay_ms(9) == 86_400_000
