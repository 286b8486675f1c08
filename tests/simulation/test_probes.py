"""Probes of every kind at the ports of our servers, for a simulated week: nothing of them stays.

A round of probes comes every half hour of a week. Servers with much periodic work of their own would make a
week of simulated time long: their rounds are only longer than all deadlines, and a broker has fewer.
"""

from __future__ import annotations

import asyncio
import gc
import random
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import hpack
import pytest
import uvicorn
from tests.certificates import Authority
from tests.client.churn import SimClock
from tests.coordinator.groups.serving import serve_members
from tests.coordinator.services.watched import MadeUpKeeper
from tests.simulation.whole.network import End, NetworkLoop
from tests.simulation.whole.network import Port as Bound
from tests.simulation.whole.world import SMALL, simulated
from tests.store.rig import fill, opened

from sparrowmq.broker.replication import master as ha
from sparrowmq.broker.replication.replicas import Replicas
from sparrowmq.broker.server import Broker
from sparrowmq.core.settings.servers import BrokerSettings, ProxySettings
from sparrowmq.core.settings.tls import TlsSettings
from sparrowmq.httpd.operators import OperatorPort
from sparrowmq.httpd.serving import PatientProtocol
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command, encode
from sparrowmq.proxy.http2 import frames
from sparrowmq.proxy.http2.connection import Http2Connection
from sparrowmq.proxy.server import Proxy
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.server import Listener
from sparrowmq.transport.tls import ServerTls
from sparrowmq.transport.tls_stream import FirstByte, TlsStream

ROUNDS: Final = 7 * 24 * 2
HALF_HOUR: Final = 1800.0
KNOCKS: Final = 10
KNOCK_SECONDS: Final = 0.1
HELLO: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The start of a TLS handshake."""
HTTP: Final = b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n"
REMOTING: Final = encode(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, ext={"topic": "T"}))
KINDS: Final = (Connection, ha.SlaveLink, PatientProtocol, Http2Connection, FirstByte, TlsStream, End)
"""What servers have for each connection."""


def call_of_grpc(*, ends: bool) -> bytes:
    """A call of a method that does not exist, with the preface of its connection."""
    fields = {":method": "POST", ":scheme": "http", ":path": "/t/none", ":authority": "h"}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    block = cast("Any", hpack.Encoder()).encode(list(fields.items()))
    flags = frames.END_HEADERS | (frames.END_STREAM if ends else 0)
    return frames.PREFACE + frames.settings_frame({}) + frames.frame(frames.HEADERS, flags, 1, block)


def hello_of_tls() -> bytes:
    """The first message of a TLS handshake, which the server answers; the client says no more."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="h")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


@dataclass(frozen=True)
class Port:
    """A port of a started server, the requests that it is probed with, and one of an honest client.

    `left` counts what the server has of connections; `round_seconds` is longer than all its deadlines.
    """

    number: int
    left: Callable[[], int]
    request: bytes
    answer: bytes
    halves: Sequence[bytes] = ()
    rounds: int = ROUNDS
    round_seconds: float = HALF_HOUR


class Reader(asyncio.Protocol):
    """A client that reads what comes, and never closes."""

    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


def probes(port: Port, random_bytes: bytes) -> list[bytes]:
    """What each probe of a round sends before it is silent."""
    whole = [b"", HTTP, HELLO, REMOTING, random_bytes, bytes(8), port.request]  # b"": it is only connected
    return [*whole, *(one[: len(one) // 2] for one in (HTTP, REMOTING, port.request)), *port.halves]


async def probe(loop: NetworkLoop, port: Port, rng: random.Random) -> None:
    """One round: silent connections, and a scanner that connects and closes ten times a second."""
    sent = probes(port, rng.randbytes(40))
    for data in sent:
        transport, _ = await loop.create_connection(Reader, "127.0.0.1", port.number)
        if data:
            transport.write(data)
    for _ in range(KNOCKS):
        transport, _ = await loop.create_connection(Reader, "127.0.0.1", port.number)
        transport.write(rng.choice(sent) or port.request)
        rng.choice([transport.close, transport.abort])()
        await asyncio.sleep(KNOCK_SECONDS)


async def is_served(loop: NetworkLoop, port: Port) -> bool:
    """Whether an honest client is answered at once."""
    transport, reader = await loop.create_connection(Reader, "127.0.0.1", port.number)
    transport.write(port.request)
    await asyncio.sleep(1.0)
    transport.close()
    await asyncio.sleep(1.0)
    return port.answer in reader.data


def size_of(listener: Listener[Any]) -> int:
    """What a listener has of connections."""
    return len(listener.connections) + len(listener.places) + listener.account.total


@asynccontextmanager
async def name_server(_: Path) -> AsyncIterator[Port]:
    server = NameServer(port=9876, clock=SimClock())
    await server.start()
    yield Port(9876, lambda: size_of(server._server), REMOTING, b'"code":17')
    await server.close()


@asynccontextmanager
async def tls_port(root: Path) -> AsyncIterator[Port]:
    pair = Authority(root).sign("server")
    tls = ServerTls(TlsSettings(server_cert=pair.cert, server_key=pair.key))
    server = NameServer(port=9876, clock=SimClock(), tls=tls)
    await server.start()
    listener = server._server

    def left() -> int:
        return size_of(listener) + len(listener._handshakes)

    yield Port(9876, left, REMOTING, b'"code":17', [hello_of_tls()])
    await server.close()


@asynccontextmanager
async def ha_port(root: Path) -> AsyncIterator[Port]:
    loop: Any = asyncio.get_running_loop()
    with opened(root) as store:
        fill(store, store.queue("T", 0), 1)
        replicas = Replicas(needed=1, needed_before=1, gap_max=1 << 20, timeout=3.0)
        master = ha.Master(
            store.raw_log,
            replicas,
            SimClock(),
            may_connect=lambda _: True,
            batch=1 << 15,
            heartbeat=30.0,
            silence=60.0,
        )
        await master.start(loop.port(10912))
        yield Port(10912, lambda: len(master.links), bytes(8), b"m0")
        await master.close()


@asynccontextmanager
async def broker_port(root: Path) -> AsyncIterator[Port]:
    few: dict[str, Any] = SMALL | {"server_channel_max_idle_time_seconds": 5}
    settings = BrokerSettings(store_path_root_dir=root, listen_port=10911, **few)
    broker = Broker(settings, clock=SimClock(), lease_clock=SimClock().monotonic)
    await broker.start()
    server: Any = broker._server
    yield Port(10911, lambda: size_of(server), REMOTING, b'"code":', rounds=24, round_seconds=15.0)
    await broker.close()


@asynccontextmanager
async def operators_port(_: Path) -> AsyncIterator[Port]:
    port = OperatorPort(list, host="127.0.0.1", port=5557, series_max=100)
    await port.start()
    server: Any = port._server

    def left() -> int:
        return len(server.server_state.connections) + len(server.places) + port.sending

    body = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx"
    scrape = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
    yield Port(5557, left, scrape, b"HTTP/1.1 200 OK", [body, 3 * scrape])
    await port.close()


@asynccontextmanager
async def members_port(_: Path) -> AsyncIterator[Port]:
    keeper: Any = MadeUpKeeper()
    async with serve_members(keeper, host="127.0.0.1", port=10950, clock=SimClock()) as members:
        yield Port(10950, lambda: size_of(members._server), REMOTING, b'"code":3')


@asynccontextmanager
async def proxy_port(_: Path) -> AsyncIterator[Port]:
    settings = ProxySettings(namesrv_addr="127.0.0.1:9876", listen_port=8081)
    proxy = Proxy(settings, clock=SimClock())
    await proxy.start()
    listener: Any = proxy._listener

    def left() -> int:
        calls: int = listener.calls + len(listener.calls_of)
        return size_of(listener) + calls

    call = call_of_grpc(ends=True)
    halves = [call_of_grpc(ends=False), frames.PREFACE, call + b"\x00\x10\x00\x00\x00\x00\x00\x00\x03"]
    answer = frames.frame(frames.SETTINGS, frames.ACK, 0)
    yield Port(8081, left, call, answer, halves, round_seconds=300.0)
    await proxy.close()


PORTS: Final[dict[str, Callable[[Path], AbstractAsyncContextManager[Port]]]] = {
    "name-server": name_server,
    "tls": tls_port,
    "ha": ha_port,
    "broker": broker_port,
    "operators": operators_port,
    "members": members_port,
    "proxy": proxy_port,
}


@pytest.fixture(autouse=True)
def no_sockets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listeners are only in the loop's memory, and what they do all the time is done less often."""

    async def bind(listener: Listener[Any], loop: Any) -> Bound:
        return cast("NetworkLoop", loop).port(listener.port)

    def bound(address: tuple[str, int], **_: Any) -> Bound:
        return Bound(address[1])

    async def idle(server: uvicorn.Server) -> None:
        while not server.should_exit:  # noqa: ASYNC110 - as uvicorn does ten times a second
            await asyncio.sleep(HALF_HOUR)

    monkeypatch.setattr(Listener, "_bind", bind)
    monkeypatch.setattr(Listener, "begin_watch", lambda _: None)
    monkeypatch.setattr(socket, "create_server", bound)
    monkeypatch.setattr(uvicorn.Server, "main_loop", idle)
    monkeypatch.setattr(ha, "TICK_SECONDS_MAX", 15.0)


@pytest.mark.parametrize("name", PORTS)
def test_a_week_of_probes_leaves_nothing_behind(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    async def main() -> None:
        loop = cast("NetworkLoop", asyncio.get_running_loop())
        rng = random.Random(1)
        async with PORTS[name](tmp_path) as port:
            assert await is_served(loop, port)
            await asyncio.sleep(port.round_seconds)
            tasks = len(asyncio.all_tasks())
            for _ in range(port.rounds):
                await probe(loop, port, rng)
                await asyncio.sleep(port.round_seconds)
                seen.append((port.left(), len(loop.ends)))
            assert len(asyncio.all_tasks()) == tasks
            gc.collect()
            assert not [one for one in gc.get_objects() if isinstance(one, KINDS)]
            assert await is_served(loop, port)

    with simulated(monkeypatch), asyncio.Runner(loop_factory=NetworkLoop) as runner:
        runner.run(main())
    assert set(seen) == {(0, 0)}, "each round is over before the next"
