"""Rounds: a new cluster each, its clients, the faults of a seed, and the judgement of the history.

A round has these parts: the cluster starts, and all copies are in sync; clients send and read while the
faults are done; everything heals, a message that is sent then is acknowledged, and all copies are in sync
again; producers end, consumers get the rest; all queues are read. Each part has a deadline.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Protocol

from sparrowmq.core.errors import RequestTimeoutError
from sparrowmq.torture.checker import BrokenPromise, judge
from sparrowmq.torture.clients import (
    GROUP,
    HistoryLog,
    NotingConsumer,
    NotingProducer,
    caught_up,
    read_all,
)
from sparrowmq.torture.cluster import NotReadyError, TortureCluster, until
from sparrowmq.torture.events import MessageStored, QueueExtent
from sparrowmq.torture.faults import FaultRunner
from sparrowmq.torture.plan import PlannedFault, plan_faults

ROUND_SECONDS: Final = 300.0
"""No round takes longer, whatever happens."""
AGAIN_SECONDS: Final = 45.0
"""How long after the last fault messages may not be acknowledged."""
HISTORY: Final = "history.jsonl"
RECOVERS: Final = "recovers"
"""The promise that the cluster works again when everything has healed."""


class Beside(Protocol):
    """Further clients of a round, such as programs with other client libraries."""

    groups: Sequence[str]
    """Consumer groups that must get all messages."""

    async def start(self, namesrv: str, history: HistoryLog) -> None:
        """Begin to send and to read."""

    async def stop_sending(self) -> None:
        """Send no more."""

    async def close(self) -> None:
        """End."""


@dataclass(frozen=True, slots=True)
class RoundSettings:
    """What a round is like. Faults begin within `fault_seconds`; with `faults` these are done instead.
    `texts` are further settings of the brokers, by RocketMQ's names.
    """

    seed: int
    replicas: int = 2
    fault_seconds: float = 8.0
    with_network: bool = False
    faults: Sequence[PlannedFault] | None = None
    texts: Mapping[str, str] = field(default_factory=dict)

    def planned(self) -> Sequence[PlannedFault]:
        """The faults to do."""
        if self.faults is not None:
            return self.faults
        return plan_faults(self.seed, self.fault_seconds, with_network=self.with_network)


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round was and found. `broken` is empty if all promises were kept."""

    seed: int
    faults: Sequence[str]
    broken: Sequence[BrokenPromise]
    figures: dict[str, int]
    seconds: float
    directory: Path
    broken_count: dict[str, int] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As a value for JSON."""
        return {
            "seed": self.seed,
            "kept": not self.broken,
            "seconds": round(self.seconds, 1),
            "faults": list(self.faults),
            **self.figures,
            "broken": [one.as_json() for one in self.broken],
            "broken_count": dict(self.broken_count),
            "directory": str(self.directory) if self.broken else None,
        }


async def run_round(
    settings: RoundSettings,
    root: Path,
    say: Callable[[str], None],
    *,
    beside: Sequence[Beside] = (),
) -> RoundResult:
    """One round in the directory `root`, which is made; `say` is told what happens. Raises `SparrowError` if
    the cluster does not start.
    """
    await asyncio.to_thread(root.mkdir, parents=True)
    began, faults = time.monotonic(), settings.planned()
    history = HistoryLog(root / HISTORY)

    def note(text: str) -> None:
        history.fault(text)
        say(f"{time.monotonic() - began:6.1f} s  {text}")

    cluster = TortureCluster(
        root, replicas=settings.replicas, with_network=settings.with_network, texts=settings.texts
    )
    late = ""
    try:
        await cluster.start()
        note(f"the cluster is ready, {settings.replicas} copies are in sync")
        try:
            with _client_log(root / "clients.log"):
                async with asyncio.timeout(ROUND_SECONDS):
                    await _storm(cluster, history, FaultRunner(cluster, note), settings, beside)
        except* RequestTimeoutError:
            raise
        except* (NotReadyError, TimeoutError) as errors:
            late = _first_text(errors)
    finally:
        await cluster.close()
        history.close()
    seconds = time.monotonic() - began
    told = [str(one) for one in faults]
    if late:
        # The queues were not read, or not all of them.
        events = [one for one in history.events if not isinstance(one, MessageStored | QueueExtent)]
        verdict = await asyncio.to_thread(judge, events)
        broken = [BrokenPromise(RECOVERS, late, (), "", None, seconds), *verdict.broken]
        counts = {RECOVERS: 1, **verdict.broken_count}
    else:
        verdict = await asyncio.to_thread(judge, history.events)
        broken, counts = list(verdict.broken), dict(verdict.broken_count)
    return RoundResult(settings.seed, told, broken, dict(verdict.figures), seconds, root, counts)


@contextmanager
def _client_log(path: Path) -> Iterator[None]:
    """What clients log goes to a file: their complaints about the faults are no news."""
    log = logging.getLogger("sparrowmq.client")
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    propagated = log.propagate
    log.addHandler(handler)
    log.propagate = False
    try:
        yield
    finally:
        log.propagate = propagated
        log.removeHandler(handler)
        handler.close()


def _first_text(errors: BaseExceptionGroup[Any]) -> str:
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return str(first) or f"the round did not end within {ROUND_SECONDS:g} s"


async def _storm(
    cluster: TortureCluster,
    history: HistoryLog,
    runner: FaultRunner,
    settings: RoundSettings,
    beside: Sequence[Beside],
) -> None:
    async with AsyncExitStack() as readers:
        async with AsyncExitStack() as senders:
            for one in beside:
                await one.start(cluster.namesrv, history)
                readers.push_async_callback(one.close)
                senders.push_async_callback(one.stop_sending)
            for name in ("reader-1", "reader-2"):
                await readers.enter_async_context(NotingConsumer(cluster.namesrv, name, history))
            for kind, count in (("single", 3), ("retrying", 2), ("idempotent", 3)):
                producer = NotingProducer(cluster.namesrv, kind, count, history, settings.seed)
                await senders.enter_async_context(producer)
            await runner.run(settings.planned())
            await _acknowledging(history)
            await cluster.recovered()
        for group in (GROUP, *(group for one in beside for group in one.groups)):
            await caught_up(cluster.namesrv, group, history)
    await read_all(cluster.namesrv, history)


async def _acknowledging(history: HistoryLog) -> None:
    """Wait until messages are acknowledged again. Raises `NotReadyError`."""
    before = history.acknowledged

    async def more() -> bool:
        return history.acknowledged > before + 20

    await until(more, AGAIN_SECONDS, "no messages were acknowledged after the last fault")


async def run_rounds(
    first: RoundSettings,
    rounds: int,
    root: Path,
    say: Callable[[str], None],
    done: Callable[[RoundResult], None],
    *,
    keep: bool = True,
) -> int:
    """So many rounds, with the seeds from `first.seed` on; how many broke a promise.

    `done` gets each result. Directories are made below `root`; those of rounds that kept all promises are
    removed, the others only without `keep`. A round that is cancelled leaves none. Raises `SparrowError` if a
    cluster does not start.
    """
    broken = 0
    for number in range(rounds):
        settings = replace(first, seed=first.seed + number)
        say(f"round {number + 1} of {rounds}, seed {settings.seed}, {len(settings.planned())} faults")
        directory = _new_directory(root, settings.seed)
        try:
            result = await run_round(settings, directory, say)
        except asyncio.CancelledError:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        if not (result.broken and keep):
            await asyncio.to_thread(shutil.rmtree, directory)
        broken += bool(result.broken)
        done(result)
    return broken


def _new_directory(root: Path, seed: int) -> Path:
    """A directory for a round that does not exist yet."""
    endings = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
    return next(path for ending in endings if not (path := root / f"round-{seed}{ending}").exists())
