"""A broker whose store is in recovery: it says so, its loop answers, and it can be stopped."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.broker.test_server import settings
from tests.store.damage import crashed, forget_progress
from tests.store.rig import LOG_BYTES, fill, opened
from tests.support import run, until

from sparrowmq.broker.parts import BrokerParts
from sparrowmq.broker.server import Broker
from sparrowmq.core.errors import StoreError
from sparrowmq.store.message_store import MessageStore
from sparrowmq.store.recovery.dispatch import EntryDispatcher

COUNT = 100
SMALL = {"mapped_file_size_commit_log": LOG_BYTES, "mapped_file_size_consume_queue": 200}


class Held:
    """Recovery that waits before the record at `count` until `go`; `threads` are those that it ran in."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.is_reached = False
        self.threads: set[int] = set()
        self.go = threading.Event()


@contextmanager
def held(patch: pytest.MonkeyPatch, count: int) -> Iterator[Held]:
    one, visit, seen = Held(count), EntryDispatcher.visit, 0

    def waits(dispatcher: EntryDispatcher, *record: Any) -> None:
        nonlocal seen
        seen += 1
        one.threads.add(threading.get_ident())
        if seen == one.count:
            one.is_reached = True
            assert one.go.wait(60)
        visit(dispatcher, *record)

    with patch.context() as inner:
        inner.setattr(EntryDispatcher, "visit", waits)
        try:
            yield one
        finally:
            one.go.set()


def unread(root: Path) -> dict[str, int]:
    """Make a store whose process died, and which has to be read from the start; its sizes of files."""
    with opened(root) as store:
        fill(store, store.queue("TopicTest", 0), COUNT)
    crashed(root)
    forget_progress(root)
    return SMALL


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Such a store."""
    unread(tmp_path)
    return tmp_path


def test_operators_see_how_far_recovery_is(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        broker = Broker(settings(root, **SMALL))
        with held(monkeypatch, 60) as recovery:
            starting = asyncio.create_task(broker.start())
            await until(lambda: recovery.is_reached)
            files = len(list((root / "commitlog").iterdir()))
            assert broker.operated.faults() == []
            assert broker.operated.lacks() == [f"recovering: 1 of {files} log files"]
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            assert await asyncio.wait_for(reader.read(), 30) == b"", "clients are to connect again"
            writer.close()
            recovery.go.set()
            await starting
        assert threading.get_ident() not in recovery.threads
        assert broker.operated.lacks() == []
        queue = broker.parts.store.find_queue("TopicTest", 0)
        assert queue is not None and queue.max_offset == COUNT
        await broker.close()

    run(main())


@pytest.mark.parametrize("way", ["cancelled", "closed"])
def test_stop_during_recovery_ends_it(root: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    async def main() -> None:
        broker = Broker(settings(root, **SMALL))
        with held(monkeypatch, 60) as recovery:
            starting = asyncio.create_task(broker.start())
            await until(lambda: recovery.is_reached)
            if way == "cancelled":
                starting.cancel()
                await asyncio.sleep(0)
            else:
                await broker.close()
            recovery.go.set()
            with pytest.raises((asyncio.CancelledError, StoreError)) as caught:
                await starting
        assert isinstance(caught.value, StoreError) == (way == "closed")
        assert broker.port == 0 and (root / "abort").exists(), "the next start recovers"
        again = Broker(settings(root, **SMALL))
        await again.start()
        queue = again.parts.store.find_queue("TopicTest", 0)
        assert queue is not None and queue.max_offset == COUNT
        await again.close()

    run(main())


@pytest.mark.parametrize("what", ["start", "change of the role"])
def test_store_that_opens_too_late_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The stop comes when the thread has opened the store and cannot be stopped any more."""
    is_open, go, begin = threading.Event(), threading.Event(), MessageStore._begin

    def late(store: MessageStore) -> None:
        begin(store)
        is_open.set()
        assert go.wait(60)

    async def main() -> None:
        broker = Broker(settings(tmp_path))
        if what != "start":
            await broker.start()
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "_begin", late)
            if what == "start":
                ending = asyncio.create_task(broker.start())
                await until(is_open.is_set)
                ending.cancel()
            else:
                broker._role_changes(None)
                await until(is_open.is_set)
                ending = asyncio.create_task(broker.close())
                await until(lambda: broker.port == 0)
            go.set()
            await asyncio.wait([ending])
        assert ending.cancelled() == (what == "start")
        assert not (tmp_path / "abort").exists()
        again = Broker(settings(tmp_path))
        await again.start()
        await again.close()

    run(main())


def open_files(root: Path) -> list[str]:
    """The files of this directory that this process has open."""
    paths = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
    return [path for path in paths if path.startswith(str(root))]


def test_parts_are_made_in_the_thread_and_closed_by_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read the tables of a broker with many topics takes seconds."""
    is_made, go, make = threading.Event(), threading.Event(), BrokerParts._make_requests
    threads: set[int] = set()

    def late(parts: BrokerParts) -> None:
        make(parts)
        threads.add(threading.get_ident())
        is_made.set()
        assert go.wait(60)

    async def main() -> None:
        broker = Broker(settings(tmp_path))
        with monkeypatch.context() as patch:
            patch.setattr(BrokerParts, "_make_requests", late)
            starting = asyncio.create_task(broker.start())
            await until(is_made.is_set)
            assert broker.operated.lacks() == ["it reads its tables"]
            starting.cancel()
            await asyncio.sleep(0)
            go.set()
            await asyncio.wait([starting])
        assert starting.cancelled()
        assert not (tmp_path / "abort").exists()
        assert not open_files(tmp_path)
        again = Broker(settings(tmp_path))
        await again.start()
        await again.close()

    run(main())
    assert threading.get_ident() not in threads


def test_close_while_the_last_role_ends_opens_no_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop need not wait for a recovery that has not begun."""
    begun: list[MessageStore] = []

    async def main() -> None:
        broker = Broker(settings(tmp_path))
        await broker.start()
        with monkeypatch.context() as patch:
            patch.setattr(MessageStore, "_begin", begun.append)
            broker._role_changes(None)
            await asyncio.sleep(0)
            await broker.close()
        assert begun == []
        assert not (tmp_path / "abort").exists()

    run(main())
