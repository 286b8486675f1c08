"""The loads that once stopped a broker for seconds, at their full size. The gate has smaller ones of each."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from resource import RLIMIT_NOFILE, getrlimit

import pytest
from tests.broker.rig import Rig, connection, send_command
from tests.conftest import LONG
from tests.hostile.entries import heartbeat, pull, topic_fields
from tests.hostile.shapes import ext
from tests.hostile.size import SMALL
from tests.hostile.wire import NO_CODE, Ask, Wire
from tests.hostile.world import PLAIN, World
from tests.stall_guard import sure_ms
from tests.support import run, until_sync

from sparrowmq.files import disk
from sparrowmq.protocol.codes import RequestCode as Code
from sparrowmq.protocol.codes import ResponseCode
from sparrowmq.protocol.frame import FLAG_ONEWAY, Command
from sparrowmq.runtime.child import ChildServers
from sparrowmq.store.index.index_file import CHAIN_MAX, LOOK_ENTRIES, IndexFile

pytestmark = pytest.mark.skipif(not LONG, reason="the full size, in the long tier")

STALL_SECONDS = 0.2
"""Processor time that one turn of the loop may take: four times what the pages promise."""
GROUPS = 60_000
GROUPS_OF_ONE = 1000
"""In one heartbeat, as consumers and as producers: all that it may have."""
CONNECTIONS = min(5000, getrlimit(RLIMIT_NOFILE)[0] // 5 - 100)
"""A server takes a fifth of its open files for connections."""
PULLS = 20
PINGS = 100
QUEUES = 1000
FSYNC_SECONDS = 0.01
ENTRIES = 600_000


@contextmanager
def broker(root: Path, **more: str) -> Iterator[World]:
    """A broker in a process of its own."""
    settings = {"listenPort": "0", "storePathRootDir": str(root), **more}
    with ChildServers(settings, nameserver={"listenPort": "0"}) as servers:
        yield World(PLAIN, servers.broker_address, SMALL)


def long_stalls(world: World) -> list[str]:
    """What kept the loop for longer than the bound."""
    _, last = world.stalls()
    return [one.sentence() for one in last if sure_ms(one) > 1000 * STALL_SECONDS]


@pytest.mark.timeout(600)
@pytest.mark.stalls(seconds=60, why="the test judges those while clients are served, not those of the stop")
def test_sixty_thousand_groups_of_one_client(tmp_path: Path) -> None:
    with broker(tmp_path, membersMax="1000000") as world:
        with world.wire() as wire:
            whole = beat(wire, heartbeat(world, "c", GROUPS, topics=0))
            assert whole.code != ResponseCode.SUCCESS
            for first in range(0, GROUPS, GROUPS_OF_ONE):
                answer = beat(wire, heartbeat(world, "c", GROUPS_OF_ONE, topics=0, first=first))
                assert answer.code == ResponseCode.SUCCESS, answer.remark
        with world.wire() as wire:  # the client has left all of its groups
            until_sync(lambda: not online(wire, f"H{GROUPS - 1:06}"))
        assert long_stalls(world) == []


def beat(wire: Wire, body: bytes) -> Command:
    """The answer to a heartbeat; the notices that its groups have a member come before it."""
    data, _ = wire.frames(Code.HEART_BEAT, [Ask(body=body)])
    assert wire.send(data)
    while found := wire.answers(1):  # until the server closes the connection
        if not found[0].flag & FLAG_ONEWAY:
            return found[0]
    raise AssertionError("the server closed the connection")


def online(wire: Wire, group: str) -> bool:
    """Whether a group has members."""
    answer = wire.ask(Code.GET_CONSUMER_CONNECTION_LIST, ext(consumerGroup=group))
    return answer.code == ResponseCode.SUCCESS


@pytest.mark.timeout(600)
@pytest.mark.stalls(seconds=60, why="the test judges those while clients are served, not those of the stop")
def test_five_thousand_connections_with_held_pulls_are_lost_at_once(tmp_path: Path) -> None:
    settings = {
        "connectionsMax": str(3 * CONNECTIONS),
        "connectionsPerAddressMax": str(2 * CONNECTIONS),
        "connectionMemoryMax": str(1 << 30),
    }
    with broker(tmp_path, **settings) as world, world.wire() as wire, ExitStack() as stack:
        made = wire.ask(Code.UPDATE_AND_CREATE_TOPIC, topic_fields("Held", PULLS))
        assert made.code == ResponseCode.SUCCESS, made.remark
        held = {**pull(world, topic="Held"), "sysFlag": "6", "suspendTimeoutMillis": "25000"}
        asks = [Ask({**held, "queueId": str(number)}) for number in range(PULLS)]
        lost = [stack.enter_context(world.wire()) for _ in range(CONNECTIONS)]
        for one in lost:
            assert one.send(one.frames(Code.PULL_MESSAGE, asks)[0])
            assert one.ask(NO_CODE).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "a pull is not held"
        for one in lost:
            one.socket.close()
        for _ in range(PINGS):
            wire.ping()
        assert long_stalls(world) == []


@pytest.mark.timeout(600)
def test_topic_is_deleted_while_a_thousand_queues_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig, sync_file, never = Rig(tmp_path), disk.sync_file, threading.Event()
    rig.make_topic("Gone", 1)
    rig.make_topic("Dirty", QUEUES)
    for topic, queues in (("Gone", 1), ("Dirty", QUEUES)):
        for number in range(queues):
            rig.sending.handle(connection(), send_command(topic=topic, queue_id=number))

    def slow(path: Path) -> None:
        never.wait(FSYNC_SECONDS)
        sync_file(path)

    monkeypatch.setattr(disk, "sync_file", slow)

    async def main() -> None:
        flush = asyncio.create_task(asyncio.to_thread(rig.store.flush_queues, safe_point=True))
        async with asyncio.timeout(QUEUES * FSYNC_SECONDS):
            assert await rig.deletions.topic("Gone")
        assert not flush.done(), "the flush is over: nothing was shown"
        await flush

    run(main())
    assert rig.store.find_queue("Gone", 0) is None
    rig.close()


def test_chain_of_six_hundred_thousand_entries_is_read_in_short_steps(tmp_path: Path) -> None:
    file = IndexFile.create(tmp_path / "1", 10, ENTRIES + 1, None)
    file.put([(7, number * 100, 1_700_000_000_000) for number in range(ENTRIES)])
    steps, longest, began = 0, 0.0, time.thread_time()
    for physical in file.find(17, 0, 1 << 62):
        if physical is None:
            ended = time.thread_time()
            steps, longest, began = steps + 1, max(longest, ended - began), ended
    assert steps == CHAIN_MAX // LOOK_ENTRIES
    assert longest < STALL_SECONDS
    file.unmap()
