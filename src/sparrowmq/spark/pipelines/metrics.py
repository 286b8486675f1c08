"""A run's progress as metrics in Prometheus' text format over HTTP. Needs prometheus-client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, start_http_server

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.watch import Progress, Report

PORT_MAX: Final = 65535


class Metrics:
    """The figures of one run, in a registry of their own; calling it is a `watch.Report`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._rows = self._gauge("rows", "messages done by this run")
        self._bytes = self._gauge("bytes", "bytes written by this run")
        self._batches = self._gauge("batches", "batches done by this run")
        self._lag = self._gauge("lag_messages", "messages that wait")
        self._topic_lag = self._gauge("topic_lag_messages", "messages of a topic that wait", "topic")
        self._topic_seconds = self._gauge(
            "topic_lag_seconds", "how long the oldest message of a topic that waits has been stored", "topic"
        )
        self._seconds = self._gauge("last_batch_seconds", "how long the last batch took")
        self._changed = self._gauge("last_progress_timestamp_seconds", "epoch seconds of the last progress")

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        names = ["pipeline", *labels]
        return Gauge(f"sparrow_pipe_{name}", f"Pipeline: {text}.", names, registry=self.registry)

    def __call__(self, progress: Progress) -> None:
        """Take over what a run has done."""
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
        for lag in progress.topics or ():
            self._topic_lag.labels(progress.pipeline, lag.topic).set(lag.messages)
            if lag.seconds is not None:
                self._topic_seconds.labels(progress.pipeline, lag.topic).set(lag.seconds)


def address(text: str) -> tuple[str, int]:
    """`HOST:PORT` or `PORT` (on the loopback address). Raises `SettingsError`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > PORT_MAX:
        raise SettingsError(f"{text!r} is no place for metrics: give HOST:PORT, such as 127.0.0.1:9101")
    return host.strip("[]") or "127.0.0.1", int(port)


@contextmanager
def serve(host: str, port: int) -> Iterator[tuple[Report, int]]:
    """Serves metrics at `http://host:port/metrics` meanwhile; gives the report and the port (for port 0)."""
    metrics = Metrics()
    try:
        server, thread = start_http_server(port, host, registry=metrics.registry)
    except OSError as error:
        raise SettingsError(
            f"metrics cannot be served at {host}:{port} ({error.strerror}); give another port, 0 for any"
        ) from error
    try:
        yield metrics, server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
