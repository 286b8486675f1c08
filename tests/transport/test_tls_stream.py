"""One port for TLS and plain: handshakes, refusals, back-pressure, reload, deadlines."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import ssl
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.certificates import Authority, Pair
from tests.support import is_connected, until
from tests.transport.conftest import Run
from tests.transport.helpers import EchoHandler, Peer, peer_of_server, serving

from sparrowmq.core.errors import ConnectError, ConnectionLostError, RequestTimeoutError, TransportError
from sparrowmq.core.settings.tls import TlsSettings
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.client import RemotingClient
from sparrowmq.transport.occasional import OccasionalLog
from sparrowmq.transport.tls import FollowedContext, ServerTls, client_context, outgoing_context
from sparrowmq.transport.tls_stream import Handshakes

SECONDS = 20.0


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stream"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("server")


@pytest.fixture
def tls(pair: Pair) -> ServerTls:
    return ServerTls(TlsSettings(server_cert=pair.cert, server_key=pair.key))


async def ask(address: str, context: ssl.SSLContext | None, body: bytes = b"x") -> bytes:
    """The answer's body to one request on a new connection."""
    client = RemotingClient(tls=context)
    try:
        return (await client.call(address, Command(10, body=body), SECONDS)).body
    finally:
        await client.close()


@pytest.mark.proves("remoting:1.6")
def test_one_port_speaks_both(run: Run, authority: Authority, tls: ServerTls) -> None:
    async def main() -> None:
        handler = EchoHandler()
        context = client_context(ca=authority.cert)
        async with serving(handler, tls=tls) as server:
            for body in (b"small", os.urandom(3_000_000)):
                assert await ask(server.address, None, body) == body
                assert await ask(server.address, context, body) == body
            await until(lambda: len(handler.lost) == 4)
            assert not server.connections

    run(main())


def test_many_requests_at_once_and_calls_of_the_server(
    run: Run, authority: Authority, tls: ServerTls
) -> None:
    async def main() -> None:
        handler = EchoHandler()
        asked: list[Command] = []

        def served(address: str, request: Command) -> Command:
            asked.append(request)
            return Command(0, body=request.body)

        client = RemotingClient(tls=client_context(ca=authority.cert), on_request={40: served})
        async with serving(handler, tls=tls) as server:
            bodies = [bytes([n % 256]) * (n * 37) for n in range(200)]
            answers = await asyncio.gather(
                *(client.call(server.address, Command(10, body=body), SECONDS) for body in bodies)
            )
            assert [answer.body for answer in answers] == bodies
            assert len(handler.made) == 1
            answer = await handler.made[0].call(Command(40, body=b"you"), SECONDS)
            assert answer.body == b"you"
            assert handler.made[0].peer[0] == "127.0.0.1"
            await client.close()

    run(main())


def test_a_handshake_that_comes_byte_by_byte(run: Run, authority: Authority, tls: ServerTls) -> None:
    async def main() -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        talk = client_context(ca=authority.cert).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        async with serving(EchoHandler(), tls=tls) as server, peer_of_server(server) as peer:
            while True:
                try:
                    talk.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    for byte in outgoing.read():
                        await peer.send_bytes(bytes([byte]))
                    incoming.write(await peer.reader.read(65536))
            assert talk.version() == "TLSv1.3"

    run(main())


def test_handshakes_that_never_end_give_way_to_the_next(
    run: Run, authority: Authority, tls: ServerTls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes memory before anybody has said who it is."""
    monkeypatch.setattr("sparrowmq.transport.server.Handshakes", partial(Handshakes, most=3))

    async def main() -> None:
        async with serving(EchoHandler(), tls=tls) as server:
            begun = []
            for _ in range(10):
                begun.append(await asyncio.open_connection("127.0.0.1", server.port))
                begun[-1][1].write(bytes.fromhex("16030100c8010000c40303"))
                await until(lambda: len(server._handshakes) == min(len(begun), 3))
            for reader, _ in begun[:7]:
                with suppress(ConnectionError):
                    assert await reader.read() == b"", "it gave way"
            assert len(server.connections) == 3
            assert await ask(server.address, client_context(ca=authority.cert)) == b"x"
            for _, writer in begun:
                writer.close()
            await until(lambda: not len(server._handshakes))

    run(main())


def test_handshakes_of_the_address_with_most_of_them_give_way_first() -> None:
    handshakes = Handshakes(OccasionalLog(logging.getLogger(__name__)), most=4)
    gone: list[str] = []

    class Begun(SimpleNamespace):
        __hash__ = object.__hash__

    def begin(source: str, name: str) -> Any:
        made: Any = Begun(source=source, give_way=lambda reason: gone.append(name))
        handshakes.begin(made)
        return made

    honest = begin("10.0.0.1", "honest")
    for number in range(6):
        begin("10.0.0.2", f"slow-{number}")
    assert gone == ["slow-0", "slow-1", "slow-2"] and len(handshakes) == 4
    handshakes.end(honest)
    handshakes.end(honest)
    assert len(handshakes) == 3


def test_plain_is_refused_where_tls_is_enforced(
    run: Run, authority: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        tls = ServerTls(TlsSettings(server_cert=pair.cert, server_key=pair.key), enforcing=True)
        handler = EchoHandler()
        async with serving(handler, tls=tls) as server:
            with pytest.raises(ConnectionLostError):
                await ask(server.address, None)
            assert handler.chunks == []
            assert await ask(server.address, client_context(ca=authority.cert)) == b"x"
        assert "does not use TLS, which is required" in caplog.text

    run(main())


class TestRefusedCertificates:
    async def refusal(self, context: ssl.SSLContext, pair: Pair) -> str:
        tls = ServerTls(TlsSettings(server_cert=pair.cert, server_key=pair.key))
        async with serving(EchoHandler(), tls=tls) as server:
            with pytest.raises(ConnectError) as error:
                await ask(server.address, context)
            await until(lambda: not server.connections)
            assert await ask(server.address, None) == b"x"  # the server is none the worse
            return str(error.value)

    def test_expired(self, run: Run, authority: Authority) -> None:
        said = run(self.refusal(client_context(ca=authority.cert), authority.sign("old", days=-1)))
        assert "the certificate of 127.0.0.1:" in said
        assert said.endswith("certificate has expired; renew it")

    def test_of_a_stranger(self, run: Run, tmp_path: Path, pair: Pair) -> None:
        stranger = Authority(tmp_path, "stranger")
        said = run(self.refusal(client_context(ca=stranger.cert), pair))
        assert "unable to get local issuer certificate" in said
        assert said.endswith("give the CA that signed it as tls_ca")

    def test_for_another_host(self, run: Run, authority: Authority) -> None:
        other = authority.sign("elsewhere", names=["DNS:broker.example"])
        said = run(self.refusal(client_context(ca=authority.cert), other))
        assert "its certificate is not valid for 127.0.0.1" in said

    def test_of_a_name_server_for_another_host(self, run: Run, authority: Authority) -> None:
        """A certificate of the same authority, for another machine, is not that of the name server."""
        other = authority.sign("namesrv", names=["DNS:namesrv.example"])
        checking = TlsSettings(client_auth_server=True, client_trust_cert=authority.cert)
        said = run(self.refusal(outgoing_context(checking), other))
        assert "its certificate is not valid for 127.0.0.1" in said
        assert said.endswith("set tls.client.checkServerName=false")

        async def as_java() -> None:
            blind = replace(checking, client_check_server_name=False)
            tls = ServerTls(TlsSettings(server_cert=other.cert, server_key=other.key))
            async with serving(EchoHandler(), tls=tls) as server:
                assert await ask(server.address, outgoing_context(blind)) == b"x"

        run(as_java())

    def test_an_expired_certificate_serves_clients_that_do_not_verify(
        self, run: Run, authority: Authority
    ) -> None:
        async def main() -> None:
            old = authority.sign("unseen", days=-1, names=["DNS:nowhere"])
            tls = ServerTls(TlsSettings(server_cert=old.cert, server_key=old.key))
            async with serving(EchoHandler(), tls=tls) as server:
                assert await ask(server.address, client_context(verify=False)) == b"x"

        run(main())


def test_mutual_tls(run: Run, tmp_path: Path, authority: Authority, pair: Pair) -> None:
    async def main() -> None:
        settings = TlsSettings(
            server_cert=pair.cert,
            server_key=pair.key,
            server_trust_cert=authority.cert,
            server_auth_client=True,
            server_need_client_auth="require",
        )
        handler = EchoHandler()
        known = authority.sign("client")
        stranger = Authority(tmp_path, "stranger").sign("client")
        async with serving(handler, tls=ServerTls(settings)) as server:
            good = client_context(ca=authority.cert, cert=known.cert, key=known.key)
            assert await ask(server.address, good) == b"x"
            for bad in (
                client_context(ca=authority.cert),
                client_context(ca=authority.cert, cert=stranger.cert, key=stranger.key),
            ):
                with pytest.raises((ConnectError, ConnectionLostError)):
                    await ask(server.address, bad)
            assert len(handler.chunks) == 1

    run(main())


def test_a_client_shows_its_renewed_certificate(
    run: Run, tmp_path: Path, authority: Authority, pair: Pair
) -> None:
    """One client object, whose certificate expires and is renewed."""

    async def main() -> None:
        settings = TlsSettings(
            server_cert=pair.cert,
            server_key=pair.key,
            server_trust_cert=authority.cert,
            server_auth_client=True,
            server_need_client_auth="require",
            client_cert=tmp_path / "c.pem",
            client_key=tmp_path / "c.key",
        )

        def install(shown: Pair) -> None:
            shutil.copy(shown.cert, tmp_path / "c.pem")
            shutil.copy(shown.key, tmp_path / "c.key")

        install(authority.sign("old", days=-1))
        now = [0.0]
        files = (settings.client_cert, settings.client_key)
        tls = FollowedContext(files, lambda: outgoing_context(settings), monotonic=lambda: now[0])
        client = RemotingClient(tls=tls)
        async with serving(EchoHandler(), tls=ServerTls(settings)) as server:
            with pytest.raises(TransportError, match="has expired; renew it"):
                await client.call(server.address, Command(10, body=b"1"), SECONDS)
            install(authority.sign("fresh"))
            now[0] = 1.0
            assert (await client.call(server.address, Command(10, body=b"2"), SECONDS)).body == b"2"
            await client.close()

    run(main())


def test_tls_towards_a_plain_server(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server:
            with pytest.raises(ConnectError, match=r"during the TLS handshake|not use TLS"):
                await ask(server.address, client_context(verify=False))

    run(main())


def test_renewed_certificates_serve_new_connections(
    run: Run, tmp_path: Path, authority: Authority, pair: Pair
) -> None:
    async def main() -> None:
        own = Pair(tmp_path / "s.pem", tmp_path / "s.key")
        shutil.copy(pair.cert, own.cert)
        shutil.copy(pair.key, own.key)
        now = [0.0]
        tls = ServerTls(TlsSettings(server_cert=own.cert, server_key=own.key), monotonic=lambda: now[0])
        new_authority = Authority(tmp_path / "new", "new")
        old, new = client_context(ca=authority.cert), client_context(ca=new_authority.cert)
        held = RemotingClient(tls=old)
        async with serving(EchoHandler(), tls=tls) as server:
            assert (await held.call(server.address, Command(10, body=b"1"), SECONDS)).body == b"1"
            renewed = new_authority.sign("server")
            shutil.copy(renewed.cert, own.cert)
            shutil.copy(renewed.key, own.key)
            now[0] = 10.0
            assert await ask(server.address, new) == b"x"
            with pytest.raises(ConnectError, match="give the CA"):
                await ask(server.address, old)
            assert (await held.call(server.address, Command(10, body=b"2"), SECONDS)).body == b"2"
            await held.close()

    run(main())


@pytest.mark.parametrize("start", [b"\x16", b"\x16\x03\x01\x00\xff\x01"])
def test_a_handshake_has_a_deadline(run: Run, tls: ServerTls, start: bytes) -> None:
    async def main() -> None:
        async with serving(EchoHandler(), tls=tls, handshake_seconds=0.05) as server:
            async with peer_of_server(server) as peer:
                await peer.send_bytes(start)
                assert await peer.closed_with() == b""
            await until(lambda: not server.connections)

    run(main())


def test_a_client_gives_a_handshake_up(run: Run, authority: Authority) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(-1)
        finally:
            writer.close()

    async def main() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for options in ({"handshake_seconds": 0.05}, {"connect_timeout": 0.05}):
            client = RemotingClient(tls=client_context(ca=authority.cert), **options)
            with pytest.raises((ConnectError, RequestTimeoutError)):
                await client.call(address, Command(10), SECONDS)
            await client.close()
        server.close()
        await server.wait_closed()

    run(main())


@pytest.mark.parametrize("garbage", [b"\x16" + b"garbage" * 20, b"\x16\x03\x01\x00\x05hello" + bytes(100)])
def test_garbage_that_starts_like_tls(
    run: Run, tls: ServerTls, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler, tls=tls) as server:
            async with peer_of_server(server) as peer:
                await peer.send_bytes(garbage)
                await peer.closed_with()
            await until(lambda: handler.lost)
            assert await ask(server.address, None) == b"x"
        assert "failed the TLS handshake" in caplog.text

    run(main())


def test_silence_and_departures_before_the_first_byte(run: Run, tls: ServerTls) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler, tls=tls, idle_seconds=0.05) as server:
            async with peer_of_server(server) as peer:
                assert await peer.closed_with() == b""
            async with peer_of_server(server) as peer:
                await until(lambda: len(handler.made) == 2)
            await until(lambda: len(handler.lost) == 2)
        assert handler.chunks == []

    run(main())


def test_a_client_that_does_not_read_pauses_its_requests(
    run: Run, authority: Authority, tls: ServerTls
) -> None:
    async def main() -> None:
        handler = EchoHandler()
        context = client_context(ca=authority.cert)
        async with serving(handler, tls=tls, write_high_water=64 * 1024) as server:
            reader, writer = await asyncio.open_connection(server.host, server.port, ssl=context, limit=1024)
            peer = Peer(reader, writer)
            body = bytes(200_000)
            sending = asyncio.create_task(peer.send(*(Command(10, n, body=body) for n in range(100))))
            await until(lambda: handler.made and handler.made[0].unsent_bytes > 64 * 1024)
            served = len(handler.chunks)
            assert served < 100
            for n in range(100):
                assert (await peer.command()).opaque == n
            await sending
            await peer.close()

    run(main())


def test_the_servers_end_tells_clients(run: Run, authority: Authority, tls: ServerTls) -> None:
    async def main() -> None:
        client = RemotingClient(tls=client_context(ca=authority.cert))
        async with serving(EchoHandler(), tls=tls) as server:
            await client.call(server.address, Command(10), SECONDS)
            address = server.address
        await until(lambda: not is_connected(client, address))
        await client.close()

    run(main())
