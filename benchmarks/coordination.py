"""Managed groups: plans, how long a change takes, what stops without need, what is handled twice, the cost.

The coordinator is a process of its own, and so are the members that are killed, all of them at once:
each has a consumer in each of several groups. Compared is what managed consumers, plain ones and Java's
handle twice while members come and go.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

from benchmarks import churn, fencing, members
from benchmarks.churn import read_by
from benchmarks.coordinator import coordinator
from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS, Peer, create_topic, running
from benchmarks.report import MOST, Floor, Report
from sparrowmq import ConsumerSettings, MessageQueue, aio
from sparrowmq.coordinator.groups.plan import Candidate, explain, make_plan

MEMBERS: Final = 1000
QUEUES: Final = 10_000
TOPIC: Final = "BenchCoordination"
GROUP_QUEUES: Final = 16
STAYING: Final = 3
CHANGES: Final = (3, 40)
"""Joins, and as many leaves: quick and full."""
KILLS: Final = ((1, 4), (3, 10))
"""Processes that are killed one after the other, and groups each has a member in."""
SESSION_SECONDS: Final = 10.0
FORCE_SECONDS_MAX: Final = 60.0
PLAN: Final = f"plan of {MEMBERS:,} members and {QUEUES:,} queues, explained: CPU"
JOIN: Final = "a member joins until the plan is in force"
LEAVE: Final = "a member leaves until the plan is in force"
KILL: Final = "a member is killed until the plan is in force"
P50: Final = "{}: p50"
P99: Final = "{}: p99"
STOPPED: Final = "queues that stopped without need"
FLOORS: Final = [
    Floor(PLAN, MOST, 1.0, absolute=True),
    Floor(P99.format(JOIN), MOST, 3.0, absolute=True),
    Floor(P99.format(LEAVE), MOST, 3.0, absolute=True),
    Floor(P99.format(KILL), MOST, SESSION_SECONDS + 3.0, absolute=True),
    Floor(STOPPED, MOST, 0.0, absolute=True),
    *churn.FLOORS,
    *fencing.FLOORS,
    *members.FLOORS,
]
CHILD: Final = """
import asyncio, sys
from contextlib import AsyncExitStack
from sparrowmq import aio

async def main():
    async with AsyncExitStack() as stack:
        for group in sys.argv[3:]:
            settings = aio.ConsumerSettings(managed=True, namesrv=sys.argv[1])
            consumer = aio.PushConsumer(group, settings=settings)
            consumer.subscribe(sys.argv[2], handler=lambda message: None)
            await stack.enter_async_context(consumer)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that so large a share of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _plan() -> float:
    """Seconds of processor time for a plan after ten of a thousand members went and ten came."""
    queues = [MessageQueue(f"T{number // 100:03}", "broker-a", number % 100) for number in range(QUEUES)]
    members = [Candidate(f"10.0.0.1@{number:04}", joined=number) for number in range(MEMBERS + 10)]
    before = make_plan("g", queues, members[:MEMBERS])
    started = time.process_time()
    explain(make_plan("g", queues, members[10:], before=before))
    return time.process_time() - started


async def _owners(admin: aio.Admin, group: str) -> dict[int, tuple[str, int]]:
    """Owner and generation of each queue, as brokers enforce them."""
    return {
        one.queue_id: (one.owner, one.generation)
        for table in (await admin.policies.list(group)).values()
        for policy in table.policies
        for one in policy.queues
        if one.topic == TOPIC
    }


def _read(consumers: Sequence[aio.PushConsumer]) -> int:
    """How many queues the consumers read."""
    return sum(read_by(consumer, TOPIC) for consumer in consumers)


async def _in_force(
    admin: aio.Admin, group: str, members: int, started: float, consumers: Sequence[aio.PushConsumer]
) -> float:
    """Seconds since `started` until so many members have equal shares, and `consumers` read theirs."""
    least = GROUP_QUEUES // members * len(consumers)
    while True:
        owners = await _owners(admin, group)
        shares = Counter(owner for owner, _ in owners.values() if owner)
        is_balanced = len(shares) == members and max(shares.values()) - min(shares.values()) <= 1
        if is_balanced and sum(shares.values()) == GROUP_QUEUES and _read(consumers) >= least:
            return time.perf_counter() - started
        if time.perf_counter() - started > FORCE_SECONDS_MAX:
            raise LoadError(f"{group}: no plan for {members} members after {FORCE_SECONDS_MAX:g} s: {shares}")
        await asyncio.sleep(0.02)


def _needless(before: dict[int, tuple[str, int]], after: dict[int, tuple[str, int]]) -> int:
    """Queues that have another generation although their owner is the same."""
    return sum(after[queue][0] == before[queue][0] and after[queue] != before[queue] for queue in before)


def _consumer(peer: Peer, group: str) -> aio.PushConsumer:
    made = aio.PushConsumer(group, settings=ConsumerSettings(managed=True, namesrv=peer.namesrv))
    made.subscribe(TOPIC, handler=lambda message: None)
    return made


async def _joins(peer: Peer, count: int, times: dict[str, list[float]]) -> int:
    """A member joins and leaves, again and again, beside three that stay; queues that stopped for nothing."""
    group, stopped = f"bench_joins_{time.time_ns()}", 0
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(aio.Admin(namesrv=peer.namesrv))
        staying = [await stack.enter_async_context(_consumer(peer, group)) for _ in range(STAYING)]
        await _in_force(admin, group, STAYING, time.perf_counter(), staying)
        before = await _owners(admin, group)
        for _ in range(count):
            guest, started = _consumer(peer, group), time.perf_counter()
            await guest.start()
            try:
                took = await _in_force(admin, group, STAYING + 1, started, [*staying, guest])
                after = await _owners(admin, group)
                started = time.perf_counter()
            finally:
                await guest.close()
            times[JOIN].append(took)
            times[LEAVE].append(await _in_force(admin, group, STAYING, started, staying))
            stopped += _needless(before, after)
            before = await _owners(admin, group)
            stopped += _needless(after, before)
    return stopped


async def _kills(peer: Peer, processes: int, groups: int, times: dict[str, list[float]]) -> int:
    """A process with a member in each of several groups is killed; queues that stopped for nothing."""
    names, stopped = [f"bench_kills_{time.time_ns()}_{number}" for number in range(groups)], 0
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(aio.Admin(namesrv=peer.namesrv))
        staying = {name: await stack.enter_async_context(_consumer(peer, name)) for name in names}

        async def in_force(members: int, started: float) -> list[float]:
            waits = (_in_force(admin, name, members, started, [one]) for name, one in staying.items())
            return list(await asyncio.gather(*waits))

        for _ in range(processes):
            command = (sys.executable, "-c", CHILD, peer.namesrv, TOPIC, *names)
            child = await asyncio.create_subprocess_exec(*command)
            try:
                await in_force(2, time.perf_counter())
                before = {name: await _owners(admin, name) for name in names}
            finally:
                child.kill()
                started = time.perf_counter()
                await child.wait()
            times[KILL] += await in_force(1, started)
            stopped += sum([_needless(before[name], await _owners(admin, name)) for name in names])
    return stopped


def _changes(options: Options, peer: Peer, report: Report) -> None:
    """Joins, leaves and kills, with their quantiles."""
    whole = options.rounds > 1
    times: dict[str, list[float]] = {JOIN: [], LEAVE: [], KILL: []}
    stopped = asyncio.run(_joins(peer, CHANGES[whole], times))
    stopped += asyncio.run(_kills(peer, *KILLS[whole], times))
    for what, found in times.items():
        report.add(P50.format(what), "s", OURS, quantile(found, 0.5))
        report.add(P99.format(what), "s", OURS, quantile(found, 0.99))
    report.add(STOPPED, "queues", OURS, float(stopped))


def main(options: Options, report: Report) -> None:
    """Plans and fences; then changes, churn and load on a cluster of ours."""
    for _ in range(options.rounds):
        report.add(PLAN, "s", OURS, _plan())
    fencing.measure(options, report)
    with running([OURS]) as (peer,), coordinator(peer.namesrv) as counted:
        create_topic(peer, TOPIC, GROUP_QUEUES)
        create_topic(peer, churn.TOPIC, churn.QUEUES)
        create_topic(peer, members.TOPIC, members.QUEUES)
        _changes(options, peer, report)
        churn.measure(options, report, peer)
        members.measure(options, report, peer, counted)
