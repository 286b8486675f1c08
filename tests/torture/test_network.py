"""Relays between processes: what is cut waits, what is torn ends, and each end has a name."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from tests.support import about, free_port, run, until

from sparrowmq.core.errors import ListenError
from sparrowmq.torture.network import CLIENTS, INSIDE, OUTSIDE, RelayedNetwork, Trouble, is_possible

pytestmark = pytest.mark.skipif(not is_possible(), reason="needs Linux and 127.0.0.2")

CHILD = """
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
peer.sendall(b"from the child")
sys.stdin.read()
"""


class Server:
    """Keeps what it gets, and answers each chunk with the same in capitals."""

    def __init__(self) -> None:
        self.got = b""
        self.ended = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                self.got += data
                writer.write(data.upper())
                await writer.drain()
        except OSError:
            pass
        finally:
            self.ended += 1
            writer.close()


class World:
    """A server called `server` behind a relay, and connections to it."""

    def __init__(self, network: RelayedNetwork, server: Server, port: int) -> None:
        self.network = network
        self.server = server
        self.port = port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(OUTSIDE, self.port)


@asynccontextmanager
async def world(pids: dict[int, str] | None = None) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        server, port = Server(), free_port()
        listening = await asyncio.start_server(server.serve, INSIDE, port)
        stack.callback(listening.close)
        network = RelayedNetwork(lambda: pids or {})
        await network.open("server", port)
        stack.push_async_callback(network.close)
        yield World(network, server, port)


def test_bytes_go_both_ways_until_the_end() -> None:
    async def scenario() -> None:
        async with world() as it:
            reader, writer = await it.connect()
            payload = os.urandom(300_000).hex().encode()
            writer.write(payload)
            writer.write_eof()
            assert await reader.read(-1) == payload.upper()
            assert it.server.got == payload
            await until(lambda: it.server.ended == 1)
            writer.close()

    run(scenario())


def test_what_is_cut_arrives_when_the_cut_ends() -> None:
    async def scenario() -> None:
        async with world() as it:
            reader, writer = await it.connect()
            writer.write(b"one")
            assert await reader.read(100) == b"ONE"
            cut = Trouble(target="server", is_cut=True)
            await it.network.trouble(cut)
            writer.write(b"two")
            other_reader, other_writer = await it.connect()
            other_writer.write(b"three")
            for _ in range(50):
                await asyncio.sleep(0)
            assert it.server.got == b"one"
            await it.network.end(cut)
            assert await reader.read(100) == b"TWO"
            assert await other_reader.read(100) == b"THREE"
            writer.close()
            other_writer.close()

    run(scenario())


def test_answers_may_be_cut_alone() -> None:
    async def scenario() -> None:
        async with world() as it:
            reader, writer = await it.connect()
            cut = Trouble(source="server", is_cut=True)
            await it.network.trouble(cut)
            writer.write(b"one")
            await until(lambda: it.server.got == b"one")
            answer = asyncio.create_task(reader.read(100))
            for _ in range(50):
                await asyncio.sleep(0)
            assert not answer.done()
            await it.network.end(cut)
            assert await answer == b"ONE"
            writer.close()

    run(scenario())


def test_a_request_of_a_client_that_gave_up_still_arrives() -> None:
    async def scenario() -> None:
        async with world() as it:
            cut = Trouble(target="server", is_cut=True)
            await it.network.trouble(cut)
            _, writer = await it.connect()
            writer.write(b"late")
            await writer.drain()
            writer.close()
            await writer.wait_closed()
            assert it.server.got == b""
            await it.network.end(cut)
            await until(lambda: it.server.got == b"late")

    run(scenario())


def test_what_is_slow_keeps_its_order() -> None:
    async def scenario() -> None:
        async with world() as it:
            reader, writer = await it.connect()
            await it.network.trouble(
                Trouble(target="server", delay=0.05), Trouble(source="server", delay=0.01)
            )
            for number in range(20):
                writer.write(b"<%d>" % number)
                await asyncio.sleep(0)
            writer.write_eof()
            assert await reader.read(-1) == b"".join(b"<%d>" % number for number in range(20))
            writer.close()

    run(scenario())


def test_a_torn_connection_ends_in_the_middle() -> None:
    async def scenario() -> None:
        async with world() as it:
            reader, writer = await it.connect()
            writer.write(b"one")
            assert await reader.read(100) == b"ONE"
            assert it.network.tear("nobody") == 0
            assert it.network.tear("server") == 1
            writer.write(b"12345678")
            try:
                assert await reader.read(100) == b""
            except ConnectionResetError:
                pass
            await until(lambda: it.server.ended == 1)
            assert it.server.got in (b"one", b"one1234")
            writer.close()

    run(scenario())


def test_troubles_concern_the_process_that_connected() -> None:
    async def scenario() -> None:
        pids: dict[int, str] = {}
        async with world(pids) as it:
            arguments = [sys.executable, "-c", CHILD, OUTSIDE, str(it.port)]
            cut = Trouble(source="child", target="server", is_cut=True)
            await it.network.trouble(cut)
            child = await asyncio.create_subprocess_exec(*arguments, stdin=subprocess.PIPE)
            pids[child.pid] = "child"
            reader, writer = await it.connect()
            await until(lambda: {one.source for one in it.network._connections} == {"child", CLIENTS})
            writer.write(b"one")
            assert await reader.read(100) == b"ONE"
            assert it.server.got == b"one"
            await it.network.end(cut)
            await until(lambda: it.server.got == b"onefrom the child")
            writer.close()
            await child.communicate(b"")

    run(scenario())


def test_a_server_that_does_not_listen_ends_the_connection() -> None:
    async def scenario() -> None:
        network = RelayedNetwork(dict)
        port = free_port()
        await network.open("nobody", port)
        try:
            reader, writer = await asyncio.open_connection(OUTSIDE, port)
            try:
                assert await reader.read(1) == b""
            except ConnectionResetError:
                pass
            writer.close()
            with pytest.raises(ListenError, check=about(address=f"{OUTSIDE}:{port}")):
                await network.open("nobody", port)
        finally:
            await network.close()

    run(scenario())
