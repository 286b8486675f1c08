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
    each time.

    `texts` are its settings by name. One that cannot start for a reason that time does not change is told of
    once.
    """
    delays, told = Backoff(RESTART_SECONDS, RESTART_SECONDS_MAX).delays(), False
    while True:
        process = await _spawn(texts)
        try:
            answer = await _answer(process)
            if "error" in answer:
                complain(f"the coordinator does not run: {answer['error']}")
                return
            if not told:
                say(f"coordinator  {answer['url']}")
                if answer["first_password"]:
                    say(f"             person admin, password {answer['first_password']} (shown this once)")
                told = True
            status = await process.wait()
        finally:
            await _end(process)
        delay = next(delays)
        complain(f"the coordinator ended with status {status}; the broker runs on; next try in {delay:.0f} s")
        await asyncio.sleep(delay)


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
    line = await process.stdout.readline()
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
