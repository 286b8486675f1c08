"""What tests share: running coroutines, waiting for conditions, free ports, child processes."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import socket
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from sparrowmq.core.figures.exposition import Collecting
    from sparrowmq.transport.client import RemotingClient

T = TypeVar("T")

PATIENCE = float(os.environ.get("SPARROW_TEST_PATIENCE", "1"))
"""By how much all waits are longer, for machines that are very slow."""
WAIT_SECONDS = 60.0
"""How long a condition may take before a test fails: far above what it needs, so that only faults hit it."""
POLL_SECONDS = 0.005
POLL_SECONDS_MAX = 0.05
"""Conditions of plain tests mostly ask other processes: what takes long is asked less and less often."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, in a loop of its own."""
    return asyncio.run(main)


async def until(condition: Callable[[], object | Awaitable[object]], seconds: float = WAIT_SECONDS) -> Any:
    """Wait until `condition()` (plain or async) is true; give its value. AssertionError at the deadline."""
    deadline = time.monotonic() + seconds * PATIENCE
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"{_source(condition)} was not true within {seconds * PATIENCE:g} s")
        await asyncio.sleep(POLL_SECONDS)


def until_sync(condition: Callable[[], T], seconds: float = WAIT_SECONDS) -> T:
    """The same for plain tests."""
    deadline, pause = time.monotonic() + seconds * PATIENCE, POLL_SECONDS
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise AssertionError(f"{_source(condition)} was not true within {seconds * PATIENCE:g} s")
        time.sleep(pause)
        pause = min(pause * 1.2, POLL_SECONDS_MAX)


def expect_all(came: Callable[[], Iterable[T]], wanted: Collection[T]) -> None:
    """Wait until all of `wanted` came, however often; nothing else may have come: what a delivery at least
    once promises."""
    until_sync(lambda: set(wanted) <= set(came()))
    assert set(came()) == set(wanted)


def first_arrivals(came: Iterable[T]) -> list[T]:
    """The same without repeats: a queue's order is promised for what comes for the first time."""
    return list(dict.fromkeys(came))


def steps(call: Callable[[], object]) -> int:
    """How many instructions of Python `call` takes: work that can be compared where time cannot."""
    count = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # a collection would run finalizers and callbacks of other tests' objects here
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def is_connected(client: RemotingClient, address: str) -> bool:
    """Whether a connection of the client to the address is open."""
    return address in client._connections


def _source(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):
        return repr(condition)


def refuse_skip(report: pytest.TestReport, facts: list[str]) -> None:
    """Make a failure of a test that was skipped although it proves facts."""
    if facts and report.skipped:
        report.outcome = "failed"
        report.longrepr = (
            f"{report.nodeid} proves {', '.join(facts)} and may not be skipped: {report.longrepr}"
        )


def traced_bytes(*patterns: str) -> int:
    """Bytes still used that code in files of these patterns allocated while `tracemalloc` traced.

    Other threads of a test run allocate memory, too.
    """
    places = [tracemalloc.Filter(True, pattern) for pattern in patterns]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(places).traces)


def about(**facts: object) -> Callable[[BaseException], bool]:
    """What an error must be about, as the `check` of `pytest.raises`: the values of some attributes."""

    def check(error: BaseException) -> bool:
        found = {name: getattr(error, name, None) for name in facts}
        assert found == facts, f"{error!r} is about {found}"
        return True

    return check


def sqlite_url(path: Path) -> str:
    """The address of a SQLite file."""
    return f"sqlite:///{path.absolute()}"


def collect_here(collecting: Collecting) -> int:
    """Do all steps of a collection of figures in this thread; returns how many there were."""
    return sum(1 + (0 if step is None else sum(1 for _ in step.steps)) for step in collecting)
