"""Take-overs of brokers under a real coordinator, by the parts of `sparrow torture`, and how long they take.

`python -m tests.crash.broker.elections --rounds 12` kills the master again and again, and prints how long it
took until a message was acknowledged again.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sparrowmq.torture.checker import HistoryVerdict, judge
from sparrowmq.torture.clients import HistoryLog, NotingProducer, read_all
from sparrowmq.torture.cluster import TortureCluster, until
from sparrowmq.torture.events import SendAcknowledged, SendInvoked

SENDERS = 8
SECONDS_MAX = 60.0


@asynccontextmanager
async def elected(root: Path, replicas: int = 2) -> AsyncIterator[TortureCluster]:
    """A cluster whose copies are all in sync."""
    cluster = TortureCluster(root, replicas=replicas)
    try:
        await cluster.start()
        yield cluster
    finally:
        await cluster.close()


class Ledger:
    """A producer and its history."""

    def __init__(self, cluster: TortureCluster) -> None:
        self.history = HistoryLog(cluster.root / "history.jsonl")
        self._cluster = cluster
        self._producer = NotingProducer(cluster.namesrv, "single", SENDERS, self.history, 1)

    async def __aenter__(self) -> Ledger:
        await self._producer.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._producer.__aexit__(*error)
        self.history.close()

    async def after(self, at: float) -> float:
        """Wait until a message is acknowledged that was sent after a time; seconds from then to that."""
        sent: set[str] = set()
        seen = len(self.history.events)
        seconds = 0.0

        async def found() -> bool:
            nonlocal seen, seconds
            while seen < len(self.history.events):
                event = self.history.events[seen]
                seen += 1
                if isinstance(event, SendInvoked) and event.at > at:
                    sent.add(event.id)
                elif isinstance(event, SendAcknowledged) and event.id in sent:
                    seconds = event.at - at
                    return True
            return False

        await until(found, SECONDS_MAX, "no message was acknowledged")
        return seconds

    async def more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        wanted = self.history.acknowledged + count

        async def found() -> bool:
            return self.history.acknowledged >= wanted

        await until(found, SECONDS_MAX, "messages were not acknowledged")

    async def verdict(self) -> HistoryVerdict:
        """Read all queues and judge."""
        history = HistoryLog(self._cluster.root / "read.jsonl")
        try:
            await read_all(self._cluster.namesrv, history)
        finally:
            history.close()
        return judge([*self.history.events, *history.events])


async def kill_master(cluster: TortureCluster, ledger: Ledger) -> float:
    """Kill the master and start it again; seconds until a message sent afterwards is acknowledged."""
    await cluster.recovered()
    await ledger.more(50)
    before = await cluster.master()
    at = time.monotonic()
    await cluster.servers[before].kill()
    seconds = await ledger.after(at)
    assert await cluster.master() != before
    await cluster.begin(before)
    return seconds


async def freeze_master(cluster: TortureCluster, ledger: Ledger) -> float:
    """Freeze the master until another one acknowledges, and thaw it; the same seconds."""
    await cluster.recovered()
    await ledger.more(50)
    before, epoch = await cluster.master(), (await cluster.group())["epoch"]
    at = time.monotonic()
    cluster.servers[before].freeze()
    try:
        seconds = await ledger.after(at)
    finally:
        cluster.servers[before].thaw()
    assert (await cluster.group())["epoch"] > epoch
    return seconds


async def measure(rounds: int) -> list[float]:
    """Seconds of so many take-overs after a kill."""
    with tempfile.TemporaryDirectory(prefix="sparrow-elections-") as root:
        async with elected(Path(root)) as cluster:
            async with Ledger(cluster) as ledger:
                times = [await kill_master(cluster, ledger) for _ in range(rounds)]
                await cluster.recovered()
                await ledger.more(50)
            verdict = await ledger.verdict()
        assert verdict.is_kept, [str(one) for one in verdict.broken]
        sys.stdout.write(f"{verdict.figures['acknowledged']} messages acknowledged, none lost\n")
    return times


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=12)
    times = sorted(asyncio.run(measure(parser.parse_args().rounds)))
    told = " ".join(f"{one:.2f}" for one in times)
    sys.stdout.write(f"seconds: {told}\np50 {times[len(times) // 2]:.2f} p99 {times[-1]:.2f}\n")


if __name__ == "__main__":
    main()
