"""Every test that uses sockets runs on asyncio's loop and on uvloop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sparrowmq.loops.event_loop import new_event_loop

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a coroutine on a new loop of the parameter's kind; loop faults nobody handled fail the test."""
    factory = asyncio.new_event_loop if request.param == "asyncio" else new_event_loop

    def run_it(main: Coroutine[Any, Any, Any]) -> Any:
        faults: list[dict[str, Any]] = []

        async def watched() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
            async with asyncio.timeout(60):
                return await main

        with asyncio.Runner(loop_factory=factory) as runner:
            result = runner.run(watched())
        assert faults == []
        return result

    return run_it
