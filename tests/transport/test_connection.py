"""A server's connections: chunks, gathered writes, back-pressure, garbage, calls to the client."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tests.support import about, until
from tests.transport.conftest import Run
from tests.transport.helpers import EchoHandler, Peer, answer_to, peer_of_server, serving

from sparrowmq.core.errors import ConnectionLostError, NoRoomError, RequestTimeoutError
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command, RawFrame, encode
from sparrowmq.transport.connection import CALLS_IN_FLIGHT_MAX, SEPARATE_BYTES_MIN, Connection


def requests(count: int, body: bytes = b"") -> list[Command]:
    return [Command(310, opaque, body=body) for opaque in range(count)]


def test_all_requests_of_a_read_reach_the_handler_together_and_in_order(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, peer_of_server(server) as peer:
            await peer.send(*requests(50))
            assert [(await peer.command()).opaque for _ in range(50)] == list(range(50))
            assert [command.opaque for command in handler.chunks[0]] == list(range(50))

    run(main())


def test_answers_of_a_chunk_leave_in_one_write(run: Run) -> None:
    async def main() -> None:
        handler, writes = EchoHandler(), []

        class Spy:
            def __init__(self, transport: Any) -> None:
                self._transport = transport

            def __getattr__(self, name: str) -> Any:
                return getattr(self._transport, name)

            def write(self, data: bytes) -> None:
                writes.append(data)
                self._transport.write(data)

        async with serving(handler) as server, peer_of_server(server) as peer:
            await until(lambda: handler.made)
            conn = handler.made[0]
            conn._transport = Spy(conn._transport)
            await peer.send(*requests(20))
            answers = [await peer.command() for _ in range(20)]
            assert writes == [b"".join(map(encode, answers))]
            # Outside a chunk: everything of one turn of the loop.
            for _ in range(5):
                conn.notify(Command(40))
            assert len(writes) == 1
            assert conn.unsent_bytes > 0
            opaques = [(await peer.command()).opaque for _ in range(5)]
            assert opaques == [0, 1, 2, 3, 4]
            assert len(writes) == 2
            assert conn.unsent_bytes == 0

    run(main())


@pytest.mark.parametrize("corked", [False, True])
@pytest.mark.parametrize("size", [10, SEPARATE_BYTES_MIN, 600_000])
def test_parts_are_joined_when_they_are_short(run: Run, size: int, corked: bool) -> None:
    async def main() -> None:
        handler, written = EchoHandler(), list[int]()

        class Spy:
            def __init__(self, transport: Any) -> None:
                self._transport = transport

            def __getattr__(self, name: str) -> Any:
                return getattr(self._transport, name)

            def write(self, data: bytes) -> None:
                written.append(1)
                self._transport.write(data)

            def writelines(self, parts: list[bytes]) -> None:
                written.append(len(parts))
                self._transport.writelines(parts)

        async with serving(handler) as server, peer_of_server(server) as peer:
            await until(lambda: handler.made)
            conn = handler.made[0]
            conn._transport = Spy(conn._transport)
            data = bytearray(random.Random(1).randbytes(3 * size))
            whole = encode(answer_to(Command(10, 5, body=bytes(data))))
            head = whole[: -3 * size]
            parts = [head, *(memoryview(data)[at : at + size].toreadonly() for at in (0, size, 2 * size))]

            def answer(conn: Connection, request: Command) -> None:
                conn.write_parts(parts, len(whole))

            if corked:
                handler.on_request = answer
                await peer.send(Command(10, 5))
            else:
                answer(conn, Command(10, 5))
                assert conn.unsent_bytes == len(whole)
            assert (await peer.command()).body == data
            assert written == [1 if len(whole) < 4 * SEPARATE_BYTES_MIN else 4]
            assert conn.unsent_bytes == 0
            await peer.send(Command(10, 6))
            conn.abort()
            conn.write_parts(parts, len(whole))

    run(main())


def test_long_parts_leave_with_what_was_written_around_them(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, peer_of_server(server) as peer:
            await until(lambda: handler.made)
            conn = handler.made[0]
            whole = encode(answer_to(Command(10, 2, body=b"x" * 100_000)))
            conn.send(answer_to(Command(10, 1)))
            conn.write_parts([whole[:50], memoryview(whole)[50:]], len(whole))
            conn.send(answer_to(Command(10, 3)))
            assert [(await peer.command()).opaque for _ in range(3)] == [1, 2, 3]

    run(main())


def test_writing_to_another_connection_within_a_chunk(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with (
            serving(handler) as server,
            peer_of_server(server) as held,
            peer_of_server(server) as waker,
        ):
            handler.on_request = lambda conn, command: None
            await held.send(Command(11, 77))
            await until(lambda: handler.chunks)
            holder = handler.chunks[0][0]
            conn = next(c for c in handler.made if c.peer[1] == held.writer.get_extra_info("sockname")[1])
            handler.on_request = lambda _, command: conn.send(answer_to(holder))
            await waker.send(Command(310))
            assert (await held.command()).opaque == 77

    run(main())


def test_a_frame_may_come_byte_by_byte(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, peer_of_server(server) as peer:
            for byte in encode(Command(10, 5, body=b"body")):
                await peer.send_bytes(bytes([byte]))
                await asyncio.sleep(0)
            assert (await peer.command()).body == b"body"

    run(main())


def test_half_a_frame_and_then_the_end_harms_nobody(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, peer_of_server(server) as other:
            async with peer_of_server(server) as peer:
                await peer.send_bytes(encode(Command(10, body=b"body"))[:-2])
                await until(lambda: len(handler.made) == 2)
            await until(lambda: len(handler.lost) == 1)
            assert handler.chunks == []
            await other.send(Command(10))
            assert (await other.command()).code == 0

    run(main())


def test_requests_before_a_half_close_are_answered(run: Run) -> None:
    async def main() -> None:
        async with serving(EchoHandler()) as server, peer_of_server(server) as peer:
            peer.writer.write(encode(Command(10, 3)))
            peer.writer.write_eof()
            assert (await peer.command()).opaque == 3
            assert await peer.closed_with() == b""

    run(main())


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"),
        (b"\x7f\xff\xff\xff\x00\x00\x00\x00", "limit"),
        (b"\xff\xff\xff\xff\x00\x00\x00\x00", "too small"),
        (b"\x00\x00\x00\x04\x00\x00\x00\x09", "does not fit"),
        (encode(Command(10, body=bytes(2000))), "limit of 1000"),
    ],
)
def test_garbage_closes_its_connection_only(
    run: Run, caplog: pytest.LogCaptureFixture, data: bytes, text: str
) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler, frame_bytes_max=1000) as server, peer_of_server(server) as other:
            for _ in range(3):
                async with peer_of_server(server) as peer:
                    await peer.send_bytes(data)
                    assert await peer.closed_with() == b"", "nothing may be sent to a stranger"
            await other.send(Command(10))
            assert (await other.command()).code == 0
            await until(lambda: len(handler.lost) == 3)
            assert handler.lost[0].closed

    run(main())
    lines = [line for line in caplog.messages if text in line]
    assert len(lines) == 1, "strangers must not fill the log"


def test_a_fault_of_the_handler_closes_its_connection_only(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        handler = EchoHandler()

        def fail(conn: Connection, command: Command) -> None:
            raise ZeroDivisionError("a fault")

        async with serving(handler) as server, peer_of_server(server) as other:
            async with peer_of_server(server) as peer:
                handler.on_request = fail
                await peer.send(Command(10))
                assert await peer.closed_with() == b""
            handler.on_request = handler.echo
            await other.send(Command(10))
            assert (await other.command()).code == 0

    run(main())
    assert "error while serving 127.0.0.1" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_what_was_written_before_close_arrives_and_nothing_after(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()

        def answer_and_close(conn: Connection, command: Command) -> None:
            handler.echo(conn, command)
            conn.close("test")
            conn.close("again")
            handler.echo(conn, command)

        handler.on_request = answer_and_close
        async with serving(handler) as server, peer_of_server(server) as peer:
            await peer.send(*requests(2))
            assert (await peer.command()).opaque == 0
            assert await peer.closed_with() == b""
            await until(lambda: handler.lost)
            conn = handler.made[0]
            conn.write(b"dropped")
            assert conn.unsent_bytes == 0
            assert "closed" in repr(conn)

    run(main())


class TestBackPressure:
    def test_a_client_that_does_not_read_is_not_read_from(self, run: Run) -> None:
        async def main() -> None:
            handler, answer = EchoHandler(), bytes(200_000)
            handler.on_request = lambda conn, request: conn.send(
                Command(0, request.opaque, FLAG_RESPONSE, body=answer)
            )
            async with (
                serving(handler, write_high_water=500_000) as server,
                peer_of_server(server) as other,
                peer_of_server(server) as peer,
            ):
                sent = asyncio.create_task(send_all(peer, 4000))
                await until(lambda: handler.made and any("paused" in repr(c) for c in handler.made))
                conn = next(c for c in handler.made if "paused" in repr(c))
                assert conn.unsent_bytes >= 500_000
                await other.send(Command(10))
                assert (await other.command()).code == 0
                for opaque in range(4000):
                    assert (await peer.command()).opaque == opaque
                await sent
                assert "open" in repr(conn)

        run(main())

    def test_a_client_that_lets_too_much_pile_up_is_closed(
        self, run: Run, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with (
                serving(handler, write_high_water=100_000, unsent_bytes_max=20_000_000) as server,
                peer_of_server(server),
            ):
                await until(lambda: handler.made)
                conn = handler.made[0]

                def pile_up() -> bool:
                    conn.write(bytes(1_000_000))
                    return conn.closed

                await until(pile_up)
                await until(lambda: handler.lost)

        run(main())
        assert "it does not read" in caplog.text

    def test_a_paused_client_that_reads_nothing_is_idle(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with (
                serving(handler, write_high_water=100_000, idle_seconds=0.2) as server,
                peer_of_server(server),
            ):
                await until(lambda: handler.made)
                handler.made[0].write(bytes(30_000_000))
                await until(lambda: handler.made[0].closed)

        run(main())


async def send_all(peer: Peer, count: int) -> None:
    for opaque in range(count):
        await peer.send(Command(310, opaque, body=bytes(2000)))


class TestCallsToTheClient:
    def test_an_answer_goes_to_its_call_and_requests_beside_it_to_the_handler(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with serving(handler) as server, peer_of_server(server) as peer:
                await until(lambda: handler.made)
                calls = [handler.made[0].call(Command(307), 20.0) for _ in range(2)]
                asked = [await peer.command() for _ in range(2)]
                assert [command.code for command in asked] == [307, 307]
                assert asked[0].opaque != asked[1].opaque
                await peer.send(
                    Command(10, asked[0].opaque, body=b"a request with the same opaque"),
                    answer_to(asked[1], 1, "second"),
                    answer_to(asked[0], 0, "first"),
                )
                assert [(await call).remark for call in calls] == ["first", "second"]
                assert (await peer.command()).body == b"a request with the same opaque"
                assert [command.code for command in handler.chunks[0]] == [10]

        run(main())

    def test_a_late_answer_is_not_taken_for_a_request(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with serving(handler) as server, peer_of_server(server) as peer:
                await until(lambda: handler.made)
                call = handler.made[0].call(Command(307), 0.01)
                asked = await peer.command()
                with pytest.raises(RequestTimeoutError, check=about(value=307, limit=0.01)):
                    await call
                await peer.send(answer_to(asked), Command(10, 5))
                assert (await peer.command()).opaque == 5
                assert [[command.code for command in chunk] for chunk in handler.chunks] == [[10]]

        run(main())

    def test_the_end_of_the_connection_ends_its_calls(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with serving(handler) as server, peer_of_server(server) as peer:
                await until(lambda: handler.made)
                conn = handler.made[0]
                call = conn.call(Command(307), 20.0)
                await peer.command()
                await peer.close()
                with pytest.raises(ConnectionLostError, match="the client disconnected"):
                    await call
                with pytest.raises(ConnectionLostError, match="already closed"):
                    await conn.call(Command(307), 20.0)

        run(main())

    def test_calls_in_flight_are_bounded(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with serving(handler) as server, peer_of_server(server):
                await until(lambda: handler.made)
                conn = handler.made[0]
                calls = [conn.call(Command(307), 20.0) for _ in range(CALLS_IN_FLIGHT_MAX)]
                with pytest.raises(NoRoomError, check=about(limit=1024)):
                    conn.call(Command(307), 20.0)
                conn.close("test")
                ended = await asyncio.gather(*calls, return_exceptions=True)
                assert {type(error) for error in ended} == {ConnectionLostError}

        run(main())

    def test_an_answer_that_cannot_be_read_closes_the_connection(self, run: Run) -> None:
        async def main() -> None:
            handler = EchoHandler()
            async with serving(handler) as server, peer_of_server(server) as peer:
                await until(lambda: handler.made)
                call = handler.made[0].call(Command(307), 20.0)
                await peer.command()
                await peer.send_bytes(b"\x00\x00\x00\x06\x00\x00\x00\x02{]")
                with pytest.raises(ConnectionLostError):
                    await call

        run(main())


def test_the_handler_sees_who_it_is(run: Run) -> None:
    async def main() -> None:
        handler = EchoHandler()
        async with serving(handler) as server, peer_of_server(server) as peer:
            await until(lambda: handler.made)
            conn = handler.made[0]
            name = peer.writer.get_extra_info("sockname")
            assert conn.peer == tuple(name)
            assert conn.address == f"127.0.0.1:{name[1]}"
            assert conn.born_host == b"\x7f\x00\x00\x01" + name[1].to_bytes(4, "big")
            assert repr(conn) == f"<Connection {conn.id} from {conn.address} open>"
            conn.context = {"any": "thing"}
            async with peer_of_server(server):
                await until(lambda: len(handler.made) == 2)
                assert handler.made[1].id != conn.id

    run(main())


def test_one_chunk_is_one_list(run: Run) -> None:
    """The handler gets raw frames: kind, header, body, and decodes as much as it needs."""

    async def main() -> None:
        seen: list[list[RawFrame]] = []

        class Raw(EchoHandler):
            def frames_received(self, conn: Connection, frames: list[RawFrame]) -> None:
                seen.append(frames)
                conn.write(b"ok")

        async with serving(Raw()) as server, peer_of_server(server) as peer:
            await peer.send(Command(10, body=b"x"), Command(11))
            assert await peer.reader.readexactly(2) == b"ok"
            assert [(kind, body) for kind, _, body in seen[0]] == [(0, b"x"), (0, b"")]

    run(main())


def test_a_connection_is_authenticated_when_its_handler_says_so(run: Run) -> None:
    """Not by what it sends or takes."""

    class Asking(EchoHandler):
        def connection_made(self, conn: Connection) -> None:
            super().connection_made(conn)
            conn.authenticated = False

    async def main() -> None:
        handler = Asking()
        async with serving(handler) as server, peer_of_server(server) as peer:
            for _ in range(2):
                await peer.send(Command(10))
                await peer.command()
            assert not handler.made[0].authenticated
        plain = EchoHandler()
        async with serving(plain) as server, peer_of_server(server) as peer:
            await peer.send(Command(10))
            await peer.command()
            assert plain.made[0].authenticated, "nobody asks"

    run(main())
