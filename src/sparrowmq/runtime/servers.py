"""A name server, a broker or both on the running event loop, started and stopped in the right order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sparrowmq.broker.server import Broker
from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.settings import BrokerSettings, NameServerSettings
from sparrowmq.nameserver.server import NameServer
from sparrowmq.transport.tls import server_tls

STOP_SECONDS: Final = 15.0
"""How long a clean stop of one server may take: flushing what is left in memory to a slow disk."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where servers that have started are found; None for what was not asked for."""

    nameserver: str | None
    broker: str | None
    data: Path | None


class Servers:
    """A name server and a broker, each optional, on the running loop.

    Without `namesrv_addr` of its own the broker registers at the name server beside it. A stopped broker can
    be started again: it takes its directory and its port again.
    """

    def __init__(
        self,
        nameserver: NameServerSettings | None = None,
        broker: BrokerSettings | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        self._nameserver_settings = nameserver
        self._broker_settings = broker
        self._clock = clock or SystemClock()
        self._nameserver: NameServer | None = None
        self._broker: Broker | None = None

    def __repr__(self) -> str:
        return f"<Servers nameserver={self._nameserver!r} broker={self._broker!r}>"

    @property
    def broker(self) -> Broker | None:
        """The running broker."""
        return self._broker

    async def start(self) -> Listening:
        """Start what was asked for; when one part fails, the other is stopped again and the error raised."""
        try:
            if self._nameserver_settings is not None:
                await self._start_nameserver(self._nameserver_settings)
            if self._broker_settings is not None:
                await self.start_broker()
        except BaseException:
            await self.close()
            raise
        return self.listening

    @property
    def listening(self) -> Listening:
        """Where the running servers are found."""
        return Listening(
            self._nameserver.address if self._nameserver else None,
            self._broker.address if self._broker else None,
            self._broker_settings.store_path_root_dir if self._broker and self._broker_settings else None,
        )

    async def _start_nameserver(self, settings: NameServerSettings) -> None:
        server = NameServer(
            host=settings.bind_address,
            port=settings.listen_port,
            clock=self._clock,
            kv_path=settings.kv_config_path,
            tls=server_tls(settings.tls_config_file, settings.tls_server_mode),
        )
        await server.start()
        self._nameserver = server

    async def start_broker(self) -> None:
        """Start the broker (again); the settings are those of the first start, the port the one it had."""
        settings = self._broker_settings
        if settings is None or self._broker is not None:
            raise InvalidStateError("there is no stopped broker to start")
        if not settings.namesrv_addr and self._nameserver is not None:
            settings = replace(settings, namesrv_addr=self._nameserver.address)
        broker = Broker(settings, clock=self._clock)
        await broker.start()
        self._broker_settings = replace(settings, listen_port=broker.port)
        self._broker = broker

    async def stop_broker(self) -> None:
        """Stop the broker cleanly, if it runs."""
        broker, self._broker = self._broker, None
        if broker is not None:
            await asyncio.wait_for(broker.close(), STOP_SECONDS)

    async def close(self) -> None:
        """Stop everything, the broker first. Raises TimeoutError when a part takes longer than 15 s."""
        try:
            await self.stop_broker()
        finally:
            nameserver, self._nameserver = self._nameserver, None
            if nameserver is not None:
                await asyncio.wait_for(nameserver.close(), STOP_SECONDS)
