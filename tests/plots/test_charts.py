"""Charts are valid SVG with every point inside its frame."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.plots.charts import (
    BAR_NAMES_MAX,
    DOTS_MAX,
    HEIGHT,
    WIDTH,
    Axis,
    Bar,
    Line,
    bar_chart,
    line_chart,
    nice_step,
)

X = Axis("x <axis>", lambda value: f"{value:g} s")
Y = Axis("y & axis", lambda value: f"{value:g}")


def points(chart: str) -> list[tuple[float, float]]:
    root = ElementTree.fromstring(chart)
    found = []
    for line in root.iter("polyline"):
        pairs = (pair.split(",") for pair in line.attrib["points"].split())
        found += [(float(x), float(y)) for x, y in pairs]
    return found


@pytest.mark.parametrize(
    ("span", "ticks", "step"),
    [(10, 5, 2), (100, 5, 20), (7, 5, 2), (1, 5, 0.2), (0.03, 5, 0.01), (336_776, 5, 1e5), (0, 5, 1)],
)  # fmt: skip
def test_nice_step(span: float, ticks: int, step: float) -> None:
    assert nice_step(span, ticks) == pytest.approx(step)


def test_a_chart() -> None:
    chart = line_chart(
        'a "chart" & more', [Line("EWR <1>", [(5, 1), (6, -2)], "one"), Line("JFK", [], "two")], X, Y
    )
    root = ElementTree.fromstring(chart)
    assert root.attrib["aria-label"] == 'a "chart" & more'
    texts = [node.text for node in root.iter("text")]
    assert {"EWR <1>", "JFK", "x <axis>", "y & axis"} <= set(texts)
    tips = [node.text for node in root.iter("title")]
    assert tips == ["EWR <1>, 5 s: 1", "EWR <1>, 6 s: -2"]


def test_higher_values_are_higher_up() -> None:
    (x1, y1), (x2, y2) = points(line_chart("", [Line("a", [(0, 0), (10, 100)], "one")], X, Y))
    assert x1 < x2
    assert y1 > y2


@pytest.mark.parametrize("values", [(-1e6, -1e6), (-1e6, -999_999), (1e9, 1e9 + 1), (-3, 5)])
def test_every_chart_has_a_handful_of_grid_lines(values: tuple[float, float]) -> None:
    root = ElementTree.fromstring(line_chart("", [Line("a", list(enumerate(values)), "one")], X, Y))
    assert 2 <= sum(line.attrib.get("class") == "grid" for line in root.iter("line")) <= 8


def test_nothing_to_draw() -> None:
    assert line_chart("", [], X, Y) == ""
    assert line_chart("", [Line("a", [], "one")], X, Y) == ""


def test_long_lines_have_no_dots() -> None:
    many = [(float(i), float(i)) for i in range(DOTS_MAX + 1)]
    assert "<circle" not in line_chart("", [Line("a", many, "one")], X, Y)
    assert "<circle" in line_chart("", [Line("a", many[:-1], "one")], X, Y)


numbers = st.floats(-1e6, 1e9, allow_nan=False)


@given(st.lists(st.tuples(st.floats(0, 1e5), numbers), min_size=1, max_size=80))
def test_every_point_is_inside(values: list[tuple[float, float]]) -> None:
    for x, y in points(line_chart("", [Line("a", values, "one")], X, Y)):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT


def test_bars() -> None:
    bars = [Bar("<a>", 2), Bar("b", 4, "two", "four & more"), Bar("c", 0)]
    root = ElementTree.fromstring(bar_chart('"bars"', bars, "x", Y))
    high = [float(bar.attrib["height"]) for bar in root.iter("rect")]
    assert high[1] == pytest.approx(2 * high[0]) and high[2] == 0
    assert [bar.attrib["class"] for bar in root.iter("rect")] == ["one", "two", "one"]
    assert [node.text for node in root.iter("title")] == ["<a>: 2", "four & more", "c: 0"]
    assert {"<a>", "b", "c", "x", "y & axis"} <= {node.text for node in root.iter("text")}
    assert bar_chart("", [], "x", Y) == ""


def test_many_bars_are_inside_and_some_are_named() -> None:
    bars = [Bar(f"n{number}", number) for number in range(5 * BAR_NAMES_MAX)]
    root = ElementTree.fromstring(bar_chart("", bars, "x", Y))
    for bar in root.iter("rect"):
        x, width, y = (float(bar.attrib[name]) for name in ("x", "width", "y"))
        assert x >= 0 and x + width <= WIDTH and 0 <= y <= HEIGHT
    assert sum((node.text or "").startswith("n") for node in root.iter("text")) == BAR_NAMES_MAX
