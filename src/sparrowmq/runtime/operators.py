"""What operators see of the servers of a process: the port for `/metrics`, or what a collector gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.errors import SettingsError
from sparrowmq.core.settings.shared_rows import OTLP_GRPC
from sparrowmq.core.settings.text import parse_headers
from sparrowmq.runtime.extras import install_line

if TYPE_CHECKING:
    from sparrowmq.core.figures.exposition import Operated
    from sparrowmq.core.settings.servers import (
        BrokerSettings,
        CoordinatorSettings,
        NameServerSettings,
        ProxySettings,
    )
    from sparrowmq.otlp.sender import MetricsSender

OTLP_MODULE: Final = "opentelemetry.exporter.otlp.proto.grpc"


def need_otlp() -> None:
    """Raise `SettingsError` with what to type when the package that sends metrics is missing."""
    try:
        is_there = find_spec(OTLP_MODULE) is not None
    except ModuleNotFoundError:  # a package around it is missing
        is_there = False
    if not is_there:
        raise SettingsError(
            f"metricsExporterType={OTLP_GRPC} needs opentelemetry-exporter-otlp-proto-grpc; type: "
            + install_line("otlp")
        )


def metrics_sender(
    settings: BrokerSettings | NameServerSettings | CoordinatorSettings | ProxySettings,
    servers: Callable[[], Sequence[Operated]],
    clock: Clock,
) -> MetricsSender:
    """What sends the metrics of these servers to a collector, not started. Raises `SettingsError` when the
    package for it is missing.
    """
    need_otlp()
    from sparrowmq.otlp.sender import CollectorTarget, MetricsSender

    url = settings.metrics_grpc_exporter_target
    target = CollectorTarget(
        url if url.startswith("http") else f"https://{url}",
        parse_headers(settings.metrics_grpc_exporter_header),
        settings.metric_grpc_exporter_interval_in_mills,
        settings.metric_grpc_exporter_time_out_in_mills,
    )
    return MetricsSender(servers, target, series_max=settings.metrics_series_max, clock=clock)


@asynccontextmanager
async def operators_port(
    settings: CoordinatorSettings | ProxySettings, operated: Callable[[], Operated]
) -> AsyncIterator[None]:
    """Meanwhile serve `/metrics`, `/health` and `/ready` of a process with one server, or send its metrics to
    a collector, if that is switched on. Raises `ListenError` and `SettingsError`.
    """
    if settings.metrics_exporter_type == "DISABLE":
        yield
        return
    if settings.metrics_exporter_type == OTLP_GRPC:
        sender = metrics_sender(settings, lambda: [operated()], SystemClock())
        sender.start()
        try:
            yield
        finally:
            await sender.close()
        return
    from sparrowmq.httpd.operators import OperatorPort

    port = OperatorPort(
        lambda: [operated()],
        host=settings.metrics_prom_exporter_host,
        port=settings.metrics_prom_exporter_port,
        series_max=settings.metrics_series_max,
    )
    await port.start()
    try:
        yield
    finally:
        await port.close()
