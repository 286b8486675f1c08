"""What operators see of the servers of a process: the port for `/metrics`, or what a collector gets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.errors import ListenError, SettingsError
from sparrowmq.core.settings.addresses import DEFAULT_ADDRESS
from sparrowmq.core.settings.shared_rows import OTLP_GRPC, collector_url
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
    from sparrowmq.httpd.operators import OperatorPort
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

    target = CollectorTarget(
        collector_url(settings.metrics_grpc_exporter_target),
        parse_headers(settings.metrics_grpc_exporter_header),
        settings.metric_grpc_exporter_interval_in_mills,
        settings.metric_grpc_exporter_time_out_in_mills,
    )
    return MetricsSender(servers, target, series_max=settings.metrics_series_max, clock=clock)


async def open_port(
    settings: BrokerSettings | NameServerSettings | CoordinatorSettings | ProxySettings,
    servers: Callable[[], Sequence[Operated]],
    *,
    any_port: bool,
) -> OperatorPort:
    """The started port for `/metrics`, `/health` and `/ready` of these servers. With `any_port` any free one
    replaces one that is in use. Raises `ListenError`.
    """
    from sparrowmq.httpd.operators import OperatorPort

    def made(number: int) -> OperatorPort:
        host = settings.metrics_prom_exporter_host or DEFAULT_ADDRESS
        return OperatorPort(servers, host=host, port=number, series_max=settings.metrics_series_max)

    port = made(settings.metrics_prom_exporter_port)
    try:
        await port.start()
    except ListenError:
        if not any_port:
            raise
        port = made(0)
        await port.start()
    return port


@asynccontextmanager
async def operators_port(
    settings: CoordinatorSettings | ProxySettings, operated: Callable[[], Operated], *, any_port: bool = False
) -> AsyncIterator[str | None]:
    """Meanwhile serve `/metrics`, `/health` and `/ready` of a process with one server, or send its metrics to
    a collector, if that is switched on. Gives the address of the port, if there is one. Raises `ListenError`
    and `SettingsError`.
    """
    if settings.metrics_exporter_type == "DISABLE":
        yield None
        return
    if settings.metrics_exporter_type == OTLP_GRPC:
        sender = metrics_sender(settings, lambda: [operated()], SystemClock())
        sender.start()
        try:
            yield None
        finally:
            await sender.close()
        return
    port = await open_port(settings, lambda: [operated()], any_port=any_port)
    try:
        yield port.address
    finally:
        await port.close()
