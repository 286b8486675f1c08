from __future__ import annotations

import asyncio
import logging

import pytest
from tests.support import run, until

from sparrowmq.client.base.tasks import TaskGroup, run_every
from sparrowmq.core.errors import ConnectError


def test_periodic_work_survives_every_exception(caplog: pytest.LogCaptureFixture) -> None:
    calls = 0

    async def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectError("not there")
        if calls == 2:
            raise ZeroDivisionError("a fault")

    async def main() -> None:
        task = asyncio.create_task(run_every(0.001, work, sleep=asyncio.sleep, first=0, name="asking"))
        await until(lambda: calls >= 4)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()

    with caplog.at_level(logging.WARNING, "sparrowmq.client"):
        run(main())
    assert "asking failed; retrying in 0.001 s: not there" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_first_run_may_come_sooner() -> None:
    async def main() -> None:
        ran = asyncio.Event()

        async def work() -> None:
            ran.set()

        task = asyncio.create_task(run_every(3600, work, sleep=asyncio.sleep, first=0))
        await until(ran.is_set)
        assert not task.done()
        task.cancel()

    run(main())


def test_dead_task_is_reported_with_name_and_error() -> None:
    deaths: list[tuple[str, BaseException]] = []

    async def main() -> None:
        group = TaskGroup(lambda name, error: deaths.append((name, error)))

        async def dies() -> None:
            raise KeyError("x")

        async def ends() -> None:
            pass

        async def stays() -> None:
            await asyncio.sleep(3600)

        group.start(dies(), "dies")
        group.start(ends(), "ends")
        staying = group.start(stays(), "stays")
        await until(lambda: len(group) == 1)
        await group.close()
        assert staying.cancelled()

    run(main())
    ((name, error),) = deaths
    assert name == "dies"
    assert isinstance(error, KeyError)


def test_task_may_close_its_own_group() -> None:
    async def main() -> None:
        group = TaskGroup(lambda name, error: None)
        await group.start(group.close(), "closes")
        assert len(group) == 0

    run(main())


@pytest.mark.proves("client:A-96")
def test_task_that_misses_its_cancellation_is_cancelled_again() -> None:
    async def main() -> None:
        group = TaskGroup(lambda name, error: None)
        missed = asyncio.Event()

        async def misses_one() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                missed.set()
            await asyncio.sleep(3600)

        group.start(misses_one(), "work")
        await asyncio.sleep(0)
        await group.close()
        assert missed.is_set()
        assert len(group) == 0

    run(main())


def test_closing_is_bounded_when_a_task_does_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sparrowmq.client.base.tasks._CANCEL_SECONDS", 0.01)

    async def main() -> None:
        group = TaskGroup(lambda name, error: None)
        go = asyncio.Event()

        async def goes_on() -> None:
            while not go.is_set():
                try:
                    await go.wait()
                except asyncio.CancelledError:
                    pass

        task = group.start(goes_on(), "stubborn")
        await asyncio.sleep(0)
        with caplog.at_level(logging.WARNING, "sparrowmq.client"):
            await group.close()
        assert "abandoned: stubborn" in caplog.text
        go.set()
        await task

    run(main())
