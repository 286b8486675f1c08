"""A whole cluster in one thread: our name server, our broker and our clients, on a virtual clock.

Everything is shipped code; made up are only the clocks, the network and what a killed process leaves behind.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest
from tests.client.churn import SimClock
from tests.simulation.whole.network import MACHINE, NetworkLoop, Port

from sparrowmq.broker.server import Broker
from sparrowmq.core.clock import SystemClock
from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.files.system import System
from sparrowmq.nameserver.server import NameServer
from sparrowmq.transport.server import Server

T = TypeVar("T")
NAME_SERVER, BROKER, BROKER_PORT, HA_PORT = "127.0.0.1:9876", "broker-a", 10911, 10912
SMALL: dict[str, Any] = {
    "mapped_file_size_commit_log": 1 << 14,
    "mapped_file_size_consume_queue": 20 * 200,
    "mapped_file_size_timer_log": 4096,
    "max_hash_slot_num": 20,
    "max_index_num": 500,
    "disk_space_warning_level_ratio": 100,
    "disk_space_clean_forcibly_ratio": 100,
    "disk_max_used_space_ratio": 100,
}
"""Small files, and a full disk does not matter."""


class MovedClock(SimClock):
    """A machine's clock: its wall time is set ahead and back, its monotonic time goes on."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.ahead_ms


class Cluster:
    """A name server and the lives of one broker. `root` holds the broker's directories."""

    def __init__(self, root: Path, clients: MovedClock, **settings: Any) -> None:
        self.loop = cast("NetworkLoop", asyncio.get_running_loop())
        self.clients = clients
        self.clock = MovedClock()
        self.settings: dict[str, Any] = SMALL | settings
        self.broker: Broker | None = None
        self.root = root
        self._life = 0
        self._directory = root / "0"
        self._leftovers: list[asyncio.Task[None]] = []
        self._name_server = NameServer(port=9876, clock=SimClock())

    async def start(self) -> None:
        await self._name_server.start()
        await self.start_broker()

    async def close(self) -> None:
        await self.stop_broker()
        await asyncio.gather(*self._leftovers)
        await self._name_server.close()

    async def start_broker(self) -> None:
        """A life of the broker over its directory, with the settings as they are now."""
        self._life += 1
        self._machine = f"broker-{self._life}"
        settings = BrokerSettings(
            broker_name=BROKER,
            store_path_root_dir=self._directory,
            namesrv_addr=NAME_SERVER,
            listen_port=BROKER_PORT,
            ha_listen_port=HA_PORT,
            **self.settings,
        )
        self.broker = Broker(settings, clock=self.clock, lease_clock=self.clock.monotonic)
        await self._there(self.broker.start())

    async def stop_broker(self) -> None:
        """A clean stop."""
        broker, self.broker = self.broker, None
        if broker is not None:
            await self._there(broker.close())

    async def kill_broker(self) -> None:
        """The process ends. What it had written stays; what it would do next is done to a copy of no use."""
        broker, self.broker = self.broker, None
        if broker is None:
            return
        self.loop.cut_off(self._machine)
        old, self._directory = self._directory, self.root / str(self._life)
        shutil.copytree(old, self._directory)
        self._leftovers.append(self.loop.create_task(self._there(broker.close())))

    def log_files(self) -> list[Path]:
        """The files of the broker's commit log."""
        return sorted((self._directory / "commitlog").iterdir())

    def empty_directory(self) -> None:
        """The next life of the broker begins with an empty directory."""
        self._directory = self.root / f"empty-{self._life}"

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something at the broker's machine."""
        before = MACHINE.set(self._machine)
        try:
            task = self.loop.create_task(work)
        finally:
            MACHINE.reset(before)
        return await task


@contextmanager
def simulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[MovedClock]:
    """Clients made within live on the clock that is returned; no socket is bound, and no loop is watched."""

    async def bind(server: Server, loop: Any) -> Port:
        return cast("NetworkLoop", loop).port(server.port)

    def listen(_: Any, port: int) -> Port:
        return cast("NetworkLoop", asyncio.get_running_loop()).port(port)

    clients = MovedClock()
    with monkeypatch.context() as patch:
        patch.setattr(SystemClock, "now_ms", lambda _: clients.now_ms())
        patch.setattr(SystemClock, "monotonic", lambda _: clients.monotonic())
        for work in ("fsync", "fdatasync"):
            patch.setattr(System, work, lambda *_: None)
        patch.setattr(Server, "_bind", bind)
        patch.setattr(Server, "begin_watch", lambda _: None)
        patch.setattr(
            "sparrowmq.broker.server.listen_for_slaves", lambda settings, port: listen(settings, HA_PORT)
        )
        yield clients
