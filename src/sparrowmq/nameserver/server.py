"""The name server process: a socket, a registry, and the check for brokers without heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparrowmq.core.clock import Clock, SystemClock
from sparrowmq.core.figures.bounds import bounds_table
from sparrowmq.core.figures.exposition import Operated, Starting
from sparrowmq.core.outside import one_line
from sparrowmq.nameserver import rights
from sparrowmq.nameserver.handlers import Handlers
from sparrowmq.nameserver.kv import KeyValues
from sparrowmq.nameserver.operated import OperatedNameServer, registry_bounds
from sparrowmq.nameserver.options import Options
from sparrowmq.nameserver.registry import LiveBroker, Registry
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.dispatch import CommandHandler, check_rows
from sparrowmq.transport.figures import server_bounds
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.server import CONNECTIONS_MAX, Server
from sparrowmq.transport.slices import shared
from sparrowmq.transport.tls import ServerTls

PORT: Final = 9876
MEMORY_MAX: Final = 64 * 1024 * 1024
"""Maximum number of bytes buffered for all connections together, see `MemoryAccount`."""
SCAN_SECONDS: Final = 5.0
"""Interval of the check for silent brokers."""

logger = logging.getLogger("sparrowmq.nameserver")


class NameServer:
    """A name server for brokers and clients of RocketMQ and SparrowMQ.

    All state is in memory and is restored by the brokers' next registrations; only the key-value tables are
    saved, in `kv_path` if it is given. `registry` is an empty one with other limits. Port 0 selects a free
    port.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        clock: Clock | None = None,
        kv_path: Path | None = None,
        memory_max: int = MEMORY_MAX,
        tls: ServerTls | None = None,
        connections_max: int = CONNECTIONS_MAX,
        connections_per_address_max: int = 0,
        registry: Registry | None = None,
        metrics_label: str = "",
    ) -> None:
        self._clock: Clock = SystemClock() if clock is None else clock
        self._began = self._clock.monotonic()
        self._registry = Registry() if registry is None else registry
        self._values = KeyValues(kv_path)
        self._options = Options()
        handlers = Handlers(
            self._registry,
            self._values,
            self._options,
            self._clock,
            settings=self._fixed_settings,
            runtime=self._runtime,
        ).table()
        check_rows(handlers, rights.RIGHTS, rights.__name__, guarded=False)
        self._handler = CommandHandler(
            handlers,
            on_connection_made=self._connection_made,
            on_connection_lost=self._connection_lost,
        )
        self._server = Server(
            self._handler,
            host=host,
            port=port,
            memory_max=memory_max,
            tls=tls,
            connections_max=connections_max,
            connections_per_address_max=connections_per_address_max,
        )
        self._metrics_label = metrics_label
        self._operated: OperatedNameServer | None = None
        self._connections: dict[int, Connection] = {}
        self._scan_timer: asyncio.TimerHandle | None = None
        self._occasional = OccasionalLog(logger)

    def __repr__(self) -> str:
        return f"<NameServer {self.address} {self._registry!r}>"

    @property
    def operated(self) -> Operated:
        """What operators see of the name server, also while it starts."""
        return self._operated or Starting(f"nameserver {self.address}")

    @property
    def port(self) -> int:
        """The port; after the start, the actual one."""
        return self._server.port

    @property
    def address(self) -> str:
        """`host:port`."""
        return self._server.address

    async def start(self) -> None:
        """Read the key-value tables and listen. Raises `StoreError`, `ListenError`."""
        await asyncio.to_thread(self._values.load)
        await self._server.start()
        self._server.begin_watch()
        self._plan_scan()
        self._operated = OperatedNameServer(self._registry, self._server, self._metrics_label)
        logger.info("name server listening on %s", self.address)

    async def close(self) -> None:
        """Stop the server; answers already written are still sent. Idempotent."""
        self._operated = None
        if self._scan_timer is not None:
            self._scan_timer.cancel()
            self._scan_timer = None
        await self._handler.close()
        await self._server.close()

    def scan(self) -> None:
        """Drop brokers without a recent heartbeat, and close their connections."""
        shared().run(self._expiring(self._clock.monotonic()))

    def _expiring(self, now: float) -> Iterator[None]:
        for member in self._registry.expire(now):
            self._tell(
                logging.WARNING,
                "silent",
                member,
                f"sent no heartbeat for {member.timeout:.0f} s and was removed",
            )
            conn = self._connections.get(member.connection)
            if conn is not None:
                conn.close("its broker sent no heartbeat in time")
            yield

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
        shared().run(self._leaving(conn))

    def _leaving(self, conn: Connection) -> Iterator[None]:
        for member in self._registry.connection_lost(conn.id):
            self._tell(logging.INFO, "disconnected", member, "disconnected")
            yield

    def _tell(self, level: int, kind: str, member: LiveBroker, what: str) -> None:
        """Log what became of a broker; limited, as any client may register brokers under any name."""
        text = f"broker {member.broker_name} ({member.address}) {what}"
        self._occasional.write(level, f"{kind} {member.broker_name}", one_line(text))

    def _runtime(self) -> dict[str, str]:
        """Runtime information: uptime, stalls of the loop, and the use of bounds."""
        up_ms = int((self._clock.monotonic() - self._began) * 1000)
        bounds = bounds_table([*registry_bounds(self._registry), *server_bounds(self._server)])
        return {"uptimeMillis": str(up_ms), **self._server.watch.book.table(), **bounds}

    def _fixed_settings(self) -> dict[str, object]:
        return {
            "bindAddress": self._server.host,
            "listenPort": self.port,
            "kvConfigPath": self._values.path or "",
            "scanNotActiveBrokerInterval": int(SCAN_SECONDS * 1000),
        }
