"""The name server process: a socket, a registry, and the watch over silent brokers."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final

from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.nameserver.handlers import Handlers
from sparrowmq.nameserver.kv import KeyValues
from sparrowmq.nameserver.options import Options
from sparrowmq.nameserver.registry import Registry
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.dispatch import CommandHandler
from sparrowmq.transport.server import Server
from sparrowmq.transport.tls import ServerTls

PORT: Final = 9876
SCAN_SECONDS: Final = 5.0
"""How often silent brokers are looked for."""

logger = logging.getLogger("sparrowmq.nameserver")


class NameServer:
    """A name server for RocketMQ's brokers and clients, and for ours.

    All state is in memory and comes back with the brokers' next registrations; only the key-value tables are
    kept, in `kv_path` when one is given. `order_messages` puts them into the routes of ordered topics. Port 0
    takes a free port.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        clock: Clock | None = None,
        kv_path: Path | None = None,
        order_messages: bool = False,
        tls: ServerTls | None = None,
    ) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._registry = Registry()
        self._values = KeyValues(kv_path)
        self._options = Options(order_message_enable=order_messages)
        handlers = Handlers(
            self._registry, self._values, self._options, self._clock, settings=self._fixed_settings
        )
        self._handler = CommandHandler(
            handlers.table(),
            on_connection_made=self._connection_made,
            on_connection_lost=self._connection_lost,
        )
        self._server = Server(self._handler, host=host, port=port, tls=tls)
        self._connections: dict[int, Connection] = {}
        self._scan_timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<NameServer {self.address} {self._registry!r}>"

    @property
    def port(self) -> int:
        """The port; once started the real one."""
        return self._server.port

    @property
    def address(self) -> str:
        """`host:port`."""
        return self._server.address

    async def start(self) -> None:
        """Read the key-value tables and listen. Raises `StoreError`, `ListenError`."""
        await asyncio.to_thread(self._values.load)
        await self._server.start()
        self._plan_scan()
        logger.info("name server listening on %s", self.address)

    async def close(self) -> None:
        """Stop: answers that are written still leave. Idempotent."""
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None
        await self._handler.close()
        await self._server.close()

    def scan(self) -> None:
        """Drop brokers that were not heard in time, and close their connections."""
        for member in self._registry.expire(self._clock.monotonic()):
            logger.warning(
                "broker %s (%s) was not heard for %.0f s and is dropped",
                member.broker_name,
                member.address,
                member.timeout,
            )
            conn = self._connections.get(member.connection)
            if conn is not None:
                conn.close("its broker was not heard in time")

    # Inside

    def _plan_scan(self) -> None:
        self._scan_timer = asyncio.get_running_loop().call_later(SCAN_SECONDS, self._scan_again)

    def _scan_again(self) -> None:
        self.scan()
        self._plan_scan()

    def _connection_made(self, conn: Connection) -> None:
        self._connections[conn.id] = conn

    def _connection_lost(self, conn: Connection) -> None:
        self._connections.pop(conn.id, None)
        for member in self._registry.connection_lost(conn.id):
            logger.info("broker %s (%s) is gone", member.broker_name, member.address)

    def _fixed_settings(self) -> dict[str, object]:
        return {
            "bindAddress": self._server.host,
            "listenPort": self.port,
            "kvConfigPath": self._values.path or "",
            "scanNotActiveBrokerInterval": int(SCAN_SECONDS * 1000),
        }
