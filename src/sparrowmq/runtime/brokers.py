"""A name server in this process and several brokers of one cluster, each in a child process.

Several brokers use several cores of a machine, as in RocketMQ. They start and stop together. One that dies is
reported and restarted on the same port; the others keep running. The children are those of `runtime.child`:
they end when this process ends, even if it is killed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sparrowmq.core.backoff import Backoff
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.settings.servers import NameServerSettings
from sparrowmq.loops.event_loop import run
from sparrowmq.runtime.broker_plan import PlannedBroker
from sparrowmq.runtime.process import Beside, on_stop_signals, serve
from sparrowmq.runtime.servers import Listening, LocalServers

SILENT_SECONDS: Final = 600.0
"""A broker that starts, and makes no progress for so long, is ended. The whole start may take longer: after
a crash the broker may have to read a large log."""
STOP_SECONDS: Final = 30.0
RESTART_SECONDS: Final = 1.0
RESTART_SECONDS_MAX: Final = 60.0
STEADY_SECONDS: Final = 60.0
"""A broker that ran at least this long restarts with the shortest delay."""

_log = logging.getLogger("sparrowmq.runtime")
Say = Callable[[str], None]


class BrokerProcess:
    """One broker in a child process. `address` is known once it has started, and does not change."""

    def __init__(self, planned: PlannedBroker, namesrv: str) -> None:
        self.name = planned.name
        self.store: Path = planned.store
        self.address = ""
        self.metrics: str | None = None
        """Address of its operators' port."""
        self.texts = {"namesrvAddr": namesrv, **planned.texts}
        self._process: asyncio.subprocess.Process | None = None

    def __repr__(self) -> str:
        return f"<BrokerProcess {self.name} address={self.address!r} pid={self.pid}>"

    @property
    def pid(self) -> int:
        """The child's process id; 0 when it does not run."""
        return self._process.pid if self._process is not None else 0

    async def start(self) -> None:
        """Start the child and wait until it listens. Raises `SparrowError` with the broker's name."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sparrowmq.runtime.child"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self._process = process
        assert process.stdin is not None
        try:
            # Not as an argument: all users of the machine can see those, and settings contain secrets.
            request = {"broker": self.texts, "nameserver": None, "progress": True}
            process.stdin.write(json.dumps(request).encode() + b"\n")
            answer = await self._answer(process)
            if "error" in answer:
                text = f"{self.name} did not start: {answer['error']}"
                raise SparrowError(text, what="broker", value=self.name)
        except BaseException:
            await self.stop()
            raise
        self.address, self.metrics = answer["broker"], answer["metrics"]
        self.texts |= answer["ports"]

    async def _answer(self, process: asyncio.subprocess.Process) -> dict[str, Any]:
        """What the child says when it listens or fails; until then it tells of its progress."""
        assert process.stdout is not None
        does = "it starts"
        while True:
            try:
                async with asyncio.timeout(SILENT_SECONDS):
                    line = await process.stdout.readline()
            except TimeoutError:
                text = f"it made no progress for {SILENT_SECONDS:g} s (last: {does}); see its log"
                return {"error": text}
            if not line:
                return {"error": f"its process {_end(await process.wait())} before it listened"}
            found: dict[str, Any] = json.loads(line)
            if "progress" not in found:
                return found
            does = found["progress"]

    async def ended(self) -> str:
        """Wait until the child has ended. Returns how it ended."""
        process = self._process
        assert process is not None
        return _end(await process.wait())

    async def stop(self) -> bool:
        """Stop the child cleanly, or kill it after 30 s. Returns whether it stopped cleanly. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return True
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_SECONDS):
                return await process.wait() == 0
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return False


def _end(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-status).name}"
    return f"was ended by signal {-status}"


async def keep(
    broker: BrokerProcess,
    complain: Say,
    *,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> None:
    """Restart a broker whenever it ends, until cancelled; the delay grows if it ends soon."""
    loop = asyncio.get_running_loop()
    delays = Backoff(RESTART_SECONDS, RESTART_SECONDS_MAX).delays()
    while True:
        began = loop.time()
        trouble = f"{broker.name} {await broker.ended()}"
        if loop.time() - began > STEADY_SECONDS:
            delays = Backoff(RESTART_SECONDS, RESTART_SECONDS_MAX).delays()
        started = False
        while not started:
            delay = next(delays)
            complain(f"{trouble}; the other brokers keep running, next start in {delay:.0f} s")
            await sleep(delay)
            try:
                await broker.start()
                started = True
            except (SparrowError, OSError) as error:
                trouble = str(error)
        complain(f"{broker.name} runs again at {broker.address}")


class BrokerCluster:
    """A name server on the running loop and brokers in child processes; started and stopped as one."""

    def __init__(
        self, nameserver: NameServerSettings, planned: Sequence[PlannedBroker], complain: Say
    ) -> None:
        self._nameserver = LocalServers(nameserver, any_metrics_port=True)
        self._planned = planned
        self._complain = complain
        self._keepers: list[asyncio.Task[None]] = []
        self.brokers: list[BrokerProcess] = []

    async def start(self) -> Listening:
        """Start the name server, then all brokers at once. If one fails, all are stopped and its error is
        raised.
        """
        try:
            listening = await self._nameserver.start()
            assert listening.nameserver is not None
            self.brokers = [BrokerProcess(one, listening.nameserver) for one in self._planned]
            await _all(broker.start() for broker in self.brokers)
        except BaseException:
            await self.close()
            raise
        self._keepers = [asyncio.create_task(keep(broker, self._complain)) for broker in self.brokers]
        return listening

    async def close(self) -> None:
        """Stop all brokers at once, then the name server. Raises TimeoutError when one had to be killed."""
        keepers, self._keepers = self._keepers, []
        for keeper in keepers:
            keeper.cancel()
        for result in await asyncio.gather(*keepers, return_exceptions=True):
            if isinstance(result, Exception):
                _log.error("a broker was no longer watched: %s", result)
        try:
            clean = await asyncio.gather(*(broker.stop() for broker in self.brokers))
        finally:
            await self._nameserver.close()
        if not all(clean):
            raise TimeoutError


async def _all(starts: Iterable[Awaitable[None]]) -> None:
    """Wait for all, then raise the first error, so that no other start is forgotten."""
    for result in await asyncio.gather(*starts, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def run_cluster(
    nameserver: NameServerSettings,
    planned: Sequence[PlannedBroker],
    *,
    ready: Callable[[Listening, Sequence[BrokerProcess]], None],
    complain: Say,
    beside: Beside | None = None,
) -> None:
    """Run a name server and brokers until SIGINT or SIGTERM, then stop them cleanly.

    `ready` is called once, when clients may connect. `beside` runs as long as the servers. Raises the error
    of a broker that cannot start, and TimeoutError when a broker's clean stop takes too long.
    """

    async def main() -> None:
        stop = asyncio.Event()
        on_stop_signals(asyncio.get_running_loop(), stop)
        cluster = BrokerCluster(nameserver, planned, complain)
        await serve(cluster, stop, lambda where: ready(where, cluster.brokers), beside)

    run(main())
