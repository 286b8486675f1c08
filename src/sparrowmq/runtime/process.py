"""Running servers in this process until it is told to stop."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from sparrowmq.core.settings import BrokerSettings, NameServerSettings
from sparrowmq.runtime.servers import Listening, Servers
from sparrowmq.transport.loop import run

_log = logging.getLogger("sparrowmq.runtime")
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
OPEN_FILES = 65_536
"""Open files a server process asks the system for: connections and mapped files take one each."""


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
"""Something that runs beside servers once they listen, until it is cancelled."""


async def serve(
    servers: Servers, stop: asyncio.Event, ready: Callable[[Listening], None], beside: Beside | None = None
) -> None:
    """Start the servers, tell `ready` where they are, and stop them when `stop` is set.

    `beside` is begun then and ended first; whatever becomes of it, the servers run on.
    """
    raise_open_files_limit()
    listening = await servers.start()
    ready(listening)
    company = asyncio.create_task(beside(listening)) if beside else None
    # What lives until the end need not be looked at by the collector again.
    gc.freeze()
    try:
        await stop.wait()
    finally:
        if company is not None:
            company.cancel()
            await asyncio.wait([company])
            if not company.cancelled() and (error := company.exception()) is not None:
                _log.error("what ran beside the servers failed: %s", error)
        await servers.close()


def on_stop_signals(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Let SIGINT and SIGTERM set `stop`; a second one of them ends the process at once."""

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
) -> None:
    """Run a name server, a broker or both until SIGINT or SIGTERM, then stop them cleanly.

    `ready` is called once, when clients may connect. `beside` runs as long as they do. Raises what a start
    raises (`ListenError`, the `StoreError` family) and TimeoutError when the clean stop takes too long.
    """

    async def main() -> None:
        stop = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), stop)
        await serve(Servers(nameserver, broker), stop, ready, beside)

    run(main())
