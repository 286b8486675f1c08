"""The client: calls, sharing of connections, bounds, faults of every kind, requests from the server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support import about, free_port, is_connected, until
from tests.transport.conftest import Run
from tests.transport.helpers import EchoHandler, Peer, answer_to, scripted, serving

from sparrowmq.core.errors import (
    ConnectError,
    ConnectionLostError,
    InvalidStateError,
    NoRoomError,
    RequestTimeoutError,
)
from sparrowmq.protocol.frame import FLAG_ONEWAY, FLAG_RESPONSE, Command, encode
from sparrowmq.transport.client import RemotingClient

SECONDS = 20.0


@asynccontextmanager
async def client_of(**options: Any) -> AsyncIterator[RemotingClient]:
    client = RemotingClient(**options)
    try:
        yield client
    finally:
        await client.close()


async def never_answer(peer: Peer) -> None:
    await peer.closed_with()


def test_a_call_gives_the_answer_whatever_its_code(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        handler.on_request = lambda conn, request: conn.send(answer_to(request, 17, "no such topic"))
        async with serving(handler) as server, client_of() as client:
            answer = await client.call(server.address, Command(105, ext={"topic": "T"}), SECONDS)
            assert (answer.code, answer.remark, answer.ext) == (17, "no such topic", {"topic": "T"})
            assert client.in_flight == 0

    run(main())


@pytest.mark.proves("client:A-76")
def test_many_calls_in_flight_share_one_connection_and_find_their_answers(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, client_of() as client:
            calls = [client.call(server.address, Command(10, body=b"%d" % n), SECONDS) for n in range(2000)]
            answers = await asyncio.gather(*calls)
            assert [answer.body for answer in answers] == [b"%d" % n for n in range(2000)]
            assert len(handler.made) == 1
            assert len(handler.chunks) < 200, "calls of one turn of the loop leave together"

    run(main())


def test_answers_may_come_in_any_order(run: Run) -> None:
    async def script(peer: Peer) -> None:
        asked = [await peer.command() for _ in range(3)]
        await peer.send(*(answer_to(request) for request in reversed(asked)))

    async def main() -> None:
        async with scripted(script) as address, client_of() as client:
            calls = [client.call(address, Command(10, body=b"%d" % n), SECONDS) for n in range(3)]
            assert [answer.body for answer in await asyncio.gather(*calls)] == [b"0", b"1", b"2"]

    run(main())


def test_the_fast_path_needs_a_connection_and_room(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server, client_of(in_flight_max=1) as client:
            assert client.call_nowait(server.address, Command(10), SECONDS) is None
            assert not is_connected(client, server.address)
            await client.call(server.address, Command(10), SECONDS)
            assert is_connected(client, server.address)
            future = client.call_nowait(server.address, Command(10, body=b"fast"), SECONDS)
            assert future is not None
            assert client.call_nowait(server.address, Command(10), SECONDS) is None
            assert (await future).body == b"fast"
            assert client.in_flight == 0

    run(main())


def test_frames_the_caller_encoded_are_sent_as_they_are(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, client_of() as client:
            for fast in (False, True):
                opaque = client.next_opaque()
                data = encode(Command(310, opaque, body=b"own"))
                if fast:
                    future = client.call_encoded_nowait(server.address, opaque, data, SECONDS, 310)
                    assert future is not None
                    answer = await future
                else:
                    answer = await client.call_encoded(server.address, opaque, data, SECONDS, 310)
                assert (answer.opaque, answer.body) == (opaque, b"own")
            one_way = encode(Command(310, client.next_opaque(), FLAG_ONEWAY, body=b"one-way"))
            await client.notify_encoded(server.address, one_way, SECONDS, 310)
            await until(lambda: len(handler.chunks) == 3)
            assert handler.chunks[2][0].body == b"one-way"

    run(main())


def test_one_way_requests_are_sent_and_not_waited_for(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, client_of() as client:
            await client.notify(server.address, Command(15, body=b"x"))
            await until(lambda: handler.chunks)
            assert handler.chunks[0][0].is_oneway
            assert client.in_flight == 0

    run(main())


class TestConnecting:
    def test_a_port_nobody_listens_on(self, run: Run) -> None:
        async def main() -> None:
            address = f"127.0.0.1:{free_port()}"
            async with client_of() as client:
                for _ in range(2):
                    with pytest.raises(ConnectError, check=about(address=address)):
                        await client.call(address, Command(10), SECONDS)
                with pytest.raises(ConnectError):
                    await client.notify(address, Command(10))
                assert client.in_flight == 0

        run(main())

    @pytest.mark.parametrize("address", ["nowhere", "no-such-host.invalid:9876"])
    def test_an_address_that_leads_nowhere(self, run: Run, address: str) -> None:
        async def main() -> None:
            async with client_of() as client:
                with pytest.raises(ConnectError, check=about(address=address)):
                    await client.call(address, Command(10), SECONDS)

        run(main())

    def test_a_host_that_does_not_answer(self, run: Run) -> None:
        """A listener whose backlog is full swallows connection attempts, as a dead host does."""

        async def main() -> None:
            with FullListener() as address:
                async with client_of(connect_timeout=0.05) as client:
                    with pytest.raises(ConnectError, check=about(address=address, limit=0.05)):
                        await client.call(address, Command(10), SECONDS)
                async with client_of() as client:
                    with pytest.raises(RequestTimeoutError, check=about(value=10, limit=0.05)):
                        await client.call(address, Command(10), 0.05)
                    assert client.in_flight == 0

        run(main())

    def test_one_attempt_is_shared_and_survives_who_gives_up(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with serving(handler) as server, client_of() as client:
                first = asyncio.create_task(client.call(server.address, Command(10), SECONDS))
                second = asyncio.create_task(client.call(server.address, Command(10, body=b"2"), SECONDS))
                await asyncio.sleep(0)
                first.cancel()
                assert (await second).body == b"2"
                assert len(handler.made) == 1
                with pytest.raises(asyncio.CancelledError):
                    await first
                assert client.in_flight == 0

        run(main())

    def test_every_new_connection_is_told(self, run: Run) -> None:
        async def main() -> None:
            told: list[str] = []
            async with serving(EchoHandler()) as server, client_of(on_connected=told.append) as client:
                await client.call(server.address, Command(10), SECONDS)
                await client.call(server.address, Command(10), SECONDS)
                client.disconnect(server.address)
                client.disconnect(server.address)
                assert not is_connected(client, server.address)
                await client.call(server.address, Command(10), SECONDS)
                assert told == [server.address, server.address]

        run(main())

    def test_every_lost_connection_is_told_once_and_none_when_the_client_closes(self, run: Run) -> None:
        async def main() -> None:
            told: list[str] = []
            async with serving(EchoHandler()) as server:
                async with client_of(on_lost=told.append) as client:
                    await client.call(server.address, Command(10), SECONDS)
                    client.disconnect(server.address)
                    assert told == [server.address]
                    await client.call(server.address, Command(10), SECONDS)
                    for connection in list(server.connections):
                        connection.abort()
                    await until(lambda: len(told) == 2)
                    await client.call(server.address, Command(10), SECONDS)
                assert told == [server.address] * 2

        run(main())


class FullListener:
    """A listening socket whose queue of connections is full."""

    def __enter__(self) -> str:
        self._listener = socket.socket()
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen(0)
        name = self._listener.getsockname()
        self._fillers = [socket.socket() for _ in range(4)]
        for filler in self._fillers:
            filler.setblocking(False)
            filler.connect_ex(name)
        return f"127.0.0.1:{name[1]}"

    def __exit__(self, *_: object) -> None:
        for sock in (*self._fillers, self._listener):
            sock.close()


class TestWaiting:
    def test_a_call_without_an_answer_ends_at_its_deadline_and_spares_the_connection(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with serving(handler) as server, client_of() as client:
                await client.call(server.address, Command(10), SECONDS)
                handler.on_request = lambda conn, request: None
                expired = about(address=server.address, value=310, limit=0.02)
                with pytest.raises(RequestTimeoutError, check=expired):
                    await client.call(server.address, Command(310), 0.02)
                late = (await until(lambda: handler.chunks[1:]))[0][0]
                handler.on_request = handler.echo
                handler.made[0].send(answer_to(late))
                assert (await client.call(server.address, Command(10, body=b"x"), SECONDS)).body == b"x"
                assert len(handler.made) == 1
                assert client.in_flight == 0

        run(main())

    def test_a_cancelled_call_is_forgotten(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            handler.on_request = lambda conn, request: None
            async with serving(handler) as server, client_of() as client:
                task = asyncio.create_task(client.call(server.address, Command(310), SECONDS))
                await until(lambda: handler.chunks)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                handler.made[0].send(answer_to(handler.chunks[0][0]))
                await until(lambda: client.in_flight == 0)

        run(main())

    @pytest.mark.proves("client:A-77")
    def test_a_call_waits_for_room_and_gives_up_at_its_deadline(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            handler.on_request = lambda conn, request: None
            async with serving(handler) as server, client_of(in_flight_max=2) as client:
                first = [
                    asyncio.create_task(client.call(server.address, Command(310), SECONDS)) for _ in "ab"
                ]
                await until(lambda: client.in_flight == 2)
                with pytest.raises(NoRoomError, check=about(limit=2)):
                    await client.call(server.address, Command(310), 0.02)
                third = asyncio.create_task(client.call(server.address, Command(10), SECONDS))
                await until(lambda: sum(map(len, handler.chunks)) == 2)
                handler.on_request = handler.echo
                for request in [request for chunk in handler.chunks for request in chunk]:
                    handler.made[0].send(answer_to(request))
                await asyncio.gather(*first, third)
                assert client.in_flight == 0

        run(main())

    def test_calls_wait_while_the_server_does_not_read(self, run: Run) -> None:
        async def main() -> None:
            go_on = asyncio.Event()

            async def script(peer: Peer) -> None:
                peer.reading.pause_reading()
                await go_on.wait()
                peer.reading.resume_reading()
                for _ in range(100):
                    request = await peer.command()
                    await peer.send(Command(0, request.opaque, FLAG_RESPONSE))

            async with scripted(script) as address, client_of() as client:
                body = bytes(1_000_000)
                calls = [
                    asyncio.create_task(client.call(address, Command(10, body=body), SECONDS))
                    for _ in range(100)
                ]
                connection = await until(lambda: client._connections.get(address))
                await until(lambda: connection.paused)
                unsent = connection._transport.get_write_buffer_size()
                assert unsent < 20_000_000, "what the server does not take must wait with its caller"
                assert client.call_nowait(address, Command(10), SECONDS) is None
                with pytest.raises(RequestTimeoutError, check=about(address=address, value=10, limit=0.02)):
                    await client.notify(address, Command(10), timeout=0.02)
                go_on.set()
                assert {answer.code for answer in await asyncio.gather(*calls)} == {0}

        run(main())


class TestLoss:
    @pytest.mark.proves("client:A-80")
    def test_calls_fail_at_once_when_the_server_closes(self, run: Run) -> None:
        async def script(peer: Peer) -> None:
            for _ in range(3):
                await peer.command()
            await peer.close()

        async def main() -> None:
            async with scripted(script) as address, client_of() as client:
                calls = [client.call(address, Command(310), SECONDS) for _ in range(3)]
                for error in await asyncio.gather(*calls, return_exceptions=True):
                    assert isinstance(error, ConnectionLostError)
                    assert "may or may not have been executed" in str(error)
                assert not is_connected(client, address)
                assert client.in_flight == 0

        run(main())

    def test_the_next_call_after_a_loss_connects_again(self, run: Run) -> None:
        async def main() -> None:
            async with client_of() as client:
                handler = EchoHandler()
                async with serving(handler) as server:
                    await client.call(server.address, Command(10), SECONDS)
                await until(lambda: not is_connected(client, server.address))
                async with serving(handler, port=server.port):
                    assert (await client.call(server.address, Command(10), SECONDS)).code == 0

        run(main())

    def test_half_an_answer_and_then_the_end(self, run: Run) -> None:
        async def script(peer: Peer) -> None:
            request = await peer.command()
            await peer.send_bytes(encode(answer_to(request))[:-3])
            await peer.close()

        async def main() -> None:
            async with scripted(script) as address, client_of() as client:
                with pytest.raises(ConnectionLostError):
                    await client.call(address, Command(310, body=b"body"), SECONDS)

        run(main())

    @pytest.mark.parametrize(
        "data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x06\x00\x00\x00\x02{]"]
    )
    def test_garbage_from_the_server_ends_the_connection(
        self, run: Run, caplog: pytest.LogCaptureFixture, data: bytes
    ) -> None:
        async def script(peer: Peer) -> None:
            await peer.command()
            await peer.send_bytes(data)
            await peer.closed_with()

        async def main() -> None:
            async with scripted(script) as address, client_of() as client:
                with pytest.raises(ConnectionLostError):
                    await client.call(address, Command(310), SECONDS)

        run(main())
        assert "closing the connection to 127.0.0.1" in caplog.text

    def test_other_servers_are_not_harmed(self, run: Run) -> None:
        async def script(peer: Peer) -> None:
            await peer.command()
            await peer.close()

        async def main() -> None:
            async with scripted(script) as bad, serving(EchoHandler()) as good, client_of() as client:
                results = await asyncio.gather(
                    client.call(bad, Command(10), SECONDS),
                    client.call(good.address, Command(10), SECONDS),
                    return_exceptions=True,
                )
                assert isinstance(results[0], ConnectionLostError)
                assert isinstance(results[1], Command)

        run(main())

    def test_the_connection_to_a_dead_server_is_closed_and_the_next_call_reconnects(
        self, run: Run, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sparrowmq.transport.client_connection.SILENCE_SECONDS_MAX", 0.05)

        async def main() -> None:
            async with scripted(never_answer) as address, client_of() as client:
                held = asyncio.create_task(client.call(address, Command(11), SECONDS))
                with pytest.raises(RequestTimeoutError):
                    await client.call(address, Command(10), 0.1)
                with pytest.raises(ConnectionLostError, match="silent"):
                    await held
                assert not is_connected(client, address)

        run(main())

    def test_a_client_with_a_held_pull_is_not_idle(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """One call that expires early says nothing about a server that holds another."""
        monkeypatch.setattr("sparrowmq.transport.client_connection.SILENCE_SECONDS_MAX", 0.3)

        async def main() -> None:
            async with scripted(never_answer) as address, client_of() as client:
                held = asyncio.create_task(client.call(address, Command(11), SECONDS))
                await until(lambda: is_connected(client, address))
                connection = client._connections[address]
                connection._heard_at -= 0.35  # longer ago than the limit
                connection._silent_since = connection._heard_at
                with pytest.raises(RequestTimeoutError):
                    await client.call(address, Command(10), 0.01)
                assert is_connected(client, address)
                assert not held.done()
                for _ in range(100):  # but many that expire one after the other do
                    if not is_connected(client, address):
                        break
                    with pytest.raises((RequestTimeoutError, ConnectionLostError)):
                        await client.call(address, Command(10), 0.01)
                with pytest.raises(ConnectionLostError, match="silent"):
                    await held

        run(main())


class TestRequestsFromTheServer:
    def test_they_are_answered_on_the_same_connection(self, run: Run) -> None:
        async def main() -> None:
            async def later(address: str, request: Command) -> Command:
                await asyncio.sleep(0)
                return Command(code=0, body=b"later")

            seen: list[tuple[str, int]] = []
            handlers: dict[int, Any] = {
                40: lambda address, request: seen.append((address, request.code)),
                307: lambda address, request: Command(code=0, body=address.encode()),
                309: later,
            }
            handler = EchoHandler()
            async with serving(handler) as server, client_of(on_request=handlers) as client:
                await client.call(server.address, Command(34), SECONDS)
                conn = handler.made[0]
                conn.notify(Command(40))
                assert (await conn.call(Command(307), SECONDS)).body == server.address.encode()
                assert (await conn.call(Command(309), SECONDS)).body == b"later"
                unknown = await conn.call(Command(9999), SECONDS)
                assert (unknown.code, unknown.remark) == (3, " request type 9999 not supported")
                assert seen == [(server.address, 40)]

        run(main())

    def test_equal_opaques_of_both_sides_are_kept_apart(self, run: Run) -> None:
        async def script(peer: Peer) -> None:
            asked = await peer.command()
            await peer.send(Command(307, asked.opaque))
            answered = await peer.command()
            assert answered.is_response and answered.opaque == asked.opaque
            await peer.send(answer_to(asked, remark=answered.remark))
            await peer.closed_with()

        async def main() -> None:
            handlers: dict[int, Any] = {307: lambda address, request: Command(code=0, remark="from client")}
            async with scripted(script) as address, client_of(on_request=handlers) as client:
                assert (await client.call(address, Command(10), SECONDS)).remark == "from client"

        run(main())

    def test_handlers_may_be_added_later(self, run: Run) -> None:
        async def main() -> None:
            handlers: dict[int, Any] = {}
            handler = EchoHandler()
            async with serving(handler) as server, client_of(on_request=handlers) as client:
                await client.call(server.address, Command(34), SECONDS)
                handlers[307] = lambda address, request: Command(code=0)
                assert (await handler.made[0].call(Command(307), SECONDS)).code == 0

        run(main())


class TestClosing:
    def test_calls_end_and_later_ones_are_refused(self, run: Run) -> None:
        async def main() -> None:
            async with scripted(never_answer) as address:
                client = RemotingClient(in_flight_max=1)
                tasks = [asyncio.create_task(client.call(address, Command(10), SECONDS)) for _ in "ab"]
                await until(lambda: is_connected(client, address))
                await client.close()
                first, second = await asyncio.gather(*tasks, return_exceptions=True)
                assert isinstance(first, ConnectionLostError)
                assert isinstance(second, InvalidStateError)
                with pytest.raises(InvalidStateError, check=about(what="closed")):
                    await client.call(address, Command(10), SECONDS)
                await client.close()
                assert "closed" in repr(client)

        run(main())

    def test_while_connecting(self, run: Run) -> None:
        async def main() -> None:
            with FullListener() as address:
                client = RemotingClient()
                task = asyncio.create_task(client.call(address, Command(10), SECONDS))
                await until(lambda: address in client._connecting)
                await client.close()
                with pytest.raises(ConnectionLostError, check=about(address=address)):
                    await task

        run(main())

    def test_what_was_written_is_handed_over(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with serving(handler) as server:
                client = RemotingClient()
                await client.notify(server.address, Command(15, body=bytes(1_000_000)))
                await client.close()
                await until(lambda: handler.chunks)
                assert len(handler.chunks[0][0].body) == 1_000_000

        run(main())

    def test_a_server_that_does_not_read_cannot_hold_it_up(self, run: Run) -> None:
        async def main() -> None:
            async def script(peer: Peer) -> None:
                peer.reading.pause_reading()
                await asyncio.Event().wait()

            async with scripted(script) as address:
                client = RemotingClient()
                await client.notify(address, Command(15, body=bytes(15_000_000)))
                assert is_connected(client, address)
                await client.close(timeout=0.05)
                assert not is_connected(client, address)

        run(main())


@pytest.mark.proves("client:A-76")
def test_idle_connections_are_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrowmq.transport.client.SWEEP_SECONDS", 0.01)
    sweep, sweeps = RemotingClient._sweep, [0]

    def counted(client: RemotingClient, loop: asyncio.AbstractEventLoop) -> None:
        sweeps[0] += 1
        sweep(client, loop)

    monkeypatch.setattr(RemotingClient, "_sweep", counted)

    async def main() -> None:
        handler = EchoHandler()
        handler.on_request = lambda conn, request: None
        async with serving(handler) as server, client_of(idle_seconds=0.001) as client:
            held = asyncio.create_task(client.call(server.address, Command(11), SECONDS))
            await until(lambda: handler.chunks)
            seen = sweeps[0]
            await until(lambda: sweeps[0] >= seen + 3)
            assert is_connected(client, server.address), "a connection with a call outstanding is not idle"
            handler.made[0].send(answer_to(handler.chunks[0][0]))
            await held
            await until(lambda: not is_connected(client, server.address))
            await until(lambda: handler.lost)

    run(main())


def test_repr_tells_state(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server, client_of() as client:
            assert repr(client) == "<RemotingClient open, no connections, 0 in flight>"
            await client.call(server.address, Command(10), SECONDS)
            assert server.address in repr(client)

    run(main())


class Notes:
    """An RPC hook that notes what it sees, marks requests and can fail."""

    def __init__(self, fails: str = "") -> None:
        self.seen: list[str] = []
        self.fails = fails

    def before_request(self, address: str, command: Command) -> None:
        self.seen.append(f"before {command.code}")
        command.ext["mark"] = str(command.opaque)
        if self.fails == "before":
            raise ValueError("no")

    def after_response(self, address: str, command: Command, answer: Command) -> None:
        self.seen.append(f"after {command.code} {answer.code}")
        if self.fails == "after":
            raise ValueError("no")


@pytest.mark.proves("client:B-49", "client:A-82")
def test_hooks_see_requests_and_answers_in_order_and_may_change_them(run: Run) -> None:
    async def main() -> None:
        one, two, handler = Notes(), Notes(), EchoHandler()
        async with serving(handler) as server, client_of(hooks=(one, two)) as client:
            assert client.is_hooked
            assert client.call_nowait(server.address, Command(9), SECONDS) is None, "not connected yet"
            answer = await client.call(server.address, Command(10), SECONDS)
            assert answer.ext["mark"] == str(answer.opaque)
            started = client.call_nowait(server.address, Command(11), SECONDS)
            assert started is not None
            assert (await started).ext["mark"]
            await client.notify(server.address, Command(12))
            await until(lambda: handler.chunks[-1][-1].code == 12)
            assert handler.chunks[-1][-1].ext["mark"]
            assert one.seen == two.seen == ["before 10", "after 10 0", "before 11", "after 11 0", "before 12"]

    run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_error_in_a_hook_fails_the_request_and_nothing_else(run: Run, when: str) -> None:
    async def main() -> None:
        hook = Notes(when)
        async with serving(EchoHandler()) as server, client_of(hooks=(hook,)) as client:
            with pytest.raises(ValueError, check=about(args=("no",))):
                await client.call(server.address, Command(10), SECONDS)
            hook.fails = "after"
            await until(lambda: client.in_flight == 0)
            hook.fails = ""
            await client.call(server.address, Command(10), SECONDS)
            hook.fails = "after"
            started = client.call_nowait(server.address, Command(10), SECONDS)
            assert started is not None
            with pytest.raises(ValueError, check=about(args=("no",))):
                await started
            cancelled = client.call_nowait(server.address, Command(10), SECONDS)
            assert cancelled is not None
            cancelled.cancel()
            hook.fails = ""
            await until(lambda: client.in_flight == 0)

    run(main())


@pytest.mark.proves("client:A-85", "client:G-35")
def test_go_away_is_followed_by_one_more_try_over_a_new_connection(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, client_of() as client:

            def first_goes_away(conn: Any, request: Command) -> None:
                conn.send(answer_to(request, 1500 if len(handler.made) == 1 else 0))

            handler.on_request = first_goes_away
            assert (await client.call(server.address, Command(10), SECONDS)).code == 0
            assert len(handler.made) == 2
            handler.on_request = lambda conn, request: conn.send(answer_to(request, 1500))
            assert (await client.call(server.address, Command(10), SECONDS)).code == 1500, "not a third time"
            assert len(handler.made) == 3

    run(main())
