"""`LocalCluster`: a name server and a broker inside a test's own process.

They run on an event loop in a thread of their own, on free ports of the loopback address, over a temporary
directory, and start in a few hundredths of a second.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from sparrowmq.core.errors import InvalidStateError
from sparrowmq.core.settings import BrokerSettings, NameServerSettings
from sparrowmq.runtime.servers import Listening, Servers
from sparrowmq.transport.loop import new_event_loop

T = TypeVar("T")
CALL_SECONDS: Final = 60.0
"""How long one call into the cluster's loop may take."""
SMALL_LOG_BYTES: Final = 64 * 1024 * 1024
SMALL_INDEX_SLOTS: Final = 100_000
SMALL_INDEX_ENTRIES: Final = 400_000


class LocalCluster:
    """A running name server and broker: `with LocalCluster() as cluster: …`.

    `data` is the store's directory, kept when the cluster stops; without it there is a temporary one, removed
    at the end. Keywords are fields of `BrokerSettings`, for example `auto_create_topic_enable=False`;
    those of TLS hold for the name server, too.
    """

    def __init__(self, data: Path | str | None = None, **settings: Any) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._data = Path(data) if data is not None else None
        settings.setdefault("listen_port", 0)
        settings.setdefault("mapped_file_size_commit_log", SMALL_LOG_BYTES)
        settings.setdefault("max_hash_slot_num", SMALL_INDEX_SLOTS)
        settings.setdefault("max_index_num", SMALL_INDEX_ENTRIES)
        self._settings = BrokerSettings(**settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._servers: Servers | None = None
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
        """Start both servers. Raises what they raise; nothing is left behind then."""
        if self._loop is not None:
            raise InvalidStateError("the cluster runs already")
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
        self._servers = Servers(name_server, broker)
        try:
            self._listening = self.call(self._servers.start())
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        """Stop both servers cleanly. Idempotent."""
        if self._loop is None or self._servers is None:
            return
        try:
            self.call(self._servers.close())
        finally:
            self._end_loop()

    def stop_broker(self) -> None:
        """Stop the broker cleanly; the name server stays."""
        self.call(self._running().stop_broker())

    def start_broker(self) -> None:
        """Start the stopped broker again, on its directory and its port."""
        self.call(self._running().start_broker())

    def restart_broker(self) -> None:
        """Stop the broker cleanly and start it again."""
        self.stop_broker()
        self.start_broker()

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Make a topic; clients find it when this returns."""
        from sparrowmq import aio

        async def create() -> None:
            async with aio.Admin(namesrv=self.namesrv) as admin:
                await admin.create_topic(name, queues=queues)

        self.call(create())

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the cluster's loop and give its result; for tests that reach inside."""
        if self._loop is None:
            work.close()
            raise InvalidStateError("the cluster does not run; use it in a with statement")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_SECONDS)

    def _running(self) -> Servers:
        if self._servers is None:
            raise InvalidStateError("the cluster does not run; use it in a with statement")
        return self._servers

    def _known(self, address: str | None) -> str:
        if address is None:
            raise InvalidStateError("the cluster does not run; use it in a with statement")
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


async def _wind_up(loop: asyncio.AbstractEventLoop) -> None:
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
