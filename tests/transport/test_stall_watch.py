"""The watch finds what holds a loop, says what it was, and costs a loop that is free nothing."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support import until
from tests.transport.helpers import Peer, peer_of_server, serving

from sparrowmq.core.stalls import Stall
from sparrowmq.loops import event_loop as loops
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.frame import Command
from sparrowmq.transport.connection import Connection
from sparrowmq.transport.dispatch import CommandHandler, Handler
from sparrowmq.transport.occasional import FIELDS
from sparrowmq.transport.server import Server
from sparrowmq.transport.stall_names import thread_frames
from sparrowmq.transport.stall_watch import STALLS_FILE, watch_of
from sparrowmq.transport.turns import turns_of

pytestmark = pytest.mark.stalls(seconds=10, why="the tests of the watch stall loops")
HELD = 0.15
"""Seconds a loop is held by what the tests do: three times what is noted."""

Runner = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Runner:
    return asyncio.run if request.param == "asyncio" else loops.run


def block() -> None:
    time.sleep(HELD)


def hold(conn: Connection, request: Command) -> Command:
    block()
    return Command(0)


async def hold_later(conn: Connection, request: Command) -> Command:
    await asyncio.sleep(0.01)
    block()
    return Command(0)


def compute(conn: Connection, request: Command) -> Command:
    """Computes in one call of C, which lets no other thread run."""
    began = time.thread_time()
    while time.thread_time() - began < HELD:
        sum(range(1_000_000))
    return Command(0)


HANDLERS: dict[int, Handler[Connection]] = {
    RequestCode.HEART_BEAT: hold,
    RequestCode.PULL_MESSAGE: compute,
    RequestCode.GET_MAX_OFFSET: hold_later,
    RequestCode.GET_MIN_OFFSET: lambda conn, request: Command(0),
}


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[Server, Peer]]:
    async with serving(CommandHandler(HANDLERS)) as server, peer_of_server(server) as peer:
        server.begin_watch()
        await asyncio.sleep(0.06)  # some beats
        yield server, peer


async def stall_of(server: Server, peer: Peer, *codes: int) -> Stall:
    await peer.send(*(Command(code, opaque=number) for number, code in enumerate(codes)))
    for _ in codes:
        await peer.command()
    await until(lambda: server.watch.book.count)
    return server.watch.book.last[-1]


def test_a_request_that_holds_the_loop_is_named(run: Runner, caplog: pytest.LogCaptureFixture) -> None:
    async def named() -> None:
        async with watched() as (server, peer):
            found = await stall_of(server, peer, RequestCode.HEART_BEAT)
            assert found.what == "HEART_BEAT"
            (conn,) = server.connections
            assert found.client == conn.address
            assert found.wall_ms >= 1000 * HELD
            assert found.where[0].startswith("tests/transport/test_stall_watch.py:")
            assert found.where[1].endswith(" hold")
            assert server.watch.book.count == 1, "the beat of the same turn is not another stall"

    with caplog.at_level(logging.WARNING, "sparrowmq.stalls"):
        run(named())
    (line,) = [one.getMessage() for one in caplog.records if one.name == "sparrowmq.stalls"]
    assert "HEART_BEAT from 127.0.0.1:" in line and "test_stall_watch.py" in line


def test_a_stall_leads_to_the_messages_and_the_trace(run: Runner, caplog: pytest.LogCaptureFixture) -> None:
    own = "UNIQ_KEY\x01AC10\x02traceparent\x0100-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\x02"

    async def main() -> None:
        async with watched() as (server, peer):
            await peer.send(Command(RequestCode.HEART_BEAT, opaque=77, ext={"i": own}))
            await peer.command()
            await until(lambda: server.watch.book.count)
            found = server.watch.book.last[-1]
            assert found.ids == "number 77, message AC10, trace 4bf92f3577b34da6a3ce929d0e0e4736"
            assert Stall.from_dict(found.to_dict()) == found

    with caplog.at_level(logging.WARNING, "sparrowmq.stalls"):
        run(main())
    (line,) = [one for one in caplog.records if one.name == "sparrowmq.stalls"]
    assert line.getMessage().endswith("; number 77, message AC10, trace 4bf92f3577b34da6a3ce929d0e0e4736")
    ids = {"number": 77, "message_ids": ("AC10",), "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736"}
    assert getattr(line, FIELDS) == ids


def test_all_requests_of_a_chunk_are_named(run: Runner) -> None:
    async def main() -> None:
        async with watched() as (server, peer):
            codes = [RequestCode.GET_MIN_OFFSET, RequestCode.HEART_BEAT, RequestCode.GET_MIN_OFFSET]
            assert (await stall_of(server, peer, *codes)).what == "GET_MIN_OFFSET x2, HEART_BEAT"

    run(main())


def test_computing_is_told_from_waiting(run: Runner) -> None:
    async def main() -> None:
        async with watched() as (server, peer):
            found = await stall_of(server, peer, RequestCode.PULL_MESSAGE)
            assert found.what == "PULL_MESSAGE"
            assert found.cpu_ms >= 900 * HELD
            assert found.own_ms >= found.cpu_ms - 1
            found = await stall_of(server, peer, RequestCode.HEART_BEAT)
            await until(lambda: server.watch.book.count == 2)
            assert server.watch.book.last[-1].cpu_ms < 500 * HELD

    run(main())


def test_a_handler_that_goes_on_later_is_named(run: Runner) -> None:
    async def main() -> None:
        async with watched() as (server, peer):
            found = await stall_of(server, peer, RequestCode.GET_MAX_OFFSET)
            assert found.what.startswith("GET_MAX_OFFSET (30) of 127.0.0.1:")
            assert found.where[1].endswith(" hold_later")

    run(main())


def test_tasks_and_callbacks_are_named(run: Runner) -> None:
    async def upkeep() -> None:
        block()

    async def main() -> None:
        async with watched() as (server, _):
            book = server.watch.book
            await asyncio.create_task(upkeep(), name="saving offsets")
            await until(lambda: book.count == 1)
            await asyncio.create_task(upkeep())
            await until(lambda: book.count == 2)
            asyncio.get_running_loop().call_soon(time.sleep, HELD)
            await until(lambda: book.count == 3)
            assert [one.what for one in book.last][:2] == [
                "saving offsets",
                "test_tasks_and_callbacks_are_named.<locals>.upkeep",
            ]
            assert book.last[0].where[1].endswith(" upkeep")
            assert all(one.client == "" for one in book.last)

    run(main())


def test_many_short_chunks_in_one_turn_are_a_stall(run: Runner) -> None:
    """Each takes less than what is noted, and all clients wait for all of them."""

    def short(conn: Connection, request: Command) -> Command:
        time.sleep(HELD / 10)
        return Command(0)

    async def main() -> None:
        handler = CommandHandler({RequestCode.HEART_BEAT: short})
        turns_of(asyncio.get_running_loop()).seconds = 60.0  # else they would not be in one turn
        async with serving(handler) as server:
            server.begin_watch()
            peers = [Peer(*await asyncio.open_connection(server.host, server.port)) for _ in range(20)]
            await asyncio.sleep(0.06)
            for peer in peers:
                await peer.send(Command(RequestCode.HEART_BEAT))
            for peer in peers:
                await peer.command()
            await until(lambda: server.watch.book.count)
            assert server.watch.book.last[0].what.endswith(" chunks of HEART_BEAT")
            for peer in peers:
                await peer.close()

    run(main())


def test_lost_connections_are_named(run: Runner) -> None:
    async def main() -> None:
        handler = CommandHandler({}, on_connection_lost=lambda conn: time.sleep(HELD))
        async with serving(handler) as server:
            server.begin_watch()
            async with peer_of_server(server):
                await until(lambda: server.connections)
            await until(lambda: server.watch.book.count)
            assert server.watch.book.last[0].what == "connection lost"

    run(main())


def test_a_loop_that_is_free_has_no_stall(run: Runner) -> None:
    async def main() -> None:
        async with watched() as (server, peer):
            for number in range(50):
                await peer.send(Command(RequestCode.GET_MIN_OFFSET, opaque=number))
                await peer.command()
                await asyncio.sleep(0.005)
            assert [one for one in server.watch.book.last if one.cpu_ms > 25] == []

    run(main())


def test_the_thread_ends_with_the_last_server() -> None:
    def threads() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name == "sparrow-stalls"]

    async def main() -> None:
        async with serving(CommandHandler({})) as first, serving(CommandHandler({})) as second:
            first.begin_watch()
            second.begin_watch()
            assert first.watch is second.watch
            assert threads() == ["sparrow-stalls"]
            await first.close()
            assert threads() == ["sparrow-stalls"]
            await second.close()
            assert threads() == []

    before = threads()
    if not before:
        asyncio.run(main())
    gc.collect()
    assert threads() == before


def test_a_loop_that_was_closed_under_its_server_is_forgotten() -> None:
    async def main() -> None:
        watch_of(asyncio.get_running_loop()).hold()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    time.sleep(0.1)  # nothing runs it, and that is nobody's fault
    watch = watch_of(loop)
    loop.run_until_complete(asyncio.sleep(0.05))
    assert watch.book.count == 0
    loop.close()
    deadline = time.monotonic() + 20
    while watch.is_watched:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_stalls_are_added_to_a_file(
    run: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with watched() as (server, peer):
            await stall_of(server, peer, RequestCode.HEART_BEAT)

    path = tmp_path / "stalls"
    monkeypatch.setenv(STALLS_FILE, str(path))
    run(main())
    (line,) = path.read_text().splitlines()
    assert Stall.from_dict(json.loads(line)).what == "HEART_BEAT"
    monkeypatch.setenv(STALLS_FILE, str(tmp_path / "none" / "stalls"))
    run(main())
    assert "cannot be written" in caplog.text


COLLECTS_THREAD_LOCALS = """
import gc, threading
from sparrowmq.transport import stall_names

class Cycle:
    pass

class Littered:  # garbage is left just before the threads are looked at
    def __enter__(self):
        gc.disable()
        one = Cycle()
        one.me, one.local = one, threading.local()
        one.local.x = 1
        gc.enable()

    def __exit__(self, *error):
        pass

stall_names._LOOKING = Littered()
gc.set_threshold(1)
for _ in range(100):
    assert threading.get_ident() in stall_names.thread_frames() and gc.isenabled()
"""


def test_garbage_with_thread_locals_does_not_hang_who_looks_at_the_threads() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTS_THREAD_LOCALS], timeout=60, check=False, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_collector_that_is_off_stays_off() -> None:
    before = gc.isenabled()
    gc.disable()
    try:
        assert threading.get_ident() in thread_frames()
        assert not gc.isenabled()
    finally:
        if before:
            gc.enable()
