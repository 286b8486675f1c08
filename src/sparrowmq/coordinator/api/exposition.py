"""The last figures in Prometheus' text format. Pure.

Labels are bounded: each figure has at most `LABELS_MAX` series, the first by name, and
`sparrow_figures_left_out` counts the others. Single queues are never exported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from sparrowmq.coordinator.history.grains import Figure, Series

LABELS_MAX: Final = 5000
NAMES: Final[Mapping[Figure, tuple[str, str, str]]] = {
    Figure.CLUSTER_IN: ("cluster_stored_per_second", "", "Messages a second that all brokers stored"),
    Figure.CLUSTER_OUT: ("cluster_delivered_per_second", "", "Messages a second that all brokers delivered"),
    Figure.TOPIC_IN: ("topic_stored_per_second", "topic", "Messages a second that were stored"),
    Figure.TOPIC_OUT: (
        "topic_consumed_per_second",
        "topic",
        "Messages a second that groups consumed, by their offsets",
    ),
    Figure.GROUP_LAG: ("group_lag_messages", "group", "Messages that wait for a group"),
    Figure.GROUP_AGE: ("group_lag_seconds", "group", "How long the oldest of them has waited"),
    Figure.BROKER_IN: ("broker_stored_per_second", "broker", "Messages a second that a broker stored"),
    Figure.BROKER_OUT: ("broker_delivered_per_second", "broker", "Messages a second that it delivered"),
    Figure.BROKER_DISK: ("broker_disk_used_percent", "broker", "Hundredths of its disk that are used"),
    Figure.BROKER_LOG: ("broker_log_bytes", "broker", "Bytes of its commit log"),
    Figure.SERVICE_TOOK: ("service_run_seconds", "service", "How long a service's last run took"),
    Figure.SERVICE_FAILED: ("service_runs_failed", "service", "Runs that failed in the last ten seconds"),
}
"""Name after `sparrow_`, labels and help text, by figure."""


class _Figures(Collector):
    def __init__(self, values: Mapping[Series, float]) -> None:
        self._values = values

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Each figure as a metric family."""
        by_figure: defaultdict[Figure, list[tuple[str, float]]] = defaultdict(list)
        for one, value in self._values.items():
            by_figure[one.figure].append((one.name, value))
        left_out = 0
        for figure, (name, label, about) in NAMES.items():
            family = GaugeMetricFamily(f"sparrow_{name}", f"{about}.", labels=[label] if label else [])
            told = sorted(by_figure[figure])
            left_out += max(0, len(told) - LABELS_MAX)
            for thing, value in told[:LABELS_MAX]:
                family.add_metric([thing] if label else [], value)
            yield family
        yield GaugeMetricFamily("sparrow_figures_left_out", "Figures beyond the bound.", value=left_out)


def exposed(values: Mapping[Series, float]) -> tuple[str, str]:
    """The text and its content type."""
    registry = CollectorRegistry()
    registry.register(_Figures(values))
    return generate_latest(registry).decode(), CONTENT_TYPE_LATEST
