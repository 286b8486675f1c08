"""Running servers in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Protocol

from sparrowmq.core.settings.servers import BrokerSettings, NameServerSettings
from sparrowmq.loops.event_loop import run
from sparrowmq.runtime.allocator import Allocator
from sparrowmq.runtime.interpreter import Interpreter
from sparrowmq.runtime.logs import set_levels, set_up_logging
from sparrowmq.runtime.servers import Listening, LocalServers

_log = logging.getLogger("sparrowmq.runtime")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
OPEN_FILES = 65_536
"""The open-file limit that a server process requests: connections and mapped files take one each."""


def raise_open_files_limit() -> None:
    """Raise the limit of open files as far as this user may, to 65,536 at most, as Java's runtime does."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS has a second limit, below the hard one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


Beside = Callable[[Listening], Coroutine[Any, Any, None]]
"""A coroutine that runs beside listening servers until it is cancelled."""


class ServerGroup(Protocol):
    """Servers that start and stop as one."""

    async def start(self) -> Listening:
        """Start them; if one fails, none is left running."""

    async def close(self) -> None:
        """Stop them cleanly; raises TimeoutError when that takes too long."""


async def all_beside(company: Sequence[Beside], listening: Listening) -> None:
    """Combine several into one. An error of one does not end the others; it is raised after them."""
    results = await asyncio.gather(*(beside(listening) for beside in company), return_exceptions=True)
    for result in results:
        if isinstance(result, Exception):
            raise result


async def serve(
    servers: ServerGroup,
    stop: asyncio.Event,
    ready: Callable[[Listening], None],
    beside: Beside | None = None,
) -> None:
    """Start the servers, pass their addresses to `ready`, and stop them when `stop` is set, also during the
    start.

    `beside` is started after them and ended before them; the servers continue even if it fails.
    """
    raise_open_files_limit()
    allocator = Allocator()
    allocator.begin()
    listening = await _started(servers, stop)
    if listening is None:
        return
    ready(listening)
    company = asyncio.create_task(beside(listening)) if beside else None
    interpreter = Interpreter()
    interpreter.begin()
    thawing = asyncio.create_task(interpreter.run())
    trimming = asyncio.create_task(allocator.run())
    try:
        await stop.wait()
    finally:
        thawing.cancel()
        trimming.cancel()
        if company is not None:
            company.cancel()
            await asyncio.wait([company])
            if not company.cancelled() and (error := company.exception()) is not None:
                _log.error("a background task of the servers failed: %s", error)
        await servers.close()
        interpreter.end()


async def _started(servers: ServerGroup, stop: asyncio.Event) -> Listening | None:
    """The addresses of the started servers; None if `stop` was set before they had started."""
    starting, stopping = asyncio.create_task(servers.start()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        if not starting.done():
            starting.cancel()
            await asyncio.wait([starting])
    return None if starting.cancelled() else starting.result()


def on_stop_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Let SIGINT and SIGTERM set `stop`; a second one ends the process immediately."""

    def told(number: int) -> None:
        stop.set()
        for each in STOP_SIGNALS:
            loop.remove_signal_handler(each)
            signal.signal(each, signal.SIG_DFL)

    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, told, number)


def run_servers(
    nameserver: NameServerSettings | None,
    broker: BrokerSettings | None,
    *,
    ready: Callable[[Listening], None],
    beside: Beside | None = None,
    any_metrics_port: bool = False,
) -> None:
    """Run a name server, a broker or both until SIGINT or SIGTERM, then stop them cleanly.

    `ready` is called once, when clients may connect. `beside` runs as long as they do. Raises the errors of a
    start (`ListenError`, the `StoreError` family), and TimeoutError when the clean stop takes too long.
    With `any_metrics_port` any free port replaces an operators' port that is in use.
    """

    settings = broker or nameserver
    assert settings is not None
    set_up_logging(settings.log_format)
    set_levels(settings.log_level)

    async def main() -> None:
        stop = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), stop)
        servers = LocalServers(nameserver, broker, any_metrics_port=any_metrics_port, log_levels=set_levels)
        await serve(servers, stop, ready, beside)

    run(main())
