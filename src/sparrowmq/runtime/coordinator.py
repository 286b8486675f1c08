"""A coordinator in this process, or in a child beside the servers, which its death does not touch.

The child is told its settings by the first line of its standard input, prints one line of JSON when it serves
or cannot, and stops cleanly when its standard input closes: it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import CoordinatorError, SparrowError
from sparrowmq.core.settings import CoordinatorSettings, Layer, load

if TYPE_CHECKING:
    from sparrowmq.coordinator.server import Started

PACKAGES: Final = ("sqlalchemy", "alembic", "argon2", "fastapi", "uvicorn")
INSTALL: Final = "pip install 'sparrowmq[coordinator]'"
STOP_SECONDS: Final = 10.0
RESTART_SECONDS: Final = 1.0
RESTART_SECONDS_MAX: Final = 60.0
START_SECONDS: Final = 120.0
"""How long a child may take until it serves: it may have to wait for its database, and migrate it."""


def missing() -> list[str]:
    """The packages a coordinator needs that are not installed; nothing is imported to find out."""
    return [name for name in PACKAGES if find_spec(name) is None]


def need_packages() -> None:
    """Raise `CoordinatorError` with what to type when a package is missing."""
    if missing():
        raise CoordinatorError(f"the coordinator needs {', '.join(missing())}; type: {INSTALL}")


async def serve_coordinator(
    settings: CoordinatorSettings, stop: asyncio.Event, ready: Callable[[Started], None]
) -> None:
    """Run a coordinator until `stop` is set. Raises what its start raises, and what ends it."""
    from sparrowmq.coordinator.server import Coordinator

    coordinator = Coordinator(settings)
    stopped = asyncio.create_task(stop.wait())
    try:
        ready(await coordinator.start())
        assert coordinator.failed is not None
        ends: list[asyncio.Future[Any]] = [stopped, coordinator.failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if coordinator.failed.done():
            coordinator.failed.result()
    finally:
        stopped.cancel()
        await coordinator.close()


def run_coordinator(settings: CoordinatorSettings, ready: Callable[[Started], None]) -> None:
    """Run a coordinator until SIGINT or SIGTERM."""
    from sparrowmq.runtime.process import on_stop_signals
    from sparrowmq.transport.loop import run

    async def main() -> None:
        stop = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), stop)
        await serve_coordinator(settings, stop, ready)

    run(main())


async def keep_child(
    texts: Mapping[str, str], say: Callable[[str], None], complain: Callable[[str], None]
) -> None:
    """Keep a coordinator running in a child process until cancelled. One that ends is started again, later
    each time that it ends soon.

    `texts` are its settings by name. One that cannot start at all is told of once; one that served before is
    tried again, because its database may come back.
    """
    loop, served = asyncio.get_running_loop(), False
    delays = Backoff(RESTART_SECONDS, RESTART_SECONDS_MAX).delays()
    while True:
        process, began = await _spawn(texts), loop.time()
        try:
            answer = await _answer(process)
            if "error" in answer:
                trouble = f"the coordinator does not run: {answer['error']}"
            else:
                if not served:
                    _introduce(answer, say)
                served = True
                status = await process.wait()
                trouble = f"the coordinator ended with status {status}; the broker runs on"
        finally:
            await _end(process)
        if not served:
            complain(trouble)
            return
        if loop.time() - began > RESTART_SECONDS_MAX:  # it ran: what ended it is not what ended others
            delays = Backoff(RESTART_SECONDS, RESTART_SECONDS_MAX).delays()
        delay = next(delays)
        complain(f"{trouble}; next try in {delay:.0f} s")
        await asyncio.sleep(delay)


def _introduce(answer: Mapping[str, Any], say: Callable[[str], None]) -> None:
    say(f"coordinator  {answer['url']}")
    if answer["first_password"]:
        say(f"             person admin, password {answer['first_password']} (shown this once)")


async def _spawn(texts: Mapping[str, str]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sparrowmq.runtime.coordinator",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(dict(texts)).encode() + b"\n")
    return process


async def _answer(process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
    except TimeoutError:
        return {"error": f"it did not serve within {START_SECONDS:.0f} s; see its database"}
    if not line:
        return {"error": f"its process ended with status {await process.wait()} before it served"}
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let the child stop cleanly, or kill it in the end."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def _main() -> int:
    from sparrowmq.transport.loop import run

    def ready(started: Started) -> None:
        print(json.dumps({"url": started.url, "first_password": started.first_password}), flush=True)  # noqa: T201 - the parent reads it

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        settings, _ = load(CoordinatorSettings, [Layer("coordinator", json.loads(await reader.readline()))])

        async def watch() -> None:
            await reader.read()
            stop.set()

        watching = asyncio.create_task(watch())
        try:
            await serve_coordinator(settings, stop, ready)
        finally:
            watching.cancel()

    try:
        need_packages()
        run(main())
    except SparrowError as error:
        print(json.dumps({"error": str(error)}), flush=True)  # noqa: T201 - the parent reads it
        return 1
    return 0


if __name__ == "__main__":
    import logging

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    sys.exit(_main())
