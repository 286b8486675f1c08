from __future__ import annotations

import functools
import threading
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.support import run

from sparrowmq.client.callables import call, is_async


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
def test_what_gives_something_to_await_is_awaited_on_the_loop(function: Any) -> None:
    log: list[Any] = []
    run(call(function, log, 1))
    assert log == [(1, True)]


def test_what_is_seen_to_be_asynchronous() -> None:
    assert all(map(is_async, [work, Object(), Object().method, functools.partial(work)]))
    assert not any(map(is_async, [plain, gives, functools.partial(plain), print]))


def test_plain_functions_run_in_a_thread_and_raise_here() -> None:
    log: list[Any] = []
    run(call(plain, log, 2))
    assert log == [(2, False)]
    with pytest.raises(ZeroDivisionError):
        run(call(lambda: 1 // 0))


def test_the_pool_that_is_given_is_used() -> None:
    names: list[str] = []
    with ThreadPoolExecutor(1, thread_name_prefix="mine") as pool:
        run(call(lambda: names.append(threading.current_thread().name), pool=pool))
    assert names == ["mine_0"]
