"""A run's progress as metrics in Prometheus' text format over HTTP. Needs prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Gauge

from sparrowmq.spark.metrics.http import served_registry
from sparrowmq.spark.pipelines.common.watch import Progress, Report


class Metrics:
    """The metrics of one run, in a separate registry; calling it is a `watch.Report`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rows = self._gauge("rows", "messages processed by this run")
        self._bytes = self._gauge("bytes", "bytes written by this run")
        self._batches = self._gauge("batches", "batches processed by this run")
        self._lag = self._gauge("lag_messages", "messages that wait")
        self._topic_lag = self._gauge("topic_lag_messages", "unread messages of a topic", "topic")
        self._topic_seconds = self._gauge(
            "topic_lag_seconds", "age of the oldest unread message of a topic", "topic"
        )
        self._bad = self._gauge("bad_rows", "rows that could not be decoded and were set aside")
        self._seconds = self._gauge("last_batch_seconds", "duration of the last batch")
        self._changed = self._gauge("last_progress_timestamp_seconds", "epoch seconds of the last progress")

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        names = ["pipeline", *labels]
        return Gauge(f"sparrow_pipe_{name}", f"Pipeline: {text}.", names, registry=self.registry)

    def __call__(self, progress: Progress) -> None:
        """Update the metrics from a run's progress."""
        for gauge, value in (
            (self._rows, progress.rows),
            (self._bytes, progress.size),
            (self._batches, progress.batches),
            (self._seconds, progress.batch_seconds),
            (self._changed, progress.at),
        ):
            gauge.labels(progress.pipeline).set(value)
        if progress.lag is not None:
            self._lag.labels(progress.pipeline).set(progress.lag)
        if progress.bad is not None:
            self._bad.labels(progress.pipeline).set(progress.bad)
        for lag in progress.topics or ():
            self._topic_lag.labels(progress.pipeline, lag.topic).set(lag.messages)
            if lag.seconds is not None:
                self._topic_seconds.labels(progress.pipeline, lag.topic).set(lag.seconds)


@contextmanager
def serve(host: str, port: int) -> Iterator[tuple[Report, int]]:
    """Serve metrics at `http://host:port/metrics` within the block; yields the report and the port (for port
    0).
    """
    metrics = Metrics()
    with served_registry(metrics.registry, host, port) as served:
        yield metrics, served
