"""Listening, limits, idle connections, and the end."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket

import pytest
from tests.support import about, until
from tests.transport.conftest import Run
from tests.transport.helpers import EchoHandler, Peer, peer_of_server, serving

from sparrowmq.core.errors import InvalidStateError, ListenError
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.server import Server, close_listener


def test_port_0_takes_a_free_port_and_the_address_tells_it(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as first, serving(EchoHandler()) as second:
            assert 0 < first.port != second.port > 0
            assert first.address == f"127.0.0.1:{first.port}"

    run(main())


def test_a_port_in_use_is_named_with_the_next_step(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server:
            second = Server(EchoHandler(), port=server.port)
            taken = about(address=server.address, value=errno.EADDRINUSE, retryable=False)
            with pytest.raises(ListenError, check=taken):
                await second.start()
            await second.close()

    run(main())


def test_two_servers_cannot_share_a_port_through_the_wildcard_address(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server:
            with pytest.raises(ListenError, check=about(value=errno.EADDRINUSE)):
                await Server(EchoHandler(), host="0.0.0.0", port=server.port).start()

    run(main())


def test_a_port_with_lingering_connections_can_be_had_again(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server, peer_of_server(server) as peer:
            await peer.send(Command(10))
            await peer.command()
            await server.close()  # the server closes first, so its side lingers
            assert await peer.closed_with() == b""
            async with serving(EchoHandler(), port=server.port) as again:
                assert again.port == server.port

    run(main())


@pytest.mark.parametrize("host", ["203.0.113.77", "no-such-host.invalid"])
def test_an_address_of_another_machine_is_refused(run: Run, host: str) -> None:
    async def main() -> None:
        with pytest.raises(ListenError, check=about(address=f"{host}:0")):
            await Server(EchoHandler(), host=host).start()

    run(main())


def test_a_server_starts_once(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server:
            with pytest.raises(InvalidStateError, check=about(what="started")):
                await server.start()
        with pytest.raises(InvalidStateError):
            await server.start()

    run(main())


def test_a_start_that_is_cancelled_leaves_no_port_behind(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    bind = Server._bind
    ports: list[int] = []

    async def cancelled_then(server: Server, loop: asyncio.AbstractEventLoop) -> socket.socket:
        sock = await bind(server, loop)
        ports.append(sock.getsockname()[1])
        task = asyncio.current_task()
        assert task is not None
        loop.call_soon(task.cancel)
        return sock

    monkeypatch.setattr(Server, "_bind", cancelled_then)

    async def main() -> None:
        server = Server(EchoHandler(), host="127.0.0.1")
        starting = asyncio.create_task(server.start())
        await asyncio.wait([starting])
        if not starting.cancelled():  # uvloop does not wait, so it has started
            await server.close()
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", ports[0])

    run(main())


def test_a_server_that_never_started_closes(run: Run) -> None:
    async def main() -> None:
        server = Server(EchoHandler())
        await server.close()
        with pytest.raises(InvalidStateError, check=about(what="started")):
            await server.start()

    run(main())


def test_ipv6_is_served(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler, host="::1") as server, peer_of_server(server) as peer:
            await peer.send(Command(10))
            await peer.command()
            assert handler.made[0].peer[0] == "::1"
            assert len(handler.made[0].born_host) == 20
            assert server.address == f"[::1]:{server.port}"

    if not socket.has_ipv6:
        pytest.fail("these tests need IPv6 on the loopback interface")
    run(main())


def test_one_connection_too_many_is_closed_and_the_others_stay(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler, connections_max=1) as server, peer_of_server(server) as first:
            await first.send(Command(10))
            await first.command()
            async with peer_of_server(server) as second:
                assert await second.closed_with() == b""
            await first.send(Command(10))
            assert (await first.command()).code == 0
            assert len(handler.made) == len(server.connections) == 1
            await first.close()
            await until(lambda: not server.connections)
            async with peer_of_server(server) as third:
                await third.send(Command(10))
                assert (await third.command()).code == 0
            await until(lambda: len(handler.lost) == 2)

    run(main())
    assert "1 connections are open, which is the limit" in caplog.text


def test_silent_connections_keep_nobody_out(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler, connections_max=5) as server:
            silent = [await asyncio.open_connection(server.host, server.port) for _ in range(5)]
            silent[0][1].write(b"\x00")  # a frame that never ends
            await until(lambda: len(handler.made) == 5)
            async with peer_of_server(server) as first, peer_of_server(server) as second:
                for peer in (first, second, first, second):
                    await peer.send(Command(10))
                    assert (await peer.command()).code == 0
                await until(lambda: len(server.connections) == 5)
                assert len(server.places) == 5
                assert await silent[0][0].read() == b"" and await silent[1][0].read() == b""
            for _, writer in silent:
                writer.transport.abort()
            await until(lambda: not server.connections and not len(server.places))

    run(main())
    assert "closing the idle connection" in caplog.text


def test_one_address_has_its_share(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler, connections_max=4, connections_per_address_max=2) as server:
            peers = []
            for source in ("127.0.0.2", "127.0.0.2", "127.0.0.3"):
                streams = await asyncio.open_connection(server.host, server.port, local_addr=(source, 0))
                peers.append(Peer(*streams))
                await peers[-1].send(Command(10))
                await peers[-1].command()
            streams = await asyncio.open_connection(server.host, server.port, local_addr=("127.0.0.2", 0))
            assert await Peer(*streams).closed_with() == b""
            streams[1].close()
            await peers[0].close()
            await until(lambda: len(server.connections) == 2)
            streams = await asyncio.open_connection(server.host, server.port, local_addr=("127.0.0.2", 0))
            peers.append(Peer(*streams))
            await peers[-1].send(Command(10))
            assert (await peers[-1].command()).code == 0
            for peer in peers[1:]:
                await peer.close()

    run(main())
    assert "127.0.0.2 has 2 connections, which is the limit for one address" in caplog.text


def test_a_silent_connection_is_closed_and_a_busy_one_is_not(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with (
            serving(handler, idle_seconds=0.4) as server,
            peer_of_server(server) as silent,
            peer_of_server(server) as busy,
        ):
            closed = asyncio.create_task(silent.closed_with())
            while not closed.done():
                await busy.send(Command(10))
                assert (await busy.command()).code == 0
                await asyncio.sleep(0.01)  # the pace of its traffic
            assert await closed == b""
            await busy.send(Command(10))
            assert (await busy.command()).code == 0

    run(main())


def test_a_connection_that_is_only_written_to_is_not_idle(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with (
            serving(handler, idle_seconds=0.4) as server,
            peer_of_server(server) as told,
            peer_of_server(server) as silent,
        ):
            await until(lambda: len(handler.made) == 2)
            conns = {conn.peer[1]: conn for conn in handler.made}
            conn = conns[told.writer.get_extra_info("sockname")[1]]
            closed = asyncio.create_task(silent.closed_with())
            while not closed.done():
                conn.notify(Command(40))
                assert (await told.command()).code == 40
                await asyncio.sleep(0.01)  # the pace of its traffic
            assert not conn.closed

    run(main())


def test_close_hands_over_the_answers_and_closes_all(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, peer_of_server(server) as peer:
            handler.on_request = lambda conn, command: None
            await peer.send(Command(10))
            await until(lambda: handler.chunks)
            conn = handler.made[0]
            body = bytes(3_000_000)
            conn.send(Command(0, flag=1, body=body))  # not flushed yet: it leaves in the loop's next turn
            closing = asyncio.create_task(server.close())
            assert (await peer.command()).body == body
            assert await peer.closed_with() == b""
            await closing
            assert handler.lost == [conn]
            assert conn.closed
            with pytest.raises(OSError):
                await asyncio.open_connection(server.host, server.port)
            await server.close()

    run(main())


def test_close_does_not_wait_for_a_client_that_does_not_read(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        handler.on_request = lambda conn, command: None
        async with serving(handler) as server, peer_of_server(server) as peer:
            await peer.send(Command(10))
            await until(lambda: handler.chunks)
            handler.made[0].write(bytes(60_000_000))
            await server.close(timeout=0.05)
            assert handler.lost == handler.made
            assert not server.connections

    run(main())


def test_repr_tells_address_and_state(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server:
            assert repr(server) == f"<Server 127.0.0.1:{server.port} listening, 0 connections>"
        assert "stopped" in repr(server)
        assert "new" in repr(Server(EchoHandler()))

    run(main())


@pytest.mark.parametrize(
    ("soft", "most"), [(1000, 200), (3, 1), (10**6, 10_000), (resource.RLIM_INFINITY, 10_000)]
)
def test_a_low_limit_of_open_files_lowers_that_of_connections(
    run: Run, monkeypatch: pytest.MonkeyPatch, soft: int, most: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))

    async def main() -> None:
        async with serving(EchoHandler()) as server:
            assert server.connections_max == most
        async with serving(EchoHandler(), connections_max=2) as server:
            assert server.connections_max == min(2, most)

    run(main())


def test_a_connection_accepted_as_the_server_closes_is_closed(run: Run) -> None:
    """asyncio dropped it, and its other side waited for the garbage collector."""

    class Told(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            told.append(transport)
            transport.close()

    told: list[asyncio.BaseTransport] = []

    async def main() -> None:
        listener = await asyncio.get_running_loop().create_server(Told, "127.0.0.1", 0)
        alone = asyncio.all_tasks()
        with socket.create_connection(listener.sockets[0].getsockname()) as client:
            for _ in range(10_000):
                if told or asyncio.all_tasks() != alone:  # uvloop accepts without a task
                    break
                await asyncio.sleep(0)
            await close_listener(listener)
            await until(lambda: told)
            client.settimeout(60)
            assert await asyncio.to_thread(client.recv, 1) == b""

    run(main())
