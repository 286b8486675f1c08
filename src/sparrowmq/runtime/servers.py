"""A name server, a broker or both on the running event loop, started and stopped in the right order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sparrowmq.broker.server import Broker
from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.settings.servers import BrokerSettings, NameServerSettings
from sparrowmq.core.settings.shared_rows import OTLP_GRPC
from sparrowmq.nameserver.registry import Registry
from sparrowmq.nameserver.server import NameServer
from sparrowmq.runtime.operators import metrics_sender, open_port
from sparrowmq.transport.tls import server_tls

if TYPE_CHECKING:
    from sparrowmq.core.figures.exposition import Operated
    from sparrowmq.httpd.operators import OperatorPort
    from sparrowmq.otlp.sender import MetricsSender

STOP_SECONDS: Final = 15.0
"""How long a clean stop of one server may take: it may have to flush memory to a slow disk."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Addresses of started servers; None for servers that were not requested."""

    nameserver: str | None
    broker: str | None
    data: Path | None
    metrics: str | None = None
    """Address of the operators' port."""
    ports: Mapping[str, str] = field(default_factory=dict)
    """The broker's ports by setting. With these texts, a broker that is started again has the same ports."""


def _no_levels(levels: str) -> None:
    """Used by servers in a program that sets up its own logging."""


class LocalServers:
    """A name server and a broker, each optional, on the running loop.

    Without `namesrv_addr` the broker registers at this name server. A stopped broker can be restarted with
    the same directory and port.

    Both share the operators' port, which is the broker's if both have one. With `any_metrics_port` any
    free port replaces one that is in use. `log_levels` is called with `logLevel` when an
    operator changes it.
    """

    def __init__(
        self,
        nameserver: NameServerSettings | None = None,
        broker: BrokerSettings | None = None,
        *,
        clock: Clock | None = None,
        any_metrics_port: bool = False,
        log_levels: Callable[[str], None] = _no_levels,
    ) -> None:
        self._nameserver_settings = nameserver
        self._broker_settings = broker
        self._clock = clock or SystemClock()
        self._nameserver: NameServer | None = None
        self._broker: Broker | None = None
        self._port: OperatorPort | None = None
        self._sender: MetricsSender | None = None
        self._any_metrics_port = any_metrics_port
        self._log_levels = log_levels

    def __repr__(self) -> str:
        return f"<Servers nameserver={self._nameserver!r} broker={self._broker!r}>"

    @property
    def broker(self) -> Broker | None:
        """The running broker."""
        return self._broker

    async def start(self) -> Listening:
        """Start the requested servers; if one fails, the other is stopped and the error is raised."""
        try:
            await self._open_port()
            if self._nameserver_settings is not None:
                await self._start_nameserver(self._nameserver_settings)
            if self._broker_settings is not None:
                await self.start_broker()
        except BaseException:
            await self.close()
            raise
        return self.listening

    @property
    def progress(self) -> str:
        """What servers that are not ready do or lack, such as `recovering: 3 of 40 log files`."""
        return "; ".join(reason for one in self._operated() for reason in one.lacks())

    @property
    def listening(self) -> Listening:
        """Addresses of the running servers."""
        return Listening(
            self._nameserver.address if self._nameserver else None,
            self._broker.address if self._broker else None,
            self._broker_settings.store_path_root_dir if self._broker and self._broker_settings else None,
            self._port.address if self._port else None,
            self._ports(),
        )

    def _ports(self) -> dict[str, str]:
        if self._broker is None:
            return {}
        found = {"listenPort": str(self._broker.port), "haListenPort": str(self._broker.ha_port)}
        if self._port is not None:
            found["metricsPromExporterPort"] = self._port.address.rpartition(":")[2]
        return found

    async def _open_port(self) -> None:
        wanted = [
            one
            for one in (self._broker_settings, self._nameserver_settings)
            if one is not None and one.metrics_exporter_type != "DISABLE"
        ]
        if not wanted:
            return
        settings = wanted[0]
        if settings.metrics_exporter_type == OTLP_GRPC:
            self._sender = metrics_sender(settings, self._operated, self._clock)
            self._sender.start()
            return
        self._port = await open_port(settings, self._operated, any_port=self._any_metrics_port)

    def _operated(self) -> list[Operated]:
        return [one.operated for one in (self._nameserver, self._broker) if one is not None]

    async def _start_nameserver(self, settings: NameServerSettings) -> None:
        server = NameServer(
            host=settings.bind_address,
            port=settings.listen_port,
            clock=self._clock,
            kv_path=settings.kv_config_path,
            memory_max=settings.connection_memory_max,
            connections_max=settings.connections_max,
            connections_per_address_max=settings.connections_per_address_max,
            registry=Registry(settings.topics_max, settings.routes_max),
            tls=server_tls(settings.tls_config_file, settings.tls_server_mode),
            metrics_label=settings.metrics_label,
        )
        await server.start()
        self._nameserver = server

    async def start_broker(self) -> None:
        """Start or restart the broker, with the settings of the first start and the same port."""
        settings = self._broker_settings
        if settings is None or self._broker is not None:
            raise InvalidStateError("there is no stopped broker to start", what="broker")
        if not settings.namesrv_addr and self._nameserver is not None:
            settings = replace(settings, namesrv_addr=self._nameserver.address)
        self._broker = broker = Broker(settings, clock=self._clock, log_levels=self._log_levels)
        try:
            await broker.start()
        except BaseException:
            self._broker = None
            raise
        self._broker_settings = replace(settings, listen_port=broker.port, ha_listen_port=broker.ha_port)

    async def stop_broker(self) -> None:
        """Stop the broker cleanly, if it runs."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await asyncio.wait_for(broker.close(), STOP_SECONDS)

    async def close(self) -> None:
        """Stop everything, the broker first. Raises TimeoutError when a part takes longer than 15 s."""
        port, self._port = self._port, None
        sender, self._sender = self._sender, None
        try:
            if sender is not None:
                await sender.close()
            if port is not None:
                await port.close()
            await self.stop_broker()
        finally:
            nameserver, self._nameserver = self._nameserver, None
            if nameserver is not None:
                await asyncio.wait_for(nameserver.close(), STOP_SECONDS)
