"""A cluster of processes on this machine: a name server, a coordinator that elects, brokers of one group."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from sparrowmq import aio
from sparrowmq.core.errors import SparrowError
from sparrowmq.torture.network import INSIDE, OUTSIDE, RelayedNetwork
from sparrowmq.torture.plan import COORDINATOR, MASTER, NAME_SERVER
from sparrowmq.torture.processes import ServerProcess

TOPIC: Final = "Torture"
QUEUES: Final = 4
BROKER: Final = "broker-a"
"""The name that all brokers of the group have."""
ASK_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.5
"""The same for a question in the middle of faults."""
READY_SECONDS: Final = 90.0
"""How long the cluster may take until all copies are in sync, at the start and after the last fault."""
POLL_SECONDS: Final = 0.1

BROKER_TEXTS: Final = {
    "brokerName": BROKER,
    "brokerRole": "SYNC_MASTER",
    "bindAddress": INSIDE,
    "mappedFileSizeCommitLog": str(1 << 20),
    "inSyncReplicas": "1",
    "haMaxTimeSlaveNotCatchup": "2000",
    "slaveReadEnable": "true",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "5000",
    "logLevel": "INFO",
}
COORDINATOR_TEXTS: Final = {
    "listenPort": "0",
    "leaseTime": "3000",
    "leaseRenewInterval": "800",
    "leaseMargin": "500",
}
"""A coordinator that was killed leads again after three seconds, not after fifteen."""


class NotReadyError(SparrowError):
    """Something that must happen did not happen in time."""


async def until(condition: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    """Wait until the condition is true. Raises `NotReadyError` with `what` did not happen."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            raise NotReadyError(f"{what} within {seconds:g} s")
        await asyncio.sleep(POLL_SECONDS)


def free_port(taken: set[int]) -> int:
    """A port that nobody listens on now, none of those taken; it is one of them then."""
    while True:
        with socket.socket() as probe:
            probe.bind((INSIDE, 0))
            port = int(probe.getsockname()[1])
        if port not in taken:
            taken.add(port)
            return port


class TortureCluster:
    """The processes of one cluster, with their data and logs in the directory `root`.

    `with_network` puts relays between all parts (`network`); it needs Linux. `texts` are further settings of
    the brokers, by RocketMQ's names; `brokerRole` is that of masters.
    """

    def __init__(
        self,
        root: Path,
        *,
        replicas: int = 2,
        with_network: bool = False,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self._ports: set[int] = set()
        self._texts = BROKER_TEXTS | dict(texts or {})
        self.root = root
        self.host = OUTSIDE if with_network else INSIDE
        self.network = RelayedNetwork(self._who) if with_network else None
        names_port = free_port(self._ports)
        self.namesrv = f"{self.host}:{names_port}"
        self.nameserver = self._server(
            NAME_SERVER, {"broker": None, "nameserver": {"listenPort": str(names_port)}}
        )
        self.brokers = {f"broker-{number}": self._broker(number) for number in range(1, replicas + 1)}
        self.coordinator = ServerProcess(
            COORDINATOR,
            "sparrowmq.runtime.coordinator",
            COORDINATOR_TEXTS
            | {
                "namesrvAddr": self.namesrv,
                "databaseUrl": f"sqlite:///{(root / 'coordinator.db').absolute()}",
            },
            root / "coordinator.log",
        )
        self._url = ""
        self._token = ""
        self._master = next(iter(self.brokers))

    def _server(self, name: str, request: Mapping[str, Any]) -> ServerProcess:
        return ServerProcess(name, "sparrowmq.runtime.child", request, self.root / f"{name}.log")

    def _broker(self, number: int) -> ServerProcess:
        name = f"broker-{number}"
        texts = self._texts | {
            "brokerIP1": self.host,
            "listenPort": str(free_port(self._ports)),
            "haListenPort": str(free_port(self._ports)),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(self.root / name),
            "brokerId": str(number - 1),
        }
        if number > 1:
            texts["brokerRole"] = "SLAVE"
        return self._server(name, {"broker": texts, "nameserver": None})

    @property
    def servers(self) -> dict[str, ServerProcess]:
        """All processes by name."""
        return {
            self.nameserver.name: self.nameserver,
            self.coordinator.name: self.coordinator,
            **self.brokers,
        }

    def _who(self) -> dict[int, str]:
        return {one.pid: name for name, one in self.servers.items() if one.is_running}

    def address(self, broker: str) -> str:
        """Where clients find a broker."""
        return f"{self.host}:{self.brokers[broker].request['broker']['listenPort']}"

    async def start(self) -> None:
        """Start everything, and wait until all copies are in sync. Raises `SparrowError`."""
        if self.network is not None:
            await self._open_network(self.network)
        await self.nameserver.start()
        await asyncio.gather(self.begin(COORDINATOR), *(one.start() for one in self.brokers.values()))
        async with aio.Admin(namesrv=self.namesrv) as admin:
            await admin.topics.create(TOPIC, queues=QUEUES)
        await until(self._managed, READY_SECONDS, "the coordinator did not manage the group")
        await self.recovered()

    async def _open_network(self, network: RelayedNetwork) -> None:
        await network.open(NAME_SERVER, int(self.namesrv.rpartition(":")[2]))
        for name, broker in self.brokers.items():
            for setting in ("listenPort", "haListenPort"):
                await network.open(name, int(broker.request["broker"][setting]))

    async def begin(self, name: str) -> None:
        """Start a process, for the first time or again on the same disk."""
        answer = await self.servers[name].start()
        if name == COORDINATOR:
            self._url = answer["url"]
            if answer["first_password"]:
                login = {"name": "admin", "password": answer["first_password"]}
                status, told = await self.call("POST", "/login", login)
                if status != 200:
                    raise SparrowError(f"the coordinator refused its first login: {told}")
                self._token = told["token"]

    async def close(self) -> None:
        """End all processes at once, and the relays. Idempotent."""
        if self.network is not None:
            await self.network.close()
        await asyncio.gather(*(one.kill() for one in self.servers.values()))

    async def call(
        self, method: str, path: str, body: object = None, *, seconds: float = ASK_SECONDS
    ) -> tuple[int, Any]:
        """A call of the coordinator's API: status and answer; status 0 if there is none in time."""
        return await asyncio.to_thread(_call, self._url, self._token, method, path, body, seconds)

    async def group(self, *, seconds: float = ASK_SECONDS) -> dict[str, Any]:
        """What the coordinator knows of the group; empty if it does not answer."""
        status, told = await self.call("GET", f"/replica-groups/{BROKER}", seconds=seconds)
        return told if status == 200 else {}

    async def master(self) -> str:
        """The process that is the master, as the coordinator says, or said when it last answered."""
        address = (await self.group(seconds=LOOK_SECONDS)).get("master", "")
        found = next((name for name in self.brokers if self.address(name) == address), "")
        self._master = found or self._master
        return self._master

    async def part(self, name: str) -> str:
        """The process that is a part of the plan now: `master` and `slave` change."""
        if name in (COORDINATOR, NAME_SERVER):
            return name
        master = await self.master()
        if name == MASTER:
            return master
        return next(one for one in self.brokers if one != master)

    async def _managed(self) -> bool:
        await self.call("POST", "/services/broker-check/run", {})
        status, _ = await self.call("POST", f"/replica-groups/{BROKER}/manage", {"reason": "torture"})
        return status == 200

    async def recovered(self) -> None:
        """Wait until there is a master and all copies are in sync. Raises `NotReadyError`."""
        group: dict[str, Any] = {}

        async def whole() -> bool:
            nonlocal group
            group = await self.group()
            return len(group.get("in_sync", ())) == len(self.brokers) and _is_serving(group)

        try:
            await until(whole, READY_SECONDS, "the copies were not all in sync")
        except NotReadyError as error:
            states = "".join([f"; {name} says: {await self._state(name)}" for name in self.brokers])
            raise NotReadyError(f"{error}; the coordinator says: {json.dumps(group)}{states}") from None

    async def _state(self, broker: str) -> str:
        """What a broker says of its own role."""
        try:
            async with aio.Admin(namesrv=self.namesrv) as admin:
                return str(await admin.replicas.state(self.address(broker), timeout=ASK_SECONDS))
        except SparrowError as error:
            return str(error)


def _is_serving(group: Mapping[str, Any]) -> bool:
    return any(
        one["address"] == group["master"] and one["state"] == "SERVING" for one in group.get("brokers", ())
    )


def _call(url: str, token: str, method: str, path: str, body: object, seconds: float) -> tuple[int, Any]:
    host, _, port = url.removeprefix("http://").partition(":")
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    connection = HTTPConnection(host, int(port), timeout=seconds)
    try:
        connection.request(method, f"/api/v1{path}", None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    except (OSError, HTTPException, ValueError):
        return 0, {}
    finally:
        with suppress(OSError):
            connection.close()
