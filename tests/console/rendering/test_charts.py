from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from sparrowmq.console import charts
from sparrowmq.console.charts import (
    BOTTOM,
    HEIGHT,
    LINES_MAX,
    POINTS_MAX,
    SHAPES,
    TOP,
    Chart,
    chart,
    said,
    scale,
)
from sparrowmq.coordinator.history.grains import Figure, coarser

HOUR = {"step_ms": 10_000, "end_ms": 1_795_330_800_000}


def series(values: list[float | None], figure: str = "group-lag", name: str = "g") -> dict[str, Any]:
    return {"figure": figure, "name": name, "values": values}


def drawn(*values: list[float | None], key: str = "chart.queues") -> Chart:
    return chart(key, [series(one, name=f"q{place}") for place, one in enumerate(values)], HOUR)


def test_gap_is_drawn_as_gap_and_single_value_as_dot() -> None:
    (line,) = drawn([1.0, None, 2.0, 2.0, None, 0.0]).lines
    assert re.findall("[A-Za-z]", line.path) == ["M", "h", "M", "L", "M", "h"]
    assert drawn([None, None]).is_empty
    assert [row for _, row in drawn([1.0, None]).rows] == [["1"], [None]]


def test_zero_is_at_the_bottom_and_the_maximum_is_inside_the_chart() -> None:
    (line,) = drawn([0.0, 7.0]).lines
    first, last = (float(one.split(" ")[1]) for one in re.split("[ML]", line.path)[1:])
    assert first == HEIGHT - BOTTOM
    assert TOP <= last < first


def test_lines_have_different_dashes_and_marks_and_too_many_are_not_drawn() -> None:
    found = drawn(*([float(place), 1.0] for place in range(9)))
    assert [line.name for line in found.lines] == ["q8", "q7", "q6", "q5", "q4", "q3"]
    assert len({line.shape for line in found.lines}) == LINES_MAX == len(SHAPES)
    assert found.left_out == 3


def test_lines_that_are_not_drawn_are_not_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group may have many queues, each with a value for every quarter of an hour."""
    reduced = list[list[float]]()

    def counted(figure: Figure, values: list[float], most: int) -> tuple[list[float], int]:
        reduced.append(values)
        return coarser(figure, values, most)

    monkeypatch.setattr(charts, "coarser", counted)
    found = drawn(*([None, float(place)] for place in range(64)))
    assert len(reduced) == LINES_MAX and found.left_out == 64 - LINES_MAX
    assert [row for _, row in found.rows][1] == ["63", "62", "61", "60", "59", "58"]


def test_marks_of_overlapping_lines_are_at_different_points() -> None:
    same: list[float | None] = [1.0] * 100
    first, second = (set(line.marks[:-1]) for line in drawn(same, same).lines)
    assert first and first.isdisjoint(second)


def test_many_steps_are_reduced_to_few_points_that_keep_the_peak() -> None:
    values: list[float | None] = [0.0] * 2880
    values[1000] = 99.0
    found = drawn(values)
    assert len(found.rows) <= POINTS_MAX
    assert found.lines[0].peak == "99"
    times = [at for at, _ in found.rows]
    assert times[-1] == HOUR["end_ms"]
    assert {after - before for before, after in pairwise(times)} == {160_000}


def test_lines_are_named_by_what_differs() -> None:
    rates = chart("chart.rates", [series([1.0], "topic-in", "T"), series([2.0], "topic-out", "T")], HOUR)
    assert [(line.key, line.name) for line in rates.lines] == [
        ("chart.topic-in", ""),
        ("chart.topic-out", ""),
    ]
    assert chart("chart.worst", [series([1.0], name="billing")], HOUR).lines[0].name == "billing"


@pytest.mark.parametrize(
    ("peak", "kind", "last", "second"),
    [
        (0.0, "number", 1.0, 1.0),
        (3.0, "number", 3.0, 1.0),
        (7.0, "number", 8.0, 2.0),
        (0.4, "rate", 0.4, 0.1),
        (0.11, "rate", 0.2, 0.1),
        (42.0, "percent", 100.0, 25.0),
        (200.0, "span", 240.0, 60.0),
        (90_000.0, "span", 115_200.0, 28_800.0),
        (900_000.0, "span", 1_296_000.0, 432_000.0),
        (0.3, "span", 0.3, 0.1),
        (3 * 1024**3, "bytes", 3 * 1024**3, 1024**3),
    ],
)
def test_scales_have_few_round_steps(peak: float, kind: str, last: float, second: float) -> None:
    top, ticks = scale(peak, kind)
    assert top == pytest.approx(last)
    assert ticks[:2] == pytest.approx([0.0, second])
    assert top >= peak and len(ticks) <= 6


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("span", 61.0, "1\u202fmin 1\u202fs"),
        ("span", 0.0, "0"),
        ("percent", 75.5, "75.5\u202f%"),
        ("bytes", 2048.0, "2.0\u202fKiB"),
        ("rate", 12.34, "12.3"),
        ("number", 1234.0, "1\u202f234"),
        ("number", float("nan"), None),
    ],
)
def test_values_are_formatted_for_people(kind: str, value: float, text: str | None) -> None:
    assert said(kind, value) == text


def test_time_labels_are_at_round_times() -> None:
    found = drawn([1.0] * 360)
    assert [at % 600_000 for _, at, _ in found.times] == [0] * len(found.times)
    assert 5 <= len(found.times) <= 7 and found.form == "time"
    month = chart("chart.lag", [series([1.0] * 2880)], HOUR | {"step_ms": 900_000})
    assert month.form == "day" and 9 <= len(month.times) <= 11


def test_chart_without_data_is_empty() -> None:
    assert drawn([]).is_empty
    assert chart("chart.lag", [], HOUR).is_empty
