"""Managed groups: plans, how long a change takes, what stops without need, what is handled twice.

The coordinator is a process of its own (`sparrow group coordinate`), and so is the member that is killed.
Compared is what managed consumers and plain ones handle twice while members come and go.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Final

from benchmarks.load import LoadError
from benchmarks.options import Options
from benchmarks.peers import OURS, Peer, create_topic, running
from benchmarks.report import MOST, Floor, Report
from sparrowmq import ConsumerSettings, Message, MessageQueue, aio
from sparrowmq.coordinator.plan import Candidate, explain, make_plan

MEMBERS: Final = 1000
QUEUES: Final = 10_000
TOPIC: Final = "BenchCoordination"
GROUP_QUEUES: Final = 16
STAYING: Final = 3
SESSION_SECONDS: Final = 10.0
FORCE_SECONDS_MAX: Final = 60.0
CHURNS: Final = 3
RATE: Final = 500
PLAN: Final = f"plan of {MEMBERS:,} members and {QUEUES:,} queues, explained: CPU"
JOIN: Final = "a member joins until the plan is in force"
LEAVE: Final = "a member leaves until the plan is in force"
KILL: Final = "a member is killed until the plan is in force"
STOPPED: Final = "queues that stopped without need"
TWICE: Final = "handled twice under churn, {}"
FLOORS: Final = [
    Floor(PLAN, MOST, 1.0, absolute=True),
    Floor(JOIN, MOST, 3.0, absolute=True),
    Floor(LEAVE, MOST, 3.0, absolute=True),
    Floor(KILL, MOST, SESSION_SECONDS + 3.0, absolute=True),
    Floor(STOPPED, MOST, 0.0, absolute=True),
    Floor(TWICE.format("managed"), MOST, 0.0, absolute=True),
]
CHILD: Final = """
import asyncio, sys
from sparrowmq import aio

async def main():
    consumer = aio.PushConsumer(sys.argv[2], namesrv=sys.argv[1], settings=aio.ConsumerSettings(managed=True))
    consumer.subscribe(sys.argv[3], handler=lambda message: None)
    async with consumer:
        await asyncio.Event().wait()

asyncio.run(main())
"""


@contextmanager
def _coordinator(peer: Peer) -> Iterator[None]:
    command = [sys.executable, "-m", "sparrowmq.cli.main", "group", "coordinate", "--port", "0"]
    with subprocess.Popen([*command, "--namesrv", peer.namesrv], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                raise LoadError("the coordinator did not start")
            yield
        finally:
            process.terminate()


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
        for table in (await admin.group_policies(group)).values()
        for policy in table.policies
        for one in policy.queues
        if one.topic == TOPIC
    }


def _read(consumers: list[aio.PushConsumer]) -> int:
    """How many queues the consumers read."""
    return sum(queue.topic == TOPIC for consumer in consumers for queue in consumer.assignment)


async def _in_force(
    admin: aio.Admin, group: str, members: int, started: float, consumers: list[aio.PushConsumer]
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


async def _changes(peer: Peer, group: str, report: Report) -> None:
    """A member joins and leaves, another one is killed, beside three that stay."""
    settings = ConsumerSettings(managed=True)

    def consumer() -> aio.PushConsumer:
        made = aio.PushConsumer(group, namesrv=peer.namesrv, settings=settings)
        made.subscribe(TOPIC, handler=lambda message: None)
        return made

    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(aio.Admin(namesrv=peer.namesrv))
        staying = [await stack.enter_async_context(consumer()) for _ in range(STAYING)]
        await _in_force(admin, group, STAYING, time.perf_counter(), staying)
        stopped = 0
        before = await _owners(admin, group)
        guest, started = consumer(), time.perf_counter()
        await guest.start()
        report.add(JOIN, "s", OURS, await _in_force(admin, group, STAYING + 1, started, [*staying, guest]))
        after = await _owners(admin, group)
        stopped += _needless(before, after)
        started = time.perf_counter()
        await guest.close()
        report.add(LEAVE, "s", OURS, await _in_force(admin, group, STAYING, started, staying))
        before = await _owners(admin, group)
        stopped += _needless(after, before)
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", CHILD, peer.namesrv, group, TOPIC)
        try:
            await _in_force(admin, group, STAYING + 1, time.perf_counter(), staying)
        finally:
            child.kill()
            started = time.perf_counter()
            await child.wait()
        report.add(KILL, "s", OURS, await _in_force(admin, group, STAYING, started, staying))
        report.add(STOPPED, "queues", OURS, float(stopped))


async def _reads(consumer: aio.PushConsumer, count: int) -> None:
    """Wait until a consumer reads so many queues."""
    deadline = time.perf_counter() + FORCE_SECONDS_MAX
    while _read([consumer]) < count:
        if time.perf_counter() > deadline:
            raise LoadError(f"{consumer} has fewer than {count} queues")
        await asyncio.sleep(0.05)


async def _twice(peer: Peer, group: str, *, managed: bool) -> float:
    """Messages that were handled more than once while a member comes and goes; all must be handled."""
    handled: Counter[bytes] = Counter()

    def consumer() -> aio.PushConsumer:
        settings = ConsumerSettings(managed=managed, consume_from="last")
        made = aio.PushConsumer(group, namesrv=peer.namesrv, settings=settings)

        async def handle(message: aio.ReceivedMessage) -> None:
            await asyncio.sleep(0.01)
            handled[message.body] += 1

        made.subscribe(TOPIC, handler=handle)
        return made

    sent, ended = 0, asyncio.Event()
    run = f"{group}-{time.time_ns()}-".encode()

    async def produce() -> None:
        nonlocal sent
        async with aio.Producer(f"{group}_p", namesrv=peer.namesrv) as producer:
            while not ended.is_set():
                await producer.send(Message(TOPIC, run + b"%d" % sent))
                sent += 1
                await asyncio.sleep(1 / RATE)

    def done() -> int:
        return sum(body.startswith(run) for body in handled)

    async with AsyncExitStack() as stack:
        first = await stack.enter_async_context(consumer())
        await _reads(first, GROUP_QUEUES)
        producing = asyncio.create_task(produce())
        for _ in range(CHURNS):
            async with consumer() as guest:
                await _reads(guest, GROUP_QUEUES // 2)
                await asyncio.sleep(1.0)
        ended.set()
        await producing
        deadline = time.perf_counter() + FORCE_SECONDS_MAX
        while done() < sent:
            if time.perf_counter() > deadline:
                raise LoadError(f"{group}: {done()} of {sent} messages were handled")
            await asyncio.sleep(0.05)
    return float(sum(count - 1 for body, count in handled.items() if body.startswith(run)))


def main(options: Options, report: Report) -> None:
    """Plans, then changes and churn on a cluster of ours."""
    for _ in range(options.rounds):
        report.add(PLAN, "s", OURS, _plan())
    with running([OURS]) as (peer,), _coordinator(peer):
        create_topic(peer, TOPIC, GROUP_QUEUES)
        for number in range(options.rounds):
            asyncio.run(_changes(peer, f"bench_changes_{number}", report))
            for kind in ("managed", "not managed"):
                managed = kind == "managed"
                group = f"bench_twice_{number}_{managed}"
                twice = asyncio.run(_twice(peer, group, managed=managed))
                report.add(TWICE.format(kind), "messages", OURS, twice)
