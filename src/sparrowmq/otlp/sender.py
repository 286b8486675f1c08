"""Sends the figures of the servers of a process to an OpenTelemetry collector, again and again.

Collecting runs in slices of the loop. Encoding and sending run in a thread: with thousands of topics they
take a second of processor time, which the loop shares as Python divides it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

from sparrowmq.core.figures.exposition import Exposition, Operated
from sparrowmq.otlp.points import metrics_data
from sparrowmq.transport.figures import collected
from sparrowmq.transport.occasional import OccasionalLog

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock, Sleep

log = logging.getLogger("sparrowmq.operators")
POINTS_A_REQUEST: Final = 1000
"""Series in one request, as RocketMQ's `metricsExportBatchMaxDataPoints`."""


@dataclass(frozen=True, slots=True)
class CollectorTarget:
    """Where figures go: `url` is that of a collector, `headers` are sent along. Times are milliseconds."""

    url: str
    headers: Mapping[str, str]
    interval_ms: int
    timeout_ms: int


class Exporter(Protocol):
    """What sends; `OTLPMetricExporter` of OpenTelemetry's SDK."""

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: object
    ) -> MetricExportResult:
        """Send; blocks."""

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: object) -> None:
        """Close the connection; blocks."""


def exporter(target: CollectorTarget) -> Exporter:
    """The exporter for a collector. `http://` is without TLS."""
    made: Exporter = OTLPMetricExporter(
        endpoint=target.url,
        insecure=target.url.startswith("http://"),
        headers={name.lower(): value for name, value in target.headers.items()},
        timeout=target.timeout_ms / 1000,
        max_export_batch_size=POINTS_A_REQUEST,
    )
    return made


class MetricsSender:
    """The task that sends. `servers` is called for each round, because servers may come and go."""

    def __init__(
        self,
        servers: Callable[[], Sequence[Operated]],
        target: CollectorTarget,
        *,
        series_max: int,
        clock: Clock,
        sleep: Sleep = asyncio.sleep,
        make: Callable[[CollectorTarget], Exporter] = exporter,
    ) -> None:
        self._servers = servers
        self._target = target
        self._series_max = series_max
        self._clock = clock
        self._sleep = sleep
        self._exporter = make(target)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sparrow-otlp")
        self._started_ms = clock.now_ms()
        self._occasional = OccasionalLog(log)
        self._task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"<MetricsSender to {self._target.url}>"

    def start(self) -> None:
        """Begin to send; call on the loop."""
        self._task = asyncio.create_task(self._run(), name="sparrow-otlp")

    async def _run(self) -> None:
        while True:  # until cancelled by close
            await self._sleep(self._target.interval_ms / 1000)
            try:
                if not await self.send():
                    self._complain("it did not take them")
            except Exception as error:
                self._complain(str(error) or type(error).__name__, error)

    def _complain(self, why: str, error: Exception | None = None) -> None:
        text = f"metrics were not sent to {self._target.url}: {why}; the next are sent in time"
        self._occasional.write(logging.WARNING, "otlp", text, error=error)

    async def send(self) -> bool:
        """Send all figures once. Returns whether the collector took them."""
        exposition = Exposition(self._series_max)
        for server in self._servers():
            await collected(server.collect(exposition), self._thread)
        exposition.count_left_out()
        now_ms = self._clock.now_ms()

        def work() -> MetricExportResult:
            data = metrics_data(exposition.families, started_ms=self._started_ms, now_ms=now_ms)
            return self._exporter.export(data, self._target.timeout_ms)

        result = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        return result is MetricExportResult.SUCCESS

    async def close(self) -> None:
        """Stop; what is being sent gets its time limit. Idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await asyncio.get_running_loop().run_in_executor(None, self._exporter.shutdown, 1000)
        self._thread.shutdown(wait=False, cancel_futures=True)
