"""Real processes under churn: members join, leave and are killed, connections are cut, a broker is killed.

Some seconds with locks that end soon; in the long tier over a minute with RocketMQ's own times. What the
members did is read from their journals. `SPARROW_CHURN_SEED=17 pytest tests/crash/test_group_churn.py`
repeats what was done to them (not when the machine did it).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.conftest import LONG
from tests.crash.churn_member import CONCURRENT, ORDERED
from tests.support import free_port, run, until

from sparrowmq import aio
from sparrowmq.core.errors import SparrowError
from sparrowmq.runtime.child import ChildServers

pytestmark = pytest.mark.crash

SEED = int(os.environ.get("SPARROW_CHURN_SEED", "20240301"))
KINDS = ("join", "leave", "kill", "cut", "broker")
SIGNALS = {"leave": signal.SIGTERM, "kill": signal.SIGKILL, "cut": signal.SIGUSR1}
QUEUES = 4
MEMBERS_MAX = 5
SEND_SECONDS = 0.01
"""Between two messages of one topic."""


@dataclass(frozen=True)
class Plan:
    """How long, how fast, and with which times of locks."""

    seconds: float
    pause: tuple[float, float]
    """Between two things that happen."""
    lock_seconds: float
    """How long a broker keeps a lock; members trust it for half of that."""
    settings: dict[str, float]
    settle_seconds: float


QUICK = {"lock_interval": 0.5, "persist_interval": 0.5, "error_delay": 0.2, "route_interval": 0.5}
PLAN = Plan(75, (0.5, 4), 60, {}, 240) if LONG else Plan(6, (0.3, 0.9), 3, QUICK, 60)


class Servers(ChildServers):
    """Servers whose locks of queues end after `lock_seconds`."""

    lock_seconds = PLAN.lock_seconds

    def _program(self) -> list[str]:
        program = (
            f"from sparrowmq.broker.members import locks; locks.LOCK_SECONDS = {self.lock_seconds}; "
            "import sys; "
            "from sparrowmq.runtime.child import _main; sys.exit(_main())"
        )
        return ["-c", program]


Queue = tuple[str, str, int]
"""Topic, broker, queue id."""


@dataclass
class Ledger:
    """What the journals say, in the order of time."""

    directory: Path
    done: dict[str, set[int]] = field(default_factory=lambda: {CONCURRENT: set(), ORDERED: set()})
    _read: dict[Path, int] = field(default_factory=dict)
    events: list[tuple[int, str, int, Queue, int, int]] = field(default_factory=list)

    def read(self) -> None:
        """Take in what was written since the last time."""
        for path in self.directory.iterdir():
            data = path.read_bytes()[self._read.get(path, 0) :]
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            for line in whole.decode().splitlines():
                time, event, pid, topic, broker, queue_id, offset, number = line.split()
                place = (topic, broker, int(queue_id))
                self.events.append((int(time), event, int(pid), place, int(offset), int(number)))
                if event == "D":
                    # the retry topic of the concurrent group has its messages, too
                    self.done[ORDERED if topic.endswith(ORDERED) else CONCURRENT].add(int(number))

    def duplicates(self, topic: str) -> tuple[int, int]:
        """(deliveries of stored messages, how many were handled to the end again)."""
        ends = Counter((place, offset) for _, event, _, place, offset, _ in self.events if event == "D")
        starts = sum(event == "S" and place[0].endswith(topic) for _, event, _, place, _, _ in self.events)
        return starts, sum(count - 1 for (place, _), count in ends.items() if place[0].endswith(topic))

    def out_of_order(self) -> list[str]:
        """Ordered messages that began before the one before them was done."""
        following: dict[Queue, int] = defaultdict(int)
        found = []
        for time, event, pid, place, offset, _ in sorted(self.events):
            if place[0] != ORDERED:
                continue
            if event == "S" and offset > following[place]:
                found.append(f"{place} offset {offset} began before {following[place]} (pid {pid}, {time})")
            if event == "D" and offset == following[place]:
                following[place] += 1
        return found

    def overlaps(self) -> int:
        """Ordered messages that began while another member was at work on the same queue."""
        at_work: dict[Queue, set[int]] = defaultdict(set)
        last: dict[int, int] = {}
        for time, _, pid, *_ in sorted(self.events):
            last[pid] = time
        found = 0
        for time, event, pid, place, _, _ in sorted(self.events):
            if place[0] == ORDERED and event == "S":
                others = {other for other in at_work[place] - {pid} if last[other] >= time}
                found += bool(others)
                at_work[place].add(pid)
            elif place[0] == ORDERED:
                at_work[place].discard(pid)
        return found


class Churn:
    """One run: servers, members, and what happens to them."""

    def __init__(self, directory: Path) -> None:
        self.rng = random.Random(SEED)
        self.directory = directory
        self.journals = directory / "journals"
        self.journals.mkdir()
        self.ledger = Ledger(self.journals)
        self.log = directory / "log"
        self.base = Servers(self._settings("broker-a"), {"listenPort": "0"}, self.log)
        self.other: ChildServers | None = None
        self.port = free_port()
        self.members: list[subprocess.Popen[bytes]] = []
        self.left: list[subprocess.Popen[bytes]] = []
        self.started: dict[int, asyncio.Task[bytes]] = {}
        self.events: Counter[str] = Counter()
        self.sent: dict[str, set[int]] = {CONCURRENT: set(), ORDERED: set()}
        self.refused = 0
        self._count = 0

    def _settings(self, name: str) -> dict[str, str]:
        return {
            "brokerName": name,
            "storePathRootDir": str(self.directory / name),
            "listenPort": "0",
            "mappedFileSizeCommitLog": str(4 << 20),
            "diskSpaceWarningLevelRatio": "100",
        }

    # Servers

    def start_other(self) -> None:
        """Start the broker that is killed at times, at the same address each time."""
        settings = {**self._settings("broker-b"), "listenPort": str(self.port)}
        settings["namesrvAddr"] = self.base.nameserver_address
        self.other = Servers(settings, None, self.log)
        self.other.start()

    async def prepare(self) -> None:
        """Topics on both brokers, and the first members."""
        async with aio.Admin(namesrv=self.base.nameserver_address) as admin:
            await until(lambda: admin_knows_both(admin))
            for topic in (CONCURRENT, ORDERED):
                await admin.topics.create(topic, queues=QUEUES)
        for _ in range(3):
            self.join()
        await asyncio.gather(*self.started.values())

    # Members

    def join(self) -> None:
        """A new member."""
        self._count += 1
        journal = self.journals / str(self._count)
        with self.log.open("ab") as errors:
            member = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "tests.crash.churn_member",
                    self.base.nameserver_address,
                    str(journal),
                    json.dumps(PLAN.settings),
                    str(PLAN.lock_seconds),
                ],
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.members.append(member)
        assert member.stdout is not None
        self.started[member.pid] = asyncio.create_task(asyncio.to_thread(member.stdout.readline))

    def happen(self, kind: str) -> None:
        """One thing of those that happen."""
        running = [member for member in self.members if self.started[member.pid].done()]
        if kind in SIGNALS and len(running) < 2:
            kind = "join"
        if kind == "join" and len(self.members) >= MEMBERS_MAX:
            return
        self.events[kind] += 1
        if kind == "join":
            self.join()
            return
        if kind == "broker":
            assert self.other is not None
            self.other.kill()
            return
        member = self.rng.choice(running)
        member.send_signal(SIGNALS[kind])
        if kind != "cut":
            self.members.remove(member)
            self.left.append(member)

    async def churn(self) -> None:
        """Let everything happen at least once, then whatever comes, until the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + PLAN.seconds
        while (missing := [kind for kind in KINDS if not self.events[kind]]) or loop.time() < end:
            await asyncio.sleep(self.rng.uniform(*PLAN.pause))
            kind = self.rng.choice(missing or KINDS)
            self.happen(kind)
            if kind == "broker":
                await asyncio.sleep(self.rng.uniform(0, PLAN.pause[1]))
                await asyncio.to_thread(self.start_other)

    async def send(self, producer: aio.Producer, topic: str) -> None:
        """Messages at a steady rate, until cancelled. What is not acknowledged is not counted."""
        number = 0
        while True:  # ends by cancellation when the churn is over
            await asyncio.sleep(SEND_SECONDS)
            number += 1
            try:
                await producer.send(aio.Message(topic, b"%d" % number))
            except SparrowError:
                self.refused += 1
            else:
                self.sent[topic].add(number)

    # The run

    async def run(self) -> None:
        """Churn, come to rest, close the members."""
        await self.prepare()
        async with aio.Producer("churners", namesrv=self.base.nameserver_address) as producer:
            sending = [asyncio.create_task(self.send(producer, topic)) for topic in self.sent]
            await self.churn()
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
        if not self.members:
            self.join()
        await until(self.is_all_done, PLAN.settle_seconds)
        await until(self.is_all_committed, PLAN.settle_seconds)
        await asyncio.gather(*self.started.values())
        for member in self.members:
            member.send_signal(signal.SIGTERM)
        statuses = [await asyncio.to_thread(member.wait, 60) for member in (*self.members, *self.left)]
        assert set(statuses) <= {0, -signal.SIGKILL}, statuses
        assert statuses.count(-signal.SIGKILL) == self.events["kill"]
        assert await self.is_all_committed(), "closing put no offset back"

    async def is_all_committed(self) -> bool:
        """Whether the groups' offsets stand at the end of every queue."""
        async with aio.Admin(namesrv=self.base.nameserver_address) as admin:
            rows = [row for group in self.sent for row in await admin.groups.progress(group)]
        return len(rows) >= 4 * QUEUES and not any(row.lag for row in rows)

    def is_all_done(self) -> bool:
        """Whether every acknowledged message was handled."""
        self.ledger.read()
        return all(sent <= self.ledger.done[topic] for topic, sent in self.sent.items())

    def end(self) -> None:
        """Leave nothing behind."""
        for member in (*self.members, *self.left):
            member.kill()
            member.wait()
            assert member.stdout is not None
            member.stdout.close()
        for servers in (self.other, self.base):
            if servers is not None:
                servers.kill()

    def __str__(self) -> str:
        self.ledger.read()
        lines = [f"seed {SEED}: {dict(self.events)}, {self.refused} sends refused"]
        for topic, sent in self.sent.items():
            starts, again = self.ledger.duplicates(topic)
            lost = sorted(sent - self.ledger.done[topic])
            lines.append(
                f"{topic}: {len(sent)} sent, {starts} deliveries, {again} duplicates, "
                f"{len(lost)} lost {lost[:10]}"
            )
        wrong = self.ledger.out_of_order()
        lines.append(f"out of order: {len(wrong)} {wrong[:5]}, overlaps: {self.ledger.overlaps()}")
        return "; ".join(lines)


async def admin_knows_both(admin: aio.Admin) -> bool:
    """Whether both brokers are registered."""
    return len((await admin.brokers.cluster_info()).brokers) == 2


@pytest.fixture
def churn(tmp_path: Path) -> Iterator[Churn]:
    made = Churn(tmp_path)
    try:
        made.base.start()
        made.start_other()
        yield made
    finally:
        made.end()


@pytest.mark.timeout(600 if LONG else 120)
@pytest.mark.proves("client:C-53", "client:C-54", "client:C-55", "client:D-109")
def test_real_members_lose_nothing_and_keep_order(churn: Churn) -> None:
    try:
        run(churn.run())
    finally:
        print(churn)  # also how many duplicates there were
    assert all(churn.events[kind] for kind in KINDS), churn
    assert not churn.ledger.out_of_order(), churn
    for topic, sent in churn.sent.items():
        assert sent <= churn.ledger.done[topic], churn
        starts, _ = churn.ledger.duplicates(topic)
        assert starts >= len(sent) > 0
