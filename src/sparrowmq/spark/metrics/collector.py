"""Exports the figures of queries as metrics, built at each scrape. Needs prometheus-client."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sparrowmq.spark.metrics.figures import Figures, QueryFigures, most_behind
from sparrowmq.spark.metrics.progress import behind_latest

QUEUES_MAX: Final = 2000
"""Maximum number of queues with their own series, over all queries: those with the longest lags."""
PREFIX: Final = "sparrow_query_"

Value = Callable[[QueryFigures, float], float | None]

GAUGES: Final[dict[str, tuple[str, Value]]] = {
    "active": ("1 while the query runs", lambda one, now: float(one.active)),
    "lag_messages": ("messages that wait", lambda one, now: _total(one.lags.values())),
    "lag_seconds": (
        "age of the oldest unread message",
        lambda one, now: max(one.lag_seconds(now).values(), default=None),
    ),
    "min_offsets_behind_latest": ("the shortest lag of a queue", lambda one, now: _behind(one, "min")),
    "max_offsets_behind_latest": ("the longest lag of a queue", lambda one, now: _behind(one, "max")),
    "avg_offsets_behind_latest": ("the average lag of queues", lambda one, now: _behind(one, "avg")),
    "lag_timestamp_seconds": ("epoch seconds at which the lag was measured", lambda one, now: one.asked),
    "input_rows_per_second": (
        "rows received per second, by the last batch",
        lambda one, now: one.rows_in_per_second,
    ),
    "processed_rows_per_second": (
        "rows processed per second, by the last batch",
        lambda one, now: one.rows_done_per_second,
    ),
    "batch_seconds": ("duration of the last batch", lambda one, now: one.batch_seconds),
    "last_progress_timestamp_seconds": (
        "epoch seconds of the last batch, or of the last check that found nothing",
        lambda one, now: one.seen,
    ),
    "watermark_timestamp_seconds": ("the watermark in epoch seconds", lambda one, now: one.watermark),
    "state_rows": ("rows kept as state", lambda one, now: one.state_rows),
}
"""Name after the prefix → its text and value; None is not exported."""

COUNTERS: Final[dict[str, tuple[str, Value]]] = {
    "starts": ("starts of the query that were seen", lambda one, now: one.starts),
    "batches": ("batches that ended", lambda one, now: one.batches),
    "input_rows": ("rows read", lambda one, now: one.rows),
    "late_rows": ("rows dropped because they arrived after the watermark", lambda one, now: one.late_rows),
}


class QueryCollector(Collector):
    """Exports `figures` as metrics at each scrape."""

    def __init__(
        self,
        figures: Callable[[], Figures],
        *,
        now: Callable[[], float],
        queues_max: int = QUEUES_MAX,
    ) -> None:
        self._figures = figures
        self._now = now
        self._queues_max = queues_max

    def describe(self) -> list[Metric]:
        """Nothing: the names are those of `collect`."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All current metrics."""
        figures = self._figures()
        queries = figures.queries
        now = self._now()
        for name, (text, value) in GAUGES.items():
            gauge = GaugeMetricFamily(f"{PREFIX}{name}", f"Query: {text}.", labels=["query"])
            for one, found in _known(queries, value, now):
                gauge.add_metric([one.name], found)
            yield gauge
        for name, (text, value) in COUNTERS.items():
            counter = CounterMetricFamily(f"{PREFIX}{name}", f"Query: {text}.", labels=["query"])
            for one, found in _known(queries, value, now):
                counter.add_metric([one.name], found)
            yield counter
        yield _faults(queries)
        yield from self._of_queues(queries, now)
        yield GaugeMetricFamily(
            "sparrow_queries_not_shown",
            "Running queries beyond the number that is kept.",
            value=figures.unseen,
        )
        yield from _judged(figures)

    def _of_queues(self, queries: tuple[QueryFigures, ...], now: float) -> Iterator[Metric]:
        labels = ["query", "topic", "broker", "queue_id"]
        messages = GaugeMetricFamily(
            f"{PREFIX}queue_lag_messages", "Query: unread messages of a queue.", labels=labels
        )
        seconds = GaugeMetricFamily(
            f"{PREFIX}queue_lag_seconds",
            "Query: age of the oldest unread message of a queue.",
            labels=labels,
        )
        hidden = GaugeMetricFamily(
            f"{PREFIX}queues_not_shown", "Query: queues that only the totals count.", labels=["query"]
        )
        shown = most_behind(queries, self._queues_max)
        for one in queries:
            lags, ages = one.lags, one.lag_seconds(now)
            mine = [queue for queue in sorted(lags) if (one.name, queue) in shown]
            for queue in mine:
                values = [one.name, queue.topic, queue.broker_name, str(queue.queue_id)]
                messages.add_metric(values, lags[queue])
                if queue in ages:
                    seconds.add_metric(values, ages[queue])
            hidden.add_metric([one.name], len(lags) - len(mine))
        yield from (messages, seconds, hidden)


def _known(queries: Iterable[QueryFigures], value: Value, now: float) -> Iterator[tuple[QueryFigures, float]]:
    for one in queries:
        found = value(one, now)
        if found is not None:
            yield one, found


def _faults(queries: Iterable[QueryFigures]) -> Metric:
    found = CounterMetricFamily(
        f"{PREFIX}faults", "Query: runs that ended with an error, by kind.", labels=["query", "error"]
    )
    for one in queries:
        for kind, count in one.faults.items():
            found.add_metric([one.name, kind], count)
    return found


def _judged(figures: Figures) -> Iterator[Metric]:
    rows = CounterMetricFamily(
        "sparrow_judged_rows", "Rows that were checked for decoding errors.", labels=["name"]
    )
    bad = CounterMetricFamily("sparrow_bad_rows", "Rows that could not be decoded.", labels=["name"])
    for name, one in figures.judged.items():
        rows.add_metric([name], one.rows)
        bad.add_metric([name], one.bad)
    yield from (rows, bad)


def _total(values: Iterable[int]) -> float | None:
    found = list(values)
    return sum(found) if found else None


def _behind(one: QueryFigures, which: str) -> float | None:
    return behind_latest(one.lags).get(f"{which}OffsetsBehindLatest")
