"""What a server keeps for all its clients together: answers not taken, requests in part or waiting."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
from tests.support import about, until
from tests.transport.conftest import Run
from tests.transport.helpers import Peer, peer_of_server, serving

from sparrowmq.core.errors import InvariantError, NoRoomError
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_RESPONSE, Command, encode
from sparrowmq.transport import account
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.dispatch import CommandHandler
from sparrowmq.transport.server import Server

MIB = 1024 * 1024
BIG, SMALL, LATER = 33, 31, 320
WRITE_HIGH_WATER = 256 * 1024


class Rig:
    """A server whose requests give an answer of 1 MiB (33), a small one (31), or wait (320)."""

    def __init__(self) -> None:
        self.made: list[Connection] = []
        self.asked: list[int] = []
        self.go_on = asyncio.Event()
        self.handler = CommandHandler(
            {BIG: self.big, SMALL: self.small, LATER: self.later}, on_connection_made=self.made.append
        )

    def big(self, conn: Connection, request: Command) -> Command:
        self.asked.append(request.opaque)
        return Command(0, flag=FLAG_RESPONSE, body=bytes(MIB))

    def small(self, conn: Connection, request: Command) -> Command:
        return Command(0, flag=FLAG_RESPONSE, body=b"%d" % len(request.body))

    async def later(self, conn: Connection, request: Command) -> Command:
        await self.go_on.wait()
        return Command(0, flag=FLAG_RESPONSE)


async def ask(peer: Peer, code: int, opaque: int = 1, body: bytes = b"") -> Command:
    await peer.send(Command(code, opaque, body=body))
    return await peer.command()


async def join(stack: AsyncExitStack, server: Server, rig: Rig) -> tuple[Peer, Connection]:
    count = len(rig.made)
    peer = await stack.enter_async_context(peer_of_server(server))
    await until(lambda: len(rig.made) > count)
    return peer, rig.made[-1]


def partial(size: int, short: int = 1) -> tuple[bytes, bytes]:
    """A request with a body of `size` bytes in two pieces, the second of `short` bytes."""
    whole = encode(Command(SMALL, 7, body=bytes(size)))
    return whole[:-short], whole[-short:]


def test_requests_of_one_read_wait_until_the_client_takes_its_answers(run: Run) -> None:
    async def main() -> None:
        rig = Rig()
        async with (
            serving(rig.handler, write_high_water=WRITE_HIGH_WATER) as server,
            peer_of_server(server) as other,
            peer_of_server(server) as peer,
        ):
            await peer.send(*(Command(BIG, opaque) for opaque in range(200)))
            await until(lambda: any("paused" in repr(conn) for conn in rig.made))
            (conn,) = (conn for conn in rig.made if "paused" in repr(conn))
            assert (await ask(other, SMALL)).code == 0
            # What the sockets of both sides take is the system's.
            assert len(rig.asked) < 30
            assert conn.unsent_bytes <= WRITE_HIGH_WATER + 2 * MIB
            conn.debt.measure(conn)
            assert 0 < conn.debt.total <= 3 * MIB
            for opaque in range(200):
                answer = await peer.command()
                assert (answer.opaque, len(answer.body)) == (opaque, MIB)
            assert (await ask(peer, SMALL, 500)).opaque == 500
            await until(lambda: "open" in repr(conn))
            conn.debt.measure(conn)
            assert conn.debt.total == 0

    run(main())


def test_a_server_that_keeps_too_much_refuses_big_answers_and_gives_small_ones(run: Run) -> None:
    async def main() -> None:
        rig = Rig()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                serving(rig.handler, memory_max=8 * MIB, frame_bytes_max=2 * MIB)
            )
            for _ in range(10):
                peer, _ = await join(stack, server, rig)
                await peer.send_bytes(partial(900_000)[0])
            await until(lambda: server.account.full)
            innocent, _ = await join(stack, server, rig)
            refused = await ask(innocent, BIG)
            assert refused.code == ResponseCode.SYSTEM_BUSY
            assert refused.remark is not None
            assert "connectionMemoryMax" in refused.remark
            assert (await ask(innocent, SMALL)).code == 0

    run(main())


def test_who_keeps_a_full_server_waiting_is_closed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(account, "LOOK_SECONDS", 0.05)

    async def main() -> None:
        rig = Rig()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                serving(rig.handler, memory_max=4 * MIB, frame_bytes_max=MIB)
            )
            for _ in range(5):
                peer, _ = await join(stack, server, rig)
                await peer.send_bytes(partial(900_000)[0])
            await until(lambda: server.account.full)
            innocent, its_own = await join(stack, server, rig)
            assert (await ask(innocent, SMALL, body=bytes(1000))).code == 0
            await until(lambda: not server.account.full)
            assert sum(conn.closed for conn in rig.made) == 1
            assert not its_own.closed

    run(main())


def test_above_the_hard_limit_the_largest_debtor_goes_at_once(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        rig = Rig()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                serving(rig.handler, memory_max=4 * MIB, frame_bytes_max=MIB)
            )
            little, small_debtor = await join(stack, server, rig)
            await little.send_bytes(partial(100_000)[0])
            _, large_debtor = await join(stack, server, rig)
            while not large_debtor.closed:
                large_debtor.write(bytes(500_000))
                await asyncio.sleep(0)
            assert server.account.total <= server.account.limit
            await little.send_bytes(b"\0")
            assert (await little.command()).body == b"100000"
            assert not small_debtor.closed

    run(main())
    assert "and the limit is 4194304 (connectionMemoryMax)" in caplog.text


def test_large_requests_take_turns_when_there_is_no_room_for_all(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        account, "STALL_SECONDS", 600.0
    )  # each peer waits for its turn, on a slow machine long

    async def main() -> None:
        rig = Rig()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                serving(rig.handler, memory_max=8 * MIB, frame_bytes_max=4 * MIB)
            )
            joined = [await join(stack, server, rig) for _ in range(10)]
            first, rest = partial(3 * MIB, short=2 * MIB)
            for peer, _ in joined:
                await peer.send_bytes(first)
            sending = [asyncio.create_task(peer.send_bytes(rest)) for peer, _ in joined]
            answers = await asyncio.gather(*(peer.command() for peer, _ in joined))
            assert [answer.body for answer in answers] == [b"%d" % (3 * MIB)] * 10
            await asyncio.gather(*sending)
            assert not any(conn.closed for _, conn in joined)
            assert server.account.total < MIB

    run(main())


def test_strangers_share_a_small_bound(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        rig = Rig()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                serving(rig.handler, unauthenticated_memory_max=2 * MIB, frame_bytes_max=MIB)
            )
            known, its_own = await join(stack, server, rig)
            its_own.authenticated = True
            await known.send_bytes(partial(900_000)[0])
            joined = [await join(stack, server, rig) for _ in range(12)]
            for peer, conn in joined:
                conn.authenticated = False
                with suppress(OSError, RuntimeError):  # closed while it sends
                    await peer.send_bytes(partial(900_000)[0])
            await until(lambda: sum(conn.closed for _, conn in joined) >= 10)
            assert server.account.strangers <= 2 * MIB
            assert not its_own.closed
            newest, _ = joined[-1]
            await newest.send_bytes(b"\0")
            assert (await newest.command()).body == b"900000"
            await known.send_bytes(b"\0")
            assert (await known.command()).body == b"900000"

    run(main())
    assert "(unauthenticatedMemoryMax)" in caplog.text


def test_requests_that_wait_are_counted(run: Run) -> None:
    async def main() -> None:
        rig = Rig()
        async with serving(rig.handler, memory_max=4 * MIB) as server, peer_of_server(server) as peer:
            await peer.send(*(Command(LATER, opaque, body=bytes(MIB)) for opaque in range(3)))
            refused = await peer.command()
            assert (refused.opaque, refused.code) == (1, ResponseCode.SYSTEM_BUSY)
            assert (await peer.command()).opaque == 2
            assert server.account.charged == MIB + 2048
            rig.go_on.set()
            assert ((await peer.command()).code) == 0
            await until(lambda: server.account.charged == 0)

    run(main())


def test_a_client_that_is_behind_is_asked_and_told_nothing(run: Run) -> None:
    async def main() -> None:
        rig = Rig()
        async with serving(rig.handler, write_high_water=WRITE_HIGH_WATER) as server, peer_of_server(server):
            await until(lambda: rig.made)
            conn = rig.made[0]
            conn.write(bytes(20 * MIB))
            await until(lambda: "paused" in repr(conn))
            before = conn.unsent_bytes
            conn.notify(Command(40))
            with pytest.raises(NoRoomError, check=about(what="unsent")):
                await conn.call(Command(307), 5.0)
            assert conn.unsent_bytes <= before

    run(main())


def test_views_of_a_mapped_file_are_not_counted(run: Run) -> None:
    async def main() -> None:
        rig = Rig()
        async with serving(rig.handler) as server, peer_of_server(server):
            await until(lambda: rig.made)
            conn, view = rig.made[0], memoryview(bytes(10 * MIB))
            for _ in range(3):
                conn.write_parts((b"head", view), 4 + len(view))
            await until(lambda: conn.unsent_bytes > 0 and not conn._out)
            assert conn.debt.total < 100
            conn.write(bytes(5 * MIB))
            await until(lambda: not conn._out)
            assert 5 * MIB <= conn.debt.total < 5 * MIB + 100

    run(main())


def test_answers_in_many_pieces_are_few_marks(run: Run) -> None:
    async def main() -> None:
        rig = Rig()
        async with serving(rig.handler) as server, peer_of_server(server):
            await until(lambda: rig.made)
            conn: Any = rig.made[0]
            conn.write(bytes(15 * MIB))
            written = 15 * MIB
            for _ in range(1000):
                conn.write(bytes(1000))
                written += 1000
                await asyncio.sleep(0)
            assert len(conn.debt._marks) <= 2 * account.MARKS_MAX
            assert conn.debt.total <= written
            assert conn.debt.total >= conn.unsent_bytes
            conn.abort()
            await until(lambda: server.account.total == 0)
            assert not server.account.debtors

    run(main())


class Socket:
    """A debtor whose socket has `unsent` bytes to take."""

    def __init__(self, owed_to: account.MemoryAccount) -> None:
        self.debt = account.Debt(owed_to)
        self.unsent = 0
        self.reads = True

    def unsent_socket_bytes(self) -> int:
        return self.unsent

    def stop_for_room(self) -> None:
        self.reads = False

    def go_on_with_room(self) -> None:
        self.reads = True

    def close_for_debt(self, why: str) -> None:
        raise AssertionError(why)

    def wrote(self, size: int) -> None:
        self.unsent += size
        self.debt.wrote(self, size, size)  # type: ignore[arg-type]

    def takes(self, size: int) -> int:
        """What it owes after taking so much."""
        self.unsent -= size
        self.debt.measure(self)  # type: ignore[arg-type]
        return self.debt.total


def test_small_answers_are_noted_together_and_no_debt_is_lost() -> None:
    owed_to = account.MemoryAccount(8 * MIB, MIB, MIB)
    socket = Socket(owed_to)
    for _ in range(1000):
        socket.wrote(1000)
    assert len(socket.debt._marks) == 1_000_000 // account.MARK_BYTES
    assert socket.debt.total == owed_to.total == 1_000_000
    left = 1_000_000
    while left:
        before = socket.debt.progress
        left -= 100_000
        assert left <= socket.takes(100_000) < left + account.MARK_BYTES + 1000
        assert socket.debt.progress != before
    assert socket.debt.total == owed_to.total == 0


def test_who_takes_answers_as_they_come_owes_nothing_old() -> None:
    owed_to = account.MemoryAccount(8 * MIB, MIB, MIB)
    socket = Socket(owed_to)
    for _ in range(10_000):
        socket.wrote(1000)
        socket.unsent = 1000  # all but the newest is taken before the next comes
    assert owed_to.total <= 2 * account.MARK_BYTES
    assert socket.takes(0) == 1000
    assert socket.takes(1000) == 0


def test_answers_of_one_turn_above_the_limit_close_nobody_in_it() -> None:
    owed_to = account.MemoryAccount(MIB, MIB, MIB)
    socket = Socket(owed_to)
    socket.wrote(MIB // 2)
    for _ in range(2):
        socket.wrote(MIB)
    assert owed_to.total > owed_to.hard_limit
    assert socket.debt.due(owed_to.now()) == MIB // 2
    assert socket.debt.due(owed_to.now() + 1) == owed_to.total


def test_the_next_large_request_waits_until_complete_ones_are_handled() -> None:
    """Were it read before, the hard limit would be exceeded, and the largest debtor closed."""
    owed_to = account.MemoryAccount(8 * MIB, MIB, 4 * MIB)
    sockets = [Socket(owed_to) for _ in range(11)]
    for socket in sockets:
        bring(owed_to, socket, MIB)
    assert [socket.reads for socket in sockets] == [True] * 9 + [False] * 2
    (first,) = (socket for socket in sockets if socket is owed_to.reader)
    for _ in range(2):
        first.debt.set_partial(first, 4 * MIB)
        first.debt.set_partial(first, 0)
        first.debt.change(first, 4 * MIB)  # it is complete, and waits for its handler
        owed_to.completed(first)
        assert owed_to.reader is None
        first.debt.change(first, -4 * MIB)
        assert owed_to.reader is not None and owed_to.reader is not first
        assert owed_to.total <= owed_to.hard_limit
        (first,) = (socket for socket in sockets if socket is owed_to.reader)


def bring(owed_to: account.MemoryAccount, socket: Socket, size: int) -> None:
    """A part of a large request comes."""
    socket.debt.set_partial(socket, size)
    if owed_to.total > owed_to.limit:
        owed_to.brought(socket)


def test_no_more_is_released_than_was_charged() -> None:
    owed_to = account.MemoryAccount(8 * MIB, MIB, MIB)
    assert owed_to.charge(1000)
    owed_to.charge(-400)
    with pytest.raises(InvariantError):
        owed_to.charge(-601)
    assert owed_to.charged == 600
