"""Group commit: waiting requests are answered once the log is on disk; each of them is answered."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support import run, until

from sparrowmq.broker.base import flushing as module
from sparrowmq.broker.base.flushing import Flusher
from sparrowmq.core.errors import StoreBusyError, StoreError


class Disk:
    """A store whose flushes can be held back or made to fail."""

    def __init__(self) -> None:
        self.flushed_position = 0
        self.written = 0
        self.flushes = 0
        self.gate = threading.Event()
        self.gate.set()
        self.error: Exception | None = None

    def flush(self) -> int:
        position = self.written
        self.gate.wait(10)
        self.flushes += 1
        if self.error is not None:
            raise self.error
        self.flushed_position = position
        return position

    def flush_queues(self) -> None:
        """Do nothing."""


def flusher(disk: Any, pool: ThreadPoolExecutor, *, sync: bool = True, timeout: float = 5.0) -> Flusher:
    return Flusher(disk, pool, sync=sync, interval=0.01, timeout=timeout, queue_interval=60.0)


def test_one_flush_releases_all_waiting_requests() -> None:
    disk, done = Disk(), list[tuple[int, bool]]()

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            flush = flusher(disk, pool)
            flush.start()
            disk.gate.clear()
            for position in range(1, 6):
                disk.written = position
                flush.after(position, lambda ok, at=position: done.append((at, ok)))
            assert done == []
            disk.gate.set()
            await until(lambda: len(done) == 5)
            assert disk.flushes <= 2
            await flush.close()

    run(scenario())
    assert done == [(n, True) for n in range(1, 6)]


@pytest.mark.parametrize("error", [StoreError("the disk is gone"), ZeroDivisionError("a fault of ours")])
def test_failed_flush_releases_with_false_and_is_remembered(error: Exception) -> None:
    disk, done = Disk(), list[bool]()
    disk.error = error

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            flush = flusher(disk, pool)
            flush.start()
            disk.written = 1
            flush.after(1, done.append)
            await until(lambda: done)
            assert flush.failed is disk.error
            await flush.close()

    run(scenario())
    assert done == [False]


def test_error_while_answering_one_request_does_not_block_the_others() -> None:
    disk, done = Disk(), list[bool]()

    def broken(on_disk: bool) -> None:
        raise ZeroDivisionError("a fault of ours")

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            flush = flusher(disk, pool)
            flush.start()
            for callback in (broken, done.append):
                disk.written += 1
                flush.after(disk.written, callback)
            await until(lambda: done)
            disk.written += 1
            flush.after(disk.written, done.append)
            await until(lambda: len(done) == 2)
            await flush.close()

    run(scenario())
    assert done == [True, True]


def test_request_that_waits_too_long_is_released_with_false_and_notified_after_the_flush() -> None:
    disk, done = Disk(), list[bool]()

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            flush = flusher(disk, pool, timeout=0.0)
            flush.start()
            flush.after(1, done.append)  # no flush reaches it yet
            await until(lambda: done)
            assert done == [False]
            disk.written = 1
            await until(lambda: len(done) == 2)
            flush.after(2, done.append)
            await until(lambda: len(done) == 3)
            await flush.close()

    run(scenario())
    assert done == [False, True, False], "what is never flushed is not told again"


def test_close_flushes_the_rest_and_releases_all_requests() -> None:
    disk, done = Disk(), list[bool]()

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            flush = flusher(disk, pool)
            disk.written = 7
            flush.after(7, done.append)
            flush.after(8, done.append)
            await flush.close()

    run(scenario())
    assert disk.flushed_position == 7
    assert done == [True, False]


def test_async_flush_runs_periodically() -> None:
    disk = Disk()

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            flush = flusher(disk, pool, sync=False)
            flush.start()
            disk.written = 3
            await until(lambda: disk.flushed_position == 3)
            await flush.close()

    run(scenario())


def test_full_queue_of_waiting_requests_reports_busy(monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "WAITING_MAX", 2)
    disk = Disk()

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            flush = flusher(disk, pool)
            for _ in range(2):
                assert not flush.busy
                flush.after(1, lambda ok: None)
            assert flush.busy
            await flush.close()
            assert not flush.busy

    run(scenario())


def test_too_few_open_files_only_delay_the_flush(caplog: pytest.LogCaptureFixture) -> None:
    disk, done = Disk(), list[bool]()
    disk.error = StoreBusyError("Too many open files")

    async def scenario() -> None:
        with ThreadPoolExecutor(1) as pool:
            flush = flusher(disk, pool)
            flush.start()
            disk.written = 1
            flush.after(1, done.append)
            await until(lambda: disk.flushes >= 2)
            assert flush.failed is None
            disk.error = None
            await until(lambda: done)
            await flush.close()

    run(scenario())
    assert done == [True]
    assert [text for text in caplog.messages if "Too many open files" in text] == [
        "flushing the commit log failed; retrying: Too many open files"
    ]
