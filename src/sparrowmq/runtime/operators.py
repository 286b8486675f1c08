"""The operators' port of a process with one server: a proxy or a coordinator."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparrowmq.core.figures.exposition import Operated
    from sparrowmq.core.settings.servers import CoordinatorSettings, ProxySettings


@asynccontextmanager
async def operators_port(
    settings: CoordinatorSettings | ProxySettings, operated: Callable[[], Operated]
) -> AsyncIterator[None]:
    """Serve `/metrics`, `/health` and `/ready` meanwhile, if that is switched on. Raises `ListenError`."""
    if settings.metrics_exporter_type == "DISABLE":
        yield
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
