"""Which small units become one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.spark.pipelines.archive.compaction import groups
from sparrowmq.spark.pipelines.archive.ledger import ArchiveUnit


def units(*sizes: int) -> list[ArchiveUnit]:
    return [ArchiveUnit(number=number, spans=(), rows=1, size=size) for number, size in enumerate(sizes)]


def numbers(*sizes: int, least: int = 2, size_max: int = 100) -> list[list[int]]:
    return [[u.number for u in group] for group in groups(units(*sizes), least=least, size_max=size_max)]


def test_small_neighbours_are_merged() -> None:
    assert numbers(10, 10, 10) == [[0, 1, 2]]
    assert numbers(10) == []
    assert numbers(10, 10, least=3) == []
    assert numbers(1, 1, least=0) == [[0, 1]]
    assert numbers(1, least=0) == []


def test_large_ones_are_left_alone_and_part_the_others() -> None:
    assert numbers(10, 10, 51, 10, 10) == [[0, 1], [3, 4]]
    assert numbers(10, 51, 10) == []
    assert numbers(50, 50, 50, 50) == [[0, 1], [2, 3]]


@given(st.lists(st.integers(0, 120), max_size=30), st.integers(2, 6))
def test_groups_are_runs_within_the_limits(sizes: list[int], least: int) -> None:
    found = numbers(*sizes, least=least)
    taken = [number for group in found for number in group]
    assert len(taken) == len(set(taken))
    for group in found:
        assert group == list(range(group[0], group[-1] + 1))
        assert len(group) >= least
        assert sum(sizes[number] for number in group) <= 100
