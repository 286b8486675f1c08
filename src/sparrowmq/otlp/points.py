"""Figures as OpenTelemetry's SDK has them. Pure.

Metrics that RocketMQ has get the names that its own OTLP exporter gives them: the unit is a field of its own
there, and Prometheus appends it to the name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from sparrowmq.core.figures.exposition import HistogramPoint

if TYPE_CHECKING:
    from sparrowmq.core.figures.exposition import Family

THEIRS: Final = "rocketmq_"
UNITS: Final = {"_milliseconds": "milliseconds", "_size_bytes": "bytes"}
"""Ends of RocketMQ's metrics in Prometheus, which OTLP has as units; `_size` stays in the name."""
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


def attributes(label: str) -> dict[str, str]:
    """The labels of a series, from their text."""
    return {name: _ESCAPED.sub(_plain, value) for name, value in _LABEL.findall(label)}


def _plain(found: re.Match[str]) -> str:
    return "\n" if found[1] == "n" else found[1]


def name_and_unit(name: str) -> tuple[str, str]:
    """A metric's name and unit in OTLP."""
    if name.startswith(THEIRS):
        for end, unit in UNITS.items():
            if name.endswith(end):
                return name[: name.rindex("_")], unit
    return name, ""


def metrics_data(families: Iterable[Family], *, started_ms: int, now_ms: int) -> MetricsData:
    """All series of these metrics; counters and histograms count since `started_ms`. Times are epoch ms."""
    start, now = started_ms * 1_000_000, now_ms * 1_000_000
    metrics = [_metric(family, start, now) for family in families if family.points]
    scope = ScopeMetrics(InstrumentationScope("broker-meter"), metrics, "")
    resource = Resource({"service.name": "sparrowmq"})
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _metric(family: Family, start: int, now: int) -> Metric:
    name, unit = name_and_unit(family.name)
    data: Gauge | Sum | Histogram
    if family.kind == "histogram":
        points = [
            _distribution(label, value, start, now)
            for label, value in family.points
            if isinstance(value, HistogramPoint)
        ]
        data = Histogram(points, AggregationTemporality.CUMULATIVE)
    else:
        since = None if family.kind == "gauge" else start
        numbers = [
            NumberDataPoint(attributes(label), since, now, value)  # type: ignore[arg-type]  # gauges have none
            for label, value in family.points
            if not isinstance(value, HistogramPoint)
        ]
        if family.kind == "gauge":
            data = Gauge(numbers)
        else:
            data = Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Metric(name, family.about, unit, data)


def _distribution(label: str, point: HistogramPoint, start: int, now: int) -> HistogramDataPoint:
    counts = list(point.buckets.values())
    bounds = [float(bound) for bound in point.buckets][:-1]
    return HistogramDataPoint(
        attributes(label), start, now, sum(counts), point.total, counts, bounds, 0.0, 0.0
    )
