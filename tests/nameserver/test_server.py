"""The name server as a whole: ports, liveness, the end."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest
from tests.nameserver.helpers import BROKER, SECONDS, registration
from tests.support import about, is_connected, run, until

from sparrowmq.core.errors import ConnectError, ListenError, StoreCorruptError
from sparrowmq.nameserver.registry import BROKER_SECONDS
from sparrowmq.nameserver.server import NameServer
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.client import RemotingClient


class HandClock:
    """A clock that tests set."""

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


def test_broker_is_removed_when_its_connection_closes() -> None:
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


def test_silent_broker_is_removed_and_its_connection_closed(caplog: pytest.LogCaptureFixture) -> None:
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
        await until(lambda: not is_connected(broker, server.address))
        assert is_connected(client, server.address)
        for peer in (broker, client, server):
            await peer.close()

    run(main())
    assert "sent no heartbeat for 120 s" in caplog.text


def test_silent_brokers_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock = HandClock()
        server = NameServer(port=0, clock=clock)
        await server.start()
        client = RemotingClient()
        for number in range(200):
            own = {"brokerName": f"b{number}\nERROR a line", "brokerAddr": f"h:{number}"}
            request = register()
            request.ext |= {**own, "heartbeatTimeoutMillis": "1"}
            await client.call(server.address, request, SECONDS)
        clock.seconds += 1
        server.scan()
        await until(lambda: not server._registry.broker_count)
        for peer in (client, server):
            await peer.close()

    run(main())
    told = [one.getMessage() for one in caplog.records if "no heartbeat" in one.getMessage()]
    assert 1 <= len(told) <= 66
    assert "\n" not in "".join(told)


def test_scan_runs_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.nameserver.server.SCAN_SECONDS", 0.01)

    async def main() -> None:
        clock = HandClock()
        server = NameServer(port=0, clock=clock)
        await server.start()
        broker = RemotingClient()
        await broker.call(server.address, register(), SECONDS)
        clock.seconds += BROKER_SECONDS + 1
        await until(lambda: not is_connected(broker, server.address))
        await broker.close()
        await server.close()

    run(main())


def test_broker_can_unregister_and_register_again_on_the_same_connection() -> None:
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


def test_port_in_use_is_reported() -> None:
    async def main() -> None:
        server = NameServer(port=0)
        await server.start()
        second = NameServer(port=server.port)
        with pytest.raises(ListenError, check=about(value=errno.EADDRINUSE)):
            await second.start()
        await second.close()
        await server.close()
        await server.close()

    run(main())


def test_start_fails_with_damaged_tables(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{")
    with pytest.raises(StoreCorruptError, match=str(path)):
        run(NameServer(port=0, kv_path=path).start())


def test_closing_ends_pending_calls_and_frees_the_port() -> None:
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
        await until(lambda: not is_connected(client, server.address))
        with pytest.raises(ConnectError, check=about(address=server.address)):
            await code_of_route(client, server)
        again = NameServer(port=server.port)
        await again.start()
        assert await code_of_route(client, again) == 17
        await client.close()
        await again.close()

    run(main())
