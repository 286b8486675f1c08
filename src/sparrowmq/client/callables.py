"""Calling what applications give: a coroutine function on the loop, a plain function in a thread."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await: `async def`, also as the `__call__` of an object."""
    method = getattr(function, "__call__", None)  # noqa: B004 - the method itself is looked at
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(method)


async def call(
    function: Callable[..., Awaitable[None] | None], *arguments: Any, pool: Executor | None = None
) -> None:
    """Call it and wait for the end; raises what it raises.

    A plain function runs in `pool`, by default the loop's own; what it returns is awaited if it can be.
    """
    if is_async(function):
        outcome = function(*arguments)
    else:
        outcome = await asyncio.get_running_loop().run_in_executor(pool, function, *arguments)
    if inspect.isawaitable(outcome):
        await outcome
