"""One connection without a socket: what is written when, and how it notices that the other side is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.support import about, run, until
from tests.transport.helpers import answer_to

from sparrowmq.core.errors import ConnectionLostError, RequestTimeoutError
from sparrowmq.protocol.frame import Command, FrameReader, decode, encode
from sparrowmq.transport import client_connection as module
from sparrowmq.transport.client_connection import GATHER_BYTES_MAX, ClientConnection
from sparrowmq.transport.correlation import InFlight

FRAME_BYTES_MAX = 1 << 20


class Wire(asyncio.Transport):
    """Keeps what is written. Tells of its end only when `lose` is called."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []
        self.ends: list[str] = []
        self.high = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.high = high or 0

    def close(self) -> None:
        self.ends.append("close")

    def abort(self) -> None:
        self.ends.append("abort")

    def commands(self) -> list[Command]:
        return [decode(*raw) for raw in FrameReader().feed(b"".join(self.writes))]


class Owner:
    """The client's side."""

    def __init__(self) -> None:
        self.asked: list[Command] = []
        self.forgot: list[ClientConnection] = []

    def serve(self, connection: ClientConnection, request: Command) -> None:
        self.asked.append(request)

    def forget(self, connection: ClientConnection) -> None:
        self.forgot.append(connection)


class Line:
    """A connection, its owner, its wire."""

    def __init__(self) -> None:
        self.owner, self.wire, self.in_flight = Owner(), Wire(), InFlight(10)
        loop = asyncio.get_running_loop()
        self.connection = ClientConnection(
            self.owner, "10.0.0.1:10911", loop, self.in_flight, FRAME_BYTES_MAX
        )
        self.connection.connection_made(self.wire)

    def call(self, opaque: int, timeout: float = 20.0) -> asyncio.Future[Command]:
        assert self.in_flight.try_acquire()
        data = encode(Command(34, opaque))
        return self.connection.start_call(opaque, data, timeout, 34)

    def lose(self, error: Exception | None = None) -> None:
        self.connection.connection_lost(error)


def flow(test: Callable[[Line], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        line = Line()
        await test(line)
        line.connection.close("the test is over")
        line.lose()

    run(main())


def test_what_one_turn_of_the_loop_writes_goes_out_in_one_piece() -> None:
    async def test(line: Line) -> None:
        calls = [line.call(number) for number in range(3)]
        assert line.wire.writes == []
        await asyncio.sleep(0)
        assert len(line.wire.writes) == 1
        assert [command.opaque for command in line.wire.commands()] == [0, 1, 2]
        line.connection.write(b"x" * GATHER_BYTES_MAX)
        assert len(line.wire.writes) == 1
        line.connection.write(b"y")
        assert len(line.wire.writes) == 2, "so much is written before the turn ends"
        await asyncio.sleep(0)
        assert len(line.wire.writes) == 2
        assert line.wire.high == module.WRITE_HIGH_WATER
        assert not any(call.done() for call in calls)
        line.connection.data_received(b"".join(encode(answer_to(Command(34, n))) for n in (2, 0, 1)))
        assert [(await call).opaque for call in calls] == [0, 1, 2]
        assert line.in_flight.used == 0

    flow(test)


def test_server_requests_reach_the_owner_and_unexpected_responses_are_dropped() -> None:
    async def test(line: Line) -> None:
        line.connection.data_received(encode(Command(40, 5)) + encode(answer_to(Command(34, 99))))
        assert [(command.code, command.opaque) for command in line.owner.asked] == [(40, 5)]
        assert not line.connection.closed

    flow(test)


def test_bytes_that_are_no_frame_end_it(caplog: pytest.LogCaptureFixture) -> None:
    async def test(line: Line) -> None:
        call = line.call(1)
        line.connection.data_received(b"\xff" * 16)
        assert line.connection.closed
        assert line.wire.ends == ["close"]
        assert "closing the connection to 10.0.0.1:10911" in caplog.text
        with pytest.raises(ConnectionLostError, check=about(address="10.0.0.1:10911", value=34)):
            await call

    flow(test)


@pytest.mark.parametrize("by", ["the server takes bytes again", "it is closed"])
def test_callers_wait_while_the_server_takes_no_bytes(by: str) -> None:
    async def test(line: Line) -> None:
        connection = line.connection
        connection.pause_writing()
        assert connection.paused and "paused" in repr(connection)
        waiting = [asyncio.ensure_future(connection.resumed()) for _ in range(2)]
        await asyncio.sleep(0)
        assert not any(one.done() for one in waiting)
        waiting[0].cancel()
        await asyncio.sleep(0)
        if by == "it is closed":
            connection.close("enough")
        else:
            connection.resume_writing()
        assert not connection.paused
        await waiting[1]

    flow(test)


def test_closing_hands_over_what_was_written_and_fails_calls_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS_MAX", 0.01)

    async def test(line: Line) -> None:
        call = line.call(1)
        line.connection.close("the client leaves")
        line.connection.close("again")
        assert [command.opaque for command in line.wire.commands()] == [1]
        assert line.owner.forgot == [line.connection]
        with pytest.raises(ConnectionLostError, match="the client leaves"):
            await call
        line.connection.write(b"late")
        await asyncio.sleep(0)
        assert len(line.wire.writes) == 1
        assert line.wire.ends == ["close"]
        await until(lambda: line.wire.ends == ["close", "abort"])  # the server never took the bytes
        assert "closed, 0 outstanding" in repr(line.connection)

    flow(test)


def test_waiting_for_the_end_of_a_socket_that_does_not_end() -> None:
    async def test(line: Line) -> None:
        line.connection.close("enough")
        await line.connection.wait_closed(0.01)
        assert line.wire.ends == ["close", "abort"]
        line.lose()
        await line.connection.wait_closed(20)

    flow(test)


@pytest.mark.parametrize(
    ("error", "text"), [(None, "the server closed it"), (OSError("no route"), "no route")]
)
def test_a_loss_fails_calls_with_its_reason(error: Exception | None, text: str) -> None:
    async def test(line: Line) -> None:
        call = line.call(1)
        line.lose(error)
        with pytest.raises(ConnectionLostError, match=text):
            await call
        assert line.owner.forgot == [line.connection]
        assert line.in_flight.used == 0
        await line.connection.wait_closed(20)

    flow(test)


def test_idle_time_counts_from_the_first_look_without_traffic() -> None:
    async def test(line: Line) -> None:
        sweep = line.connection.sweep
        assert sweep(100.0) == 0.0
        assert sweep(130.0) == 30.0
        call = line.call(1)
        await asyncio.sleep(0)
        assert sweep(140.0) == 0.0
        assert sweep(150.0) == 0.0, "a call is outstanding"
        line.connection.data_received(encode(answer_to(Command(34, 1))))
        await call
        assert sweep(160.0) == 0.0
        assert sweep(175.0) == 15.0
        line.connection.data_received(b"")
        assert sweep(180.0) == 0.0

    flow(test)


@pytest.mark.proves("client:A-79")
def test_a_server_that_is_silent_while_calls_expire_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_SECONDS_MAX", 0.05)

    async def test(line: Line) -> None:
        first, second = line.call(1, 0.1), line.call(2)
        with pytest.raises(RequestTimeoutError):
            await first
        await until(lambda: line.connection.closed)
        with pytest.raises(ConnectionLostError, match=r"it was silent for 0\.05 s"):
            await second
        assert line.wire.ends == ["abort"]

    flow(test)


@pytest.mark.proves("client:A-79")
def test_one_slow_call_does_not_end_a_connection_that_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_SECONDS_MAX", 20.0)

    async def test(line: Line) -> None:
        slow = line.call(1, 0.01)
        line.connection.data_received(encode(answer_to(Command(34, 9))))
        with pytest.raises(RequestTimeoutError):
            await slow
        assert not line.connection.closed

    flow(test)
