"""The name server as a whole: ports, liveness, the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.nameserver.helpers import BROKER, SECONDS, registration
from tests.support import run, until

from sparrowmq.core.errors import ConnectError, ListenError, StoreCorruptError
from sparrowmq.nameserver.registry import BROKER_SECONDS
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.client import RemotingClient


class HandClock:
    """Time that moves by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


async def code_of_route(client: RemotingClient, server: NameServer) -> int:
    return (await client.call(server.address, Command(105, ext={"topic": "A"}), SECONDS)).code


def register(topics: bytes | None = None) -> Command:
    return Command(103, ext=dict(BROKER), body=registration("A", "B") if topics is None else topics)


def test_a_broker_whose_connection_closes_is_gone_at_once() -> None:
    async def main() -> None:
        server = NameServer(port=0)
        await server.start()
        broker, client = RemotingClient(), RemotingClient()
        assert (await broker.call(server.address, register(), SECONDS)).code == 0
        assert await code_of_route(client, server) == 0
        await broker.close()

        async def gone() -> bool:
            return await code_of_route(client, server) == 17

        await until(gone)
        await client.close()
        await server.close()

    run(main())


def test_a_silent_broker_is_dropped_and_its_connection_closed(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock = HandClock()
        server = NameServer(port=0, clock=clock)
        await server.start()
        broker, client = RemotingClient(), RemotingClient()
        await broker.call(server.address, register(), SECONDS)
        clock.seconds += BROKER_SECONDS
        server.scan()
        assert await code_of_route(client, server) == 0
        heartbeat = {name: BROKER[name] for name in ("clusterName", "brokerAddr", "brokerName")}
        await client.call(server.address, Command(904, ext=heartbeat), SECONDS)
        clock.seconds += BROKER_SECONDS
        server.scan()
        assert await code_of_route(client, server) == 0
        clock.seconds += 1
        server.scan()
        assert await code_of_route(client, server) == 17
        await until(lambda: not broker.is_connected(server.address))
        assert client.is_connected(server.address)
        for peer in (broker, client, server):
            await peer.close()

    run(main())
    assert "was not heard for 120 s" in caplog.text


def test_the_scan_runs_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.nameserver.server.SCAN_SECONDS", 0.01)

    async def main() -> None:
        clock = HandClock()
        server = NameServer(port=0, clock=clock)
        await server.start()
        broker = RemotingClient()
        await broker.call(server.address, register(), SECONDS)
        clock.seconds += BROKER_SECONDS + 1
        await until(lambda: not broker.is_connected(server.address))
        await broker.close()
        await server.close()

    run(main())


def test_a_goodbye_and_a_new_registration_on_the_same_connection() -> None:
    async def main() -> None:
        server = NameServer(port=0)
        await server.start()
        broker = RemotingClient()
        for _ in range(2):
            assert (await broker.call(server.address, register(), SECONDS)).code == 0
            assert await code_of_route(broker, server) == 0
            await broker.call(server.address, Command(104, ext=dict(BROKER)), SECONDS)
            assert await code_of_route(broker, server) == 17
        await broker.close()
        await server.close()

    run(main())


def test_a_port_in_use_is_a_clear_error() -> None:
    async def main() -> None:
        server = NameServer(port=0)
        await server.start()
        second = NameServer(port=server.port)
        with pytest.raises(ListenError, match="is in use"):
            await second.start()
        await second.close()
        await server.close()
        await server.close()

    run(main())


def test_damaged_tables_stop_the_start(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    with pytest.raises(StoreCorruptError, match=str(path)):
        run(NameServer(port=0, kv_path=path).start())


def test_closing_ends_outstanding_calls_and_frees_the_port() -> None:
    async def main() -> None:
        server = NameServer(port=0)
        await server.start()
        client = RemotingClient()
        await code_of_route(client, server)
        assert repr(server) == f"<NameServer {server.address} <Registry 0 brokers, 0 topics>>"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await server.close()
        assert await reader.read() == b""
        writer.close()
        await until(lambda: not client.is_connected(server.address))
        with pytest.raises(ConnectError, match=server.address):
            await code_of_route(client, server)
        again = NameServer(port=server.port)
        await again.start()
        assert await code_of_route(client, again) == 17
        await client.close()
        await again.close()

    run(main())
