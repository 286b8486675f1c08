from __future__ import annotations

import asyncio
import os
import threading

import pytest

from sparrowmq.spark import loop as module
from sparrowmq.spark.loop import LoopThread, loop_thread


async def _thread_name() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


def test_work_runs_on_the_loops_thread() -> None:
    loop = LoopThread()
    assert loop.run(_thread_name()) == "sparrowmq-spark"
    assert "running" in repr(loop)
    loop.stop()
    assert "stopped" in repr(loop)


def test_work_that_takes_too_long_is_cancelled() -> None:
    loop = LoopThread()
    cancelled = threading.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError):
        loop.run(work(), 0.01)
    assert cancelled.wait(10)
    loop.stop()


def test_stopping_cancels_what_runs() -> None:
    loop = LoopThread()
    running = loop.submit(asyncio.sleep(3600))
    loop.stop()
    assert running.cancelled()


def test_errors_come_back() -> None:
    async def work() -> None:
        raise KeyError("broken")

    loop = LoopThread()
    with pytest.raises(KeyError, match="broken"):
        loop.run(work())
    loop.stop()


def test_a_process_has_one_loop_and_a_child_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_current", None)
    first = loop_thread()
    assert loop_thread() is first
    monkeypatch.setattr(os, "getpid", lambda: first.pid + 1)
    second = loop_thread()
    assert second is not first
    assert second.pid == first.pid + 1
    monkeypatch.undo()
    first.stop()
    second.stop()
