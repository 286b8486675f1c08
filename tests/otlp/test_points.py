"""Figures as OpenTelemetry's SDK has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrowmq.core.figures.exposition import Exposition, labels
from sparrowmq.otlp.points import attributes, metrics_data, name_and_unit

STARTED, NOW = 1_700_000_000_000, 1_700_000_060_000


def told(exposition: Exposition) -> dict[str, Any]:
    """Metrics by name."""
    data = metrics_data(exposition.families, started_ms=STARTED, now_ms=NOW)
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    assert resource.resource.attributes["service.name"] == "sparrowmq"
    return {metric.name: metric for metric in scope.metrics}


@given(st.dictionaries(st.sampled_from(["topic", "consumer_group", "a_1"]), st.text()))
def test_labels_become_attributes(values: dict[str, str]) -> None:
    wanted = {name: value.encode("utf-8", "replace").decode() for name, value in values.items()}
    assert attributes(labels("", **values)) == wanted


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("rocketmq_rpc_latency_milliseconds", ("rocketmq_rpc_latency", "milliseconds")),
        ("rocketmq_storage_size_bytes", ("rocketmq_storage_size", "bytes")),
        ("rocketmq_storage_flush_behind_bytes", ("rocketmq_storage_flush_behind_bytes", "")),
        ("rocketmq_messages_in_total", ("rocketmq_messages_in_total", "")),
        ("sparrow_flush_seconds", ("sparrow_flush_seconds", "")),
    ],
)
def test_names_are_those_of_rocketmqs_exporter(name: str, wanted: tuple[str, str]) -> None:
    assert name_and_unit(name) == wanted


def test_gauges_counters_and_histograms() -> None:
    exposition = Exposition(2)
    exposition.gauge("g", "A gauge.").add(labels(topic="T"), 1.5)
    exposition.counter("c_total", "A counter.").add("", 7)
    exposition.histogram("h", "A histogram.").add_histogram("", {"1.0": 2, "5.0": 0, "+Inf": 3}, 40)
    exposition.gauge("none", "Without series.")
    found = told(exposition)
    assert set(found) == {"g", "c_total", "h"}
    (gauge,) = found["g"].data.data_points
    assert (gauge.attributes, gauge.value, gauge.time_unix_nano) == ({"topic": "T"}, 1.5, NOW * 1_000_000)
    (counter,) = found["c_total"].data.data_points
    assert found["c_total"].data.is_monotonic
    assert (counter.value, counter.start_time_unix_nano) == (7, STARTED * 1_000_000)
    (histogram,) = found["h"].data.data_points
    assert (histogram.count, histogram.sum) == (5, 40)
    assert (list(histogram.bucket_counts), list(histogram.explicit_bounds)) == ([2, 0, 3], [1.0, 5.0])
