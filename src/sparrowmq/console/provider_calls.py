"""Calls of the login provider, on threads of their own.

Anybody can start a login, and each waits for the provider. If these calls used the threads that answer all
other requests, a provider that does not answer would make the whole coordinator wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

from sparrowmq.core.errors import RefusedError

P = ParamSpec("P")
T = TypeVar("T")
THREADS: Final = 4
CALLS_MAX: Final = 32
"""Maximum number of calls that run or wait for a thread; further ones are refused."""
CALL_SECONDS: Final = 20.0
"""Time limit of a call, including its wait for a thread. One login asks the provider up to four times."""
RETRY_SECONDS: Final = 5


class ProviderCalls:
    """Runs blocking calls of the provider that is called `host`."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="sparrow-provider")
        self._open = 0

    def __repr__(self) -> str:
        return f"<ProviderCalls {self._open} of {CALLS_MAX}>"

    async def call(self, function: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
        """The result of a function. Raises its errors, and `RefusedError`: 503 when too many calls wait, 502
        after `CALL_SECONDS`.
        """
        if self._open >= CALLS_MAX:
            text = (
                f"{self._open} logins wait for the login provider {self._host}, which is the limit; "
                f"try again in {RETRY_SECONDS} s"
            )
            raise RefusedError(text, status=503, retry_seconds=RETRY_SECONDS)
        self._open += 1
        try:
            work = partial(function, *args, **named)
            async with asyncio.timeout(CALL_SECONDS):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except TimeoutError:
            text = (
                f"the login provider {self._host} has not answered within {CALL_SECONDS:g} s; try again "
                "or ask its operators"
            )
            raise RefusedError(text, status=502) from None
        finally:
            self._open -= 1
