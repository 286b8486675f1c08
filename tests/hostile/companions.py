"""The coordinator and the proxy that get the hostile load, each in a process of its own before one cluster.

Neither tells its stalls in an answer for programs, so each has a file for them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from tests.hostile.lines import GrpcLine, HttpLine, Line
from tests.hostile.size import Size
from tests.hostile.wire import Wire
from tests.hostile.world import World, fill_broker
from tests.stall_guard import StallsFile
from tests.support import until_sync

from sparrowmq.core.stalls import Stall
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.managed import COORDINATOR_KEY, COORDINATOR_NAMESPACE
from sparrowmq.runtime.child import ChildServers
from sparrowmq.transport.stall_watch import STALLS_FILE

MEMBERS = "coordinator's members"
API = "coordinator's API"
PROXY = "proxy"
MEMBERS_BODY = 3 << 20
"""Bytes of a big body for the members' port, which closes the connection of a larger frame."""
STOP_SECONDS = 30.0


@dataclass(frozen=True)
class Companion(World):
    """A coordinator's port for members. Stalls are read from its process' file."""

    told: Path = Path()
    cluster: str = ""
    """Address of the broker behind a coordinator, of the name server behind a proxy."""

    def stalls(self) -> tuple[int, list[Stall]]:
        found = StallsFile(self.told).added()
        return len(found), found[::-1]


@dataclass(frozen=True)
class ApiWorld(Companion):
    """The coordinator's API, and the token of the user `admin`."""

    token: str = ""

    def line(self) -> Line:
        return HttpLine(self.address)


class ProxyWorld(Companion):
    """The proxy."""

    def line(self) -> Line:
        return GrpcLine(self.address)


@contextmanager
def companions(size: Size, root: Path) -> Iterator[dict[str, World]]:
    """A coordinator and a proxy before a cluster that has as much in it as the broker of the load."""
    settings = {
        "listenPort": "0",
        "storePathRootDir": str(root / "cluster"),
        "mappedFileSizeCommitLog": str(64 << 20),
        "maxHashSlotNum": "100000",
        "maxIndexNum": "400000",
        "recallMessageEnable": "true",
    }
    with ExitStack() as stack:
        cluster = stack.enter_context(ChildServers(settings, nameserver={"listenPort": "0"}))
        fill_broker(World("cluster", cluster.broker_address, size))
        told = root / "coordinator-stalls"
        texts = {
            "listenPort": "0",
            "namesrvAddr": cluster.nameserver_address,
            "databaseUrl": f"sqlite:///{root / 'coordinator.db'}",
        }
        answer, pid = stack.enter_context(process("sparrowmq.runtime.coordinator", texts, told))
        address = answer["url"].removeprefix("http://")
        found = (None, None, pid, told, cluster.broker_address)
        token = log_in(address, answer["first_password"])
        small = replace(size, body=min(size.body, MEMBERS_BODY))
        members = members_address(cluster.nameserver_address)
        worlds: dict[str, World] = {
            MEMBERS: Companion(MEMBERS, members, small, *found),
            API: ApiWorld(API, address, size, *found, token),
        }
        worlds[PROXY] = stack.enter_context(new_proxy(size, cluster.nameserver_address, root))
        yield worlds


@contextmanager
def new_proxy(size: Size, namesrv: str, root: Path) -> Iterator[ProxyWorld]:
    """A proxy before the cluster of a name server."""
    told = root / "proxy-stalls"
    texts = {"listenPort": "0", "namesrvAddr": namesrv}
    with process("sparrowmq.runtime.proxy", texts, told) as (answer, pid):
        yield ProxyWorld(PROXY, answer["address"], size, None, None, pid, told, namesrv)


@contextmanager
def process(module: str, texts: Mapping[str, str], told: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """A child that serves until the block ends: its first line, and its process id."""
    child = subprocess.Popen(
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, STALLS_FILE: str(told)},
    )
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(json.dumps(dict(texts)).encode() + b"\n")
        child.stdin.flush()
        answer = json.loads(child.stdout.readline())
        assert "error" not in answer, answer
        yield answer, child.pid
        child.stdin.close()
        assert child.wait(STOP_SECONDS) == 0, module
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def members_address(namesrv: str) -> str:
    """Where members find the coordinator: what it published, as soon as it leads."""

    def published() -> str:
        with Wire(namesrv) as wire:
            where = {"namespace": COORDINATOR_NAMESPACE, "key": COORDINATOR_KEY}
            return wire.ask(Code.GET_KV_CONFIG, where).ext.get("value", "")

    return until_sync(published)


def log_in(address: str, password: str) -> str:
    """A token of the first user."""
    connection = HTTPConnection(address, timeout=STOP_SECONDS)
    body = json.dumps({"name": "admin", "password": password})
    connection.request("POST", "/api/v1/login", body, {"Content-Type": "application/json"})
    token = json.loads(connection.getresponse().read())["token"]
    connection.close()
    return str(token)
