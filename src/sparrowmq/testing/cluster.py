"""`LocalCluster`: a name server and a broker inside a test's own process.

They run on an event loop in a separate thread, with free ports of the loopback address and a temporary
directory, and start in a few hundredths of a second.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.settings.servers import BrokerSettings, NameServerSettings
from sparrowmq.loops.event_loop import new_event_loop
from sparrowmq.runtime.servers import Listening, LocalServers

if TYPE_CHECKING:
    from sparrowmq.proxy.server import Proxy

T = TypeVar("T")
CALL_SECONDS: Final = 60.0
"""Time limit of one call into the cluster's loop."""
SMALL_LOG_BYTES: Final = 64 * 1024 * 1024
SMALL_INDEX_SLOTS: Final = 100_000
SMALL_INDEX_ENTRIES: Final = 400_000


class LocalCluster:
    """A running name server and broker: `with LocalCluster() as cluster: …`.

    `data` is the store's directory, which is kept when the cluster stops; without it, a temporary directory
    is used and removed at the end. With `proxy` there is a gRPC proxy for RocketMQ's clients of version 5,
    too, which needs `pip install 'sparrowmq[proxy]'`. Keywords are fields of `BrokerSettings`, for example
    `auto_create_topic_enable=False`; TLS settings also apply to the name server.
    """

    def __init__(self, data: Path | str | None = None, *, proxy: bool = False, **settings: Any) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._data = Path(data) if data is not None else None
        settings.setdefault("listen_port", 0)
        settings.setdefault("mapped_file_size_commit_log", SMALL_LOG_BYTES)
        settings.setdefault("max_hash_slot_num", SMALL_INDEX_SLOTS)
        settings.setdefault("max_index_num", SMALL_INDEX_ENTRIES)
        self._settings = BrokerSettings(**settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._servers: LocalServers | None = None
        self._has_proxy = proxy
        self._proxy: Proxy | None = None
        self._listening = Listening(None, None, None)

    def __repr__(self) -> str:
        state = f"namesrv={self._listening.nameserver}" if self._loop else "stopped"
        return f"<LocalCluster {state}>"

    @property
    def namesrv(self) -> str:
        """The name server's `host:port`, for clients' `namesrv`."""
        return self._known(self._listening.nameserver)

    @property
    def broker_address(self) -> str:
        """The broker's `host:port`; the same before and after a restart."""
        return self._known(self._listening.broker)

    @property
    def proxy(self) -> str:
        """The gRPC proxy's `host:port`, the endpoints of clients of version 5; needs `proxy=True`."""
        if not self._has_proxy:
            raise InvalidStateError(
                "the cluster has no proxy; make it with LocalCluster(proxy=True)", what="proxy"
            )
        return self._known(None if self._proxy is None else self._proxy.address)

    @property
    def data(self) -> Path:
        """The store's directory."""
        if self._data is None:
            raise InvalidStateError("the cluster has not been started; use it in a with statement")
        return self._data

    def __enter__(self) -> LocalCluster:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the servers. Raises their exceptions; then all resources are released."""
        if self._loop is not None:
            raise InvalidStateError("the cluster is already running", what="running")
        if self._data is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="sparrow-cluster-")
            self._data = Path(self._temporary.name)
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sparrow-cluster", daemon=True)
        self._thread.start()
        broker = replace(self._settings, store_path_root_dir=self._data)
        name_server = NameServerSettings(
            listen_port=0, tls_server_mode=broker.tls_server_mode, tls_config_file=broker.tls_config_file
        )
        self._servers = LocalServers(name_server, broker)
        try:
            self._listening = self.call(self._servers.start())
            if self._has_proxy:
                proxy = _make_proxy(self.namesrv)
                self.call(proxy.start())
                self._proxy = proxy
        except BaseException:
            if self._listening.broker is not None:
                self.call(self._servers.close())
            self._end_loop()
            raise

    def stop(self) -> None:
        """Stop the servers cleanly. Idempotent."""
        if self._loop is None or self._servers is None:
            return
        proxy, self._proxy = self._proxy, None
        try:
            if proxy is not None:
                self.call(proxy.close())
            self.call(self._servers.close())
        finally:
            self._end_loop()

    def stop_broker(self) -> None:
        """Stop the broker cleanly; the name server keeps running."""
        self.call(self._running().stop_broker())

    def start_broker(self) -> None:
        """Start the stopped broker again, with the same directory and port."""
        self.call(self._running().start_broker())

    def restart_broker(self) -> None:
        """Stop the broker cleanly and start it again."""
        self.stop_broker()
        self.start_broker()

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic; clients find it when this returns."""
        from sparrowmq.aio import Admin

        async def create() -> None:
            async with Admin(namesrv=self.namesrv) as admin:
                await admin.topics.create(name, queues=queues)

        self.call(create())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's loop and return its result; gives tests access to internals."""
        if self._loop is None:
            work.close()
            raise InvalidStateError("the cluster is not running; use it in a with statement")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    def _running(self) -> LocalServers:
        if self._servers is None:
            raise InvalidStateError("the cluster is not running; use it in a with statement")
        return self._servers

    def _known(self, address: str | None) -> str:
        if address is None:
            raise InvalidStateError("the cluster is not running; use it in a with statement")
        return address

    def _end_loop(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = self._servers = None
        self._listening = Listening(None, None, None)
        if loop is not None and thread is not None:
            asyncio.run_coroutine_threadsafe(_wind_up(loop), loop).result(CALL_SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = self._data = None


def _make_proxy(namesrv: str) -> Proxy:
    """A proxy that is not started. Importing it takes too long for the cluster's loop."""
    from sparrowmq.core.settings.proxy import ProxySettings
    from sparrowmq.proxy.server import Proxy
    from sparrowmq.runtime.proxy import need_packages

    need_packages()
    return Proxy(ProxySettings(listen_port=0, namesrv_addr=namesrv))


async def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
