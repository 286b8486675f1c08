from __future__ import annotations

import asyncio
import functools
import sys
import threading
from collections.abc import Awaitable
from typing import Any

import pytest
from tests.support import run

from sparrowmq.client.base.callables import CallThreads, call, is_async, kept


async def work(log: list[Any], value: object) -> None:
    log.append((value, threading.current_thread() is threading.main_thread()))


def plain(log: list[Any], value: object) -> None:
    log.append((value, threading.current_thread() is threading.main_thread()))


def gives(log: list[Any], value: object) -> Awaitable[None]:
    return work(log, value)


class Object:
    async def __call__(self, log: list[Any], value: object) -> None:
        await work(log, value)

    async def method(self, log: list[Any], value: object) -> None:
        await work(log, value)


@pytest.mark.parametrize(
    "function", [work, Object(), Object().method, functools.partial(work), gives, lambda a, b: work(a, b)]
)
def test_awaitable_results_are_awaited_on_the_loop(function: Any) -> None:
    log: list[Any] = []
    run(call(function, log, 1))
    assert log == [(1, True)]


def test_asynchronous_callables_are_recognised() -> None:
    assert all(map(is_async, [work, Object(), Object().method, functools.partial(work)]))
    assert not any(map(is_async, [plain, gives, functools.partial(plain), print]))


def test_plain_functions_run_in_a_thread_and_raise_in_the_caller() -> None:
    log: list[Any] = []
    run(call(plain, log, 2))
    assert log == [(2, False)]
    with pytest.raises(ZeroDivisionError):
        run(call(lambda: 1 // 0))


def test_given_threads_are_used() -> None:
    async def main() -> None:
        threads, names = CallThreads(1, "mine"), list[str]()
        await call(lambda: names.append(threading.current_thread().name), threads=threads)
        threads.close()
        assert names == ["mine-1"]

    run(main())


def test_endless_thread_does_not_keep_the_program_from_exiting() -> None:
    async def main() -> None:
        seen: list[threading.Thread] = []
        await call(lambda: seen.append(threading.current_thread()))
        assert seen[0].daemon
        seen[0].join(20)
        assert not seen[0].is_alive(), "a thread of its own ends with its call"

    run(main())


async def leave() -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("function", [leave, leave.__call__, lambda: leave(), lambda: sys.exit(3)])
def test_system_exit_in_a_function_is_treated_as_its_error(function: Any) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"it raised SystemExit\(3\)"):
            await call(function)
        await asyncio.sleep(0)  # the loop goes on

    run(main())


def test_exceptions_of_a_coroutine_are_kept_except_foreign_ones() -> None:
    odd = SystemExit(3)
    assert kept(odd) is odd
    for other in (KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError()):
        with pytest.raises(type(other)):
            kept(other)


def test_waiting_for_a_coroutine_can_be_cancelled() -> None:
    async def main() -> None:
        waiting = asyncio.create_task(call(asyncio.Event().wait))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(main())


def test_result_or_exception_of_a_called_function_is_kept() -> None:
    async def main() -> None:
        threads = CallThreads(2, "test")
        assert await threads.result(lambda: threading.current_thread().daemon)
        with pytest.raises(ZeroDivisionError):
            await threads.result(lambda: 1 // 0)
        with pytest.raises(RuntimeError, match=r"it raised SystemExit\(3\)"):
            await threads.result(functools.partial(sys.exit, 3))
        threads.close()

    run(main())


def test_cancelled_call_is_not_made() -> None:
    async def main() -> None:
        threads, go, calls = CallThreads(1, "test"), threading.Event(), list[int]()
        first = asyncio.create_task(threads.result(lambda: go.wait(20)))
        second = asyncio.create_task(threads.result(lambda: calls.append(2)))
        await asyncio.sleep(0)
        second.cancel()
        await asyncio.sleep(0)
        third = asyncio.create_task(threads.result(lambda: calls.append(3)))
        go.set()
        await asyncio.gather(first, third)
        assert second.cancelled()
        assert calls == [3]
        threads.close()

    run(main())
