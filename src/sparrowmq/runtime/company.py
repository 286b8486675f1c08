"""Child processes beside the servers of `sparrow up`: the parent's side and the child's. Their failure does
not affect the servers.

A child reads its settings from the first line of its standard input, prints one line of JSON when it is
ready or fails, and stops cleanly when its standard input is closed, so it never outlives its parent.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.clock import Sleep
from sparrowmq.core.errors import SparrowError

STOP_SECONDS: Final = 10.0
RESTART_SECONDS: Final = 1.0
RESTART_SECONDS_MAX: Final = 60.0


@dataclass(frozen=True, slots=True)
class Companion:
    """What runs in a child process: the module with its main program, and its time limit to start.

    `hint` says what to check when the start takes longer.
    """

    name: str
    module: str
    start_seconds: float
    hint: str


def ports_of(address: str, metrics: str | None) -> dict[str, str]:
    """The ports of a child by setting; with these texts, one that is started again has the same."""
    found = {"listenPort": address, "metricsPromExporterPort": metrics}
    return {setting: where.rpartition(":")[2] for setting, where in found.items() if where}


def tell_metrics(answer: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Print the address of a child's operators' port, if it has one."""
    if answer.get("metrics"):
        say(f"metrics      http://{answer['metrics']}/metrics")


async def keep_child(
    companion: Companion,
    texts: Mapping[str, str],
    introduce: Callable[[Mapping[str, Any]], None],
    complain: Callable[[str], None],
    *,
    sleep: Sleep = asyncio.sleep,
) -> None:
    """Keep the child running until cancelled. If it ends, it is restarted with the same ports, with a growing
    delay if it ends soon.

    `texts` are its settings by name; `introduce` gets its first line once. If it cannot start at all, that is
    reported once; if it served before, it is retried, because what it needs may become available again.
    """
    loop, served, metrics, texts = asyncio.get_running_loop(), False, None, dict(texts)
    delays = Backoff(RESTART_SECONDS, RESTART_SECONDS_MAX).delays()
    while True:
        process, began = await _spawn(companion, texts), loop.time()
        try:
            answer = await _answer(companion, process)
            if "error" in answer:
                trouble = f"the {companion.name} did not start: {answer['error']}"
            else:
                if not served:
                    introduce(answer)
                elif answer.get("metrics") != metrics:
                    complain(
                        f"the {companion.name} has its metrics at {answer['metrics']} now, not {metrics}"
                    )
                served, metrics = True, answer.get("metrics")
                texts |= answer.get("ports", {})
                status = await process.wait()
                trouble = f"the {companion.name} ended with status {status}; the broker keeps running"
        finally:
            await _end(process)
        if not served:
            complain(trouble)
            return
        if (
            loop.time() - began > RESTART_SECONDS_MAX
        ):  # it ran for a while, so this failure is not the previous one
            delays = Backoff(RESTART_SECONDS, RESTART_SECONDS_MAX).delays()
        delay = next(delays)
        complain(f"{trouble}; next try in {delay:.0f} s")
        await sleep(delay)


async def _spawn(companion: Companion, texts: Mapping[str, str]) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        companion.module,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(dict(texts)).encode() + b"\n")
    return process


async def _answer(companion: Companion, process: asyncio.subprocess.Process) -> dict[str, Any]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(companion.start_seconds):
            line = await process.stdout.readline()
    except TimeoutError:
        return {"error": f"it was not ready within {companion.start_seconds:.0f} s; {companion.hint}"}
    if not line:
        return {"error": f"its process ended with status {await process.wait()} before it was ready"}
    found = json.loads(line)
    assert isinstance(found, dict)
    return found


async def _end(process: asyncio.subprocess.Process) -> None:
    """Let the child stop cleanly, or else kill it."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(STOP_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


Serve = Callable[[Mapping[str, str], asyncio.Event, Callable[[Mapping[str, Any]], None]], Awaitable[None]]
"""Serves with the given settings until the event is set. Calls the function once, with the values to send to
the parent.
"""


def run_child(check: Callable[[], None], serve: Serve) -> int:
    """Run the child's side; returns the exit status. `check` raises an error if the child cannot start."""
    from sparrowmq.loops.event_loop import run

    def tell(answer: Mapping[str, Any]) -> None:
        print(json.dumps(dict(answer)), flush=True)  # noqa: T201 - the parent reads it

    async def main() -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        reader = asyncio.StreamReader()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        texts = json.loads(await reader.readline())

        async def watch() -> None:
            await reader.read()
            stop.set()

        watching = asyncio.create_task(watch())
        try:
            await serve(texts, stop, tell)
        finally:
            watching.cancel()

    try:
        check()
        run(main())
    except SparrowError as error:
        tell({"error": str(error)})
        return 1
    return 0
