"""How a server process has Python run: bounded collections, nothing that only the collector could free."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.broker.rig import pull_ext
from tests.support import run, until

from sparrowmq.core.settings.servers import BrokerSettings
from sparrowmq.protocol.bodies import ConsumerData, HeartbeatData, ProducerData
from sparrowmq.protocol.codes import RequestCode
from sparrowmq.protocol.filter import parse_tags
from sparrowmq.protocol.frame import Command, encode
from sparrowmq.runtime import interpreter as module
from sparrowmq.runtime import process
from sparrowmq.runtime.interpreter import FREEZE_SECONDS, SWITCH_SECONDS, THRESHOLDS, Interpreter
from sparrowmq.runtime.servers import Listening, LocalServers
from sparrowmq.transport.connection import Connection

CLIENTS = 20


class Node:
    """Something in a cycle with itself."""

    def __init__(self) -> None:
        self.me = self


class Clock:
    """Each look at it is `step` seconds later."""

    def __init__(self) -> None:
        self.now = self.step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def one(clock: Clock) -> Iterator[Interpreter]:
    one = Interpreter(clock=clock)
    one.begin()
    yield one
    one.end()


def test_what_survives_a_long_collection_is_not_looked_at_again(one: Interpreter, clock: Clock) -> None:
    gc.unfreeze()
    gc.collect()
    assert (one.frozen, gc.get_freeze_count()) == (0, 0)
    clock.step = FREEZE_SECONDS * 2
    gc.collect(1)
    assert one.frozen == 0
    kept = [Node() for _ in range(100)]
    gc.collect()
    assert one.frozen == 1 and gc.get_freeze_count() > len(kept)
    assert not any(type(found) is Node for found in gc.get_objects())


def test_frozen_objects_are_freed_when_unreferenced(one: Interpreter, clock: Clock) -> None:
    clock.step = FREEZE_SECONDS * 2
    node = Node()
    gone = weakref.ref(node)
    gc.collect()
    node.me = None  # type: ignore[assignment]
    del node
    assert one.frozen and gone() is None


def test_a_thaw_frees_cycles_that_were_frozen(one: Interpreter, clock: Clock) -> None:
    clock.step = FREEZE_SECONDS * 2
    node = Node()
    gone = weakref.ref(node)
    gc.collect()
    del node
    gc.collect()
    assert gone() is not None
    assert one.thaw() >= 1 and gone() is None and one.frozen == 0
    assert gc.get_freeze_count() > 0


def test_it_thaws_at_a_quiet_moment(one: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [False, True]
    thawed = asyncio.Event()

    async def is_quiet() -> bool:
        await asyncio.sleep(0)
        return moments.pop(0)

    def thaw() -> int:
        one.frozen = 0
        thawed.set()
        return 0

    async def scenario() -> None:
        monkeypatch.setattr(module, "_is_quiet", is_quiet)
        monkeypatch.setattr(one, "thaw", thaw)
        running = asyncio.create_task(one.run(period=0.01))
        await asyncio.sleep(0.05)
        assert len(moments) == 2  # nothing was frozen
        one.frozen = 1
        await asyncio.wait_for(thawed.wait(), 10)
        assert moments == []
        running.cancel()

    run(scenario())


def test_quiet_is_when_the_process_does_not_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5.0, 5.01, 5.01, 5.5])
    monkeypatch.setattr(module, "process_time", lambda: next(times))
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(module, "asyncio", SimpleNamespace(sleep=sleep))  # others sleep on
    assert [run(module._is_quiet()), run(module._is_quiet())] == [True, False]
    assert slept == [1, 1]


def test_servers_run_by_it_and_leave_all_as_it_was(tmp_path: Path) -> None:
    before = gc.get_threshold(), sys.getswitchinterval(), [*gc.callbacks]
    seen: list[object] = []

    async def scenario() -> None:
        stop = asyncio.Event()

        async def beside(_: Listening) -> None:
            seen.extend((gc.get_threshold(), round(sys.getswitchinterval(), 6), gc.get_freeze_count() > 0))
            stop.set()

        settings = BrokerSettings(
            store_path_root_dir=tmp_path,
            listen_port=0,
            mapped_file_size_commit_log=1 << 20,
            max_hash_slot_num=100,
            max_index_num=400,
        )
        await process.serve(LocalServers(None, settings), stop, lambda _: None, beside)

    run(scenario())
    assert seen == [THRESHOLDS, SWITCH_SECONDS, True]
    assert (gc.get_threshold(), sys.getswitchinterval(), gc.callbacks) == before
    assert gc.get_freeze_count() == 0


def test_clients_that_left_need_no_collector(tmp_path: Path) -> None:
    """With members, held pulls and lost connections: what was frozen while they were there is freed."""

    others = {id(one) for one in gc.get_objects() if type(one) is Connection}  # of servers of other tests

    def connections() -> int:
        gc.unfreeze()
        found = sum(type(one) is Connection and id(one) not in others for one in gc.get_objects())
        gc.freeze()
        return found

    async def client(port: int, number: int) -> asyncio.StreamWriter:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        consumer = ConsumerData(f"g{number}", subscriptions=(parse_tags("SELF_TEST_TOPIC", "*", 1),))
        beat = HeartbeatData(f"c{number}", (ProducerData(f"p{number}"),), (consumer,))
        writer.write(encode(Command(RequestCode.HEART_BEAT, 1, body=beat.encode())))
        pull = {**pull_ext(), "topic": "SELF_TEST_TOPIC", "consumerGroup": f"g{number}", "queueOffset": "0"}
        held = {**pull, "sysFlag": "2", "suspendTimeoutMillis": "20000"}
        writer.write(encode(Command(RequestCode.PULL_MESSAGE, 2, ext=held)))
        await writer.drain()
        return writer

    async def scenario() -> None:
        settings = BrokerSettings(
            store_path_root_dir=tmp_path,
            listen_port=0,
            mapped_file_size_commit_log=1 << 20,
            max_hash_slot_num=100,
            max_index_num=400,
        )
        servers = LocalServers(None, settings)
        listening = await servers.start()
        assert listening.broker is not None
        port = int(listening.broker.rpartition(":")[2])
        try:
            writers = [await client(port, number) for number in range(CLIENTS)]
            await until(lambda: connections() == CLIENTS)
            await asyncio.sleep(0.2)
            for number, writer in enumerate(writers):
                if number % 2:
                    writer.transport.abort()
                else:
                    writer.close()
            await until(lambda: connections() == 0)
        finally:
            await servers.close()

    gc.collect()
    gc.disable()
    try:
        run(scenario())
    finally:
        gc.enable()
        gc.unfreeze()
