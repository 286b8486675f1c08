"""A coordinator under load: what a thousand members that report cost it, and a burst of audit entries.

The members are consumers as users start them, in groups of ten, all in this process; ten instances share
their connections. Nothing is sent, so what is measured is their reports.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import AsyncExitStack
from http.client import HTTPConnection
from typing import Final

from benchmarks.churn import read_by
from benchmarks.coordinator import Counted
from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS, Peer
from benchmarks.report import LEAST, Floor, Report
from sparrowmq import ConsumerSettings, aio

TOPIC: Final = "BenchMembers"
QUEUES: Final = 10
EACH: Final = 10
"""Members of a group, one of each instance."""
MEMBERS: Final = 1000
MEMBERS_QUICK: Final = 100
AT_ONCE: Final = 50
START_SECONDS_MAX: Final = 180.0
ENTRIES: Final = 10_000
ENTRIES_QUICK: Final = 500
WRITERS: Final = 8
PAGE: Final = 500
REQUESTS: Final = "members' requests a second, per 1,000"
STATEMENTS: Final = "database statements a second, per 1,000 members"
CPU: Final = "coordinator's CPU, per 1,000 members"
BURST: Final = "an audit burst: entries stored of 10,000"
BURST_RATE: Final = "an audit burst: entries a second"
FLOORS: Final = [Floor(BURST, LEAST, float(ENTRIES), absolute=True)]


async def _members(peer: Peer, counted: Counted, count: int, seconds: float, report: Report) -> None:
    """Start the members, wait until each has its queue, and count for some seconds."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def started(stack: AsyncExitStack, number: int) -> aio.PushConsumer:
        settings = ConsumerSettings(managed=True, namesrv=peer.namesrv, instance_name=f"bench{number % EACH}")
        consumer = aio.PushConsumer(f"bench_members_{number // EACH}", settings=settings)
        consumer.subscribe(TOPIC, handler=lambda message: None)
        async with slots:
            return await stack.enter_async_context(consumer)

    async with AsyncExitStack() as stack:
        begun = time.perf_counter()
        consumers = await asyncio.gather(*(started(stack, number) for number in range(count)))
        while sum(read_by(one, TOPIC) for one in consumers) < count * QUEUES // EACH:
            if time.perf_counter() - begun > START_SECONDS_MAX:
                raise LoadError(f"{count} members have not all their queues after {START_SECONDS_MAX:g} s")
            await asyncio.sleep(0.1)
        before, since = await asyncio.to_thread(counted.counts), time.perf_counter()
        await asyncio.sleep(seconds)
        after, took = await asyncio.to_thread(counted.counts), time.perf_counter() - since
        if any(read_by(one, TOPIC) != QUEUES // EACH for one in consumers):
            raise LoadError("queues moved though nobody came or went")
    share = 1000 / count / took
    report.add(REQUESTS, "1/s", OURS, (after.requests - before.requests) * share)
    report.add(STATEMENTS, "1/s", OURS, (after.statements - before.statements) * share)
    report.add(CPU, "%", OURS, (after.cpu_seconds - before.cpu_seconds) * share * 100)


def _burst(counted: Counted, count: int, report: Report) -> None:
    """So many changes over the API at once; then every one of their entries must be in the audit log."""
    name, failures = f"burst{time.time_ns()}", list[BaseException]()

    def write(first: int) -> None:
        connection = counted.connect()
        try:
            for number in range(first, count, WRITERS):
                body = {"messages": number, "age_ms": 0, "reason": f"{name}-{number}"}
                counted.call("PUT", f"/limits/{name}-{first}", body, connection)
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(first,)) for first in range(WRITERS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begun
    if failures:
        raise LoadError(f"a change of the burst failed: {failures[0]}")
    stored = _entries(counted, name)
    if len(stored) != count:
        raise LoadError(f"{len(stored)} of {count} entries are in the audit log")
    report.add(BURST, "entries", OURS, float(len(stored) * ENTRIES // count))
    report.add(BURST_RATE, "1/s", OURS, count / took)


def _entries(counted: Counted, name: str) -> set[str]:
    """The reasons of all entries of the burst, page by page."""
    found: set[str] = set()
    connection: HTTPConnection = counted.connect()
    try:
        for first in range(WRITERS):
            path, before = f"/audit?kind=group&object={name}-{first}&count={PAGE}", ""
            while page := counted.call("GET", path + before, None, connection):
                found |= {one["reason"] for one in page if one["after"]["messages"] is not None}
                before = f"&before_id={page[-1]['id']}"
    finally:
        connection.close()
    return found


def measure(options: Options, report: Report, peer: Peer, counted: Counted) -> None:
    """The burst, then the members."""
    whole = options.rounds > 1
    _burst(counted, ENTRIES if whole else ENTRIES_QUICK, report)
    count = MEMBERS if whole else MEMBERS_QUICK
    asyncio.run(_members(peer, counted, count, options.seconds * 4, report))
