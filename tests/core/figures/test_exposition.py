"""The text of metrics, as Prometheus' own library parses it."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from sparrowmq.core.figures.exposition import (
    LEFT_OUT,
    Exposition,
    Starting,
    labels,
    number,
    prefers_openmetrics,
)
from sparrowmq.core.figures.histogram import Histogram


def read(exposition: Exposition) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Samples by name and labels."""
    text = b"".join(exposition.rendering()).decode()
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = tuple(sorted(sample.labels.items()))
            assert key not in found.setdefault(sample.name, {}), "no series twice"
            found[sample.name][key] = sample.value
    return found


@given(st.text(), st.floats(allow_nan=False), st.integers(-(2**53), 2**53))
def test_any_label_and_any_number_can_be_read_back(text: str, value: float, whole: int) -> None:
    exposition = Exposition(10)
    family = exposition.gauge("a", "about \\ it\n")
    family.add(labels("", name=text, other="x"), value)
    exposition.counter("b_total", "").add("", whole)
    found = read(exposition)
    expected = text.encode("utf-8", "replace").decode()
    assert found["a"] == {(("name", expected), ("other", "x")): value}
    assert found["b_total"] == {(): whole}


def test_numbers_are_written_as_prometheus_expects() -> None:
    assert [number(value) for value in (inf, -inf, nan, 3, 0.5)] == ["+Inf", "-Inf", "NaN", "3", "0.5"]


def test_histogram_is_cumulative() -> None:
    sizes = Histogram((1, 2.5))
    sizes.add_all([1, 2, 2, 7])
    exposition = Exposition(10)
    exposition.histogram("size", "Sizes.").add_histogram(labels(a="b"), sizes.by_bound(), sizes.total)
    exposition.histogram("plain", "Sizes.").add_histogram("", sizes.by_bound(), sizes.total)
    found = read(exposition)
    assert [found["size_bucket"][("a", "b"), ("le", le)] for le in ("1.0", "2.5", "+Inf")] == [1, 3, 4]
    assert found["size_count"] == {(("a", "b"),): 4}
    assert found["plain_sum"] == {(): 12}


def test_series_beyond_the_limit_are_omitted_and_counted() -> None:
    exposition = Exposition(2)
    for at in range(5):
        exposition.gauge("many", "Many.").add(labels(at=at), at)
        exposition.histogram("more", "More.").add_histogram(labels(at=at), {"+Inf": 1}, 1)
    exposition.gauge("few", "Few.").add("", 1)
    exposition.gauge("none", "None.")
    found = read(exposition)
    assert list(found["many"].values()) == [0, 1], "the first ones stay"
    assert len(found["more_count"]) == 2
    assert found[LEFT_OUT] == {(("metric", "many"),): 3, (("metric", "more"),): 3}
    assert exposition.left_out() == {"many": 3, "more": 3}
    assert "none" not in found


def test_two_parts_can_share_a_metric() -> None:
    exposition = Exposition(10)
    exposition.gauge("a", "A.").add(labels(node="1"), 1)
    exposition.gauge("a", "A.").add(labels(node="2"), 2)
    text = b"".join(exposition.rendering()).decode()
    assert text.count("# TYPE a gauge") == 1
    assert len(read(exposition)["a"]) == 2


def test_text_is_rendered_in_chunks() -> None:
    exposition = Exposition(10_000)
    for at in range(1500):
        exposition.gauge("a", "A.").add(labels(at=at), at)
    chunks = list(exposition.rendering())
    assert len(chunks) == 7, "two lines of the head, 1,500 others"
    assert len(read(exposition)["a"]) == 1500


def test_openmetrics_text_has_the_same_samples() -> None:
    def made() -> Exposition:
        exposition = Exposition(10)
        exposition.gauge("a", 'About "it" \\ and\nmore.').add(labels(name='x"y'), 1.5)
        exposition.counter("b_total", "B.").add("", 3)
        sizes = Histogram((1, 2.5))
        sizes.add_all([1, 2, 7])
        exposition.histogram("c", "C.").add_histogram(labels(z="1"), sizes.by_bound(), sizes.total)
        return exposition

    text = b"".join(made().rendering(openmetrics=True)).decode()
    parsed = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    assert {name: family.type for name, family in families.items()} == {
        "a": "gauge",
        "b": "counter",
        "c": "histogram",
    }
    assert families["a"].documentation == 'About "it" \\ and\nmore.'
    samples = [one for family in families.values() for one in family.samples]
    found = {(one.name, tuple(sorted(one.labels.items()))): one.value for one in samples}
    plain = {(name, key): value for name, values in read(made()).items() for key, value in values.items()}
    assert found == plain


@pytest.mark.parametrize(
    ("accept", "is_wanted"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=0.0.1,text/plain;q=0.5", False),
        ("application/openmetrics-text; version=1.0.0; q=0.2, text/plain; q=0.3", False),
        ("application/openmetrics-text;version=1.0.0;q=0", False),
        ("application/openmetrics-text;version=1.0.0;q=high", False),
        (
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
        ),
    ],
)
def test_scrapers_choose_the_format(accept: str, is_wanted: bool) -> None:
    assert prefers_openmetrics(accept) is is_wanted


def test_starting_server_is_healthy_but_not_ready() -> None:
    starting = Starting("broker b")
    assert starting.node == "broker b"
    into = Exposition(1)
    assert not list(starting.collect(into))
    (family,) = into.families
    assert (family.name, family.points) == ("sparrow_starting", [('node_type="broker",node_id="b"', 1)])
    assert not starting.faults()
    assert starting.lacks() == ["it is starting or stopping"]


@pytest.mark.parametrize("text", ['a"b', "a\\b", "a\nb", "é", "\ud800"])
def test_unusual_names_cannot_forge_a_series(text: str) -> None:
    exposition = Exposition(10)
    exposition.gauge("a", "A.").add(labels(name=text), 1)
    assert len(read(exposition)["a"]) == 1
