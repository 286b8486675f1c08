"""Random walks through what users and operators do to a cluster, with the books kept beside it.

A walk is a list of steps, each a name and a number that says which topic, which queue, how many. So a list
can be made shorter and run again. `python -m tests.simulation.whole.walk --seed 7` runs one, and `--rounds`
says how many.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.simulation.whole.books import Books, Counted, Sent
from tests.simulation.whole.members import GROUPS, Members
from tests.simulation.whole.network import NetworkLoop
from tests.simulation.whole.world import NAME_SERVER, Cluster, MovedClock, simulated

from sparrowmq.aio import Admin, Message, Producer, ProducerSettings
from sparrowmq.core.errors import BrokerError, SparrowError
from sparrowmq.core.figures.exposition import Exposition

TOPICS = ("A", "B")
STEPS_MAX = 14
DRAIN_SECONDS = 200
"""Virtual time after which nothing may be left."""
SETTINGS = {
    "auto_create_topic_enable": False,
    "message_delay_level": "1s 2s 3s 4s 5s",
    "revive_queue_num": 1,
    "transaction_check_interval": 2000,
    "transaction_time_out": 2000,
}
Step = tuple[str, int]


class Walk:
    """One cluster, its clients and the books."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.books = Books(GROUPS)
        self.members = Members(self.books, TOPICS)
        self.admin = Admin(namesrv=NAME_SERVER)
        self.producer = Producer(
            "producers",
            settings=ProducerSettings(namesrv=NAME_SERVER, client_ip="127.0.0.1", instance_name="producer"),
        )
        self._queues: dict[str, int] = {}

    async def run(self, steps: list[Step]) -> list[str]:
        """Take the steps, let everything drain; what does not balance."""
        await self.cluster.start()
        await self.admin.start()
        await self.producer.start()
        await self.members.join_all()
        for name, number in steps:
            with suppress(SparrowError):
                await STEPS[name](self, number)
        found = await self._balance()
        await self.members.leave_all()
        await self.producer.close()
        await self.admin.close()
        await self.cluster.close()
        return found

    # Steps

    async def create(self, number: int) -> None:
        """Create a topic or give it more queues."""
        topic, queues = TOPICS[number % 2], 1 + number % 3
        if queues > self._queues.get(topic, 0):
            await self.admin.create_topic(topic, queues=queues)
            self._queues[topic] = queues

    async def delete(self, number: int) -> None:
        """Delete a topic with its messages."""
        topic = TOPICS[number % 2]
        self._queues.pop(topic, None)
        try:
            await self.admin.delete_topic(topic)
        finally:
            self.books.lose("its topic was deleted", topic=topic)

    async def send(self, number: int) -> None:
        """Send a few messages, of which handlers fail with some."""
        for n in range(1 + number % 4):
            topic = TOPICS[(number + n) % 2]
            await self._send(self.books.new(topic, "plain", failures=(0, 0, 1)[(number + n) % 3]))

    async def wait(self, number: int) -> None:
        """Time passes."""
        await asyncio.sleep((0.1, 1.0, 7.0, 30.0)[number % 4])

    async def stop(self, number: int) -> None:
        """A clean stop of the broker; it is away for a while."""
        await self.cluster.stop_broker()
        await asyncio.sleep((0, 0.5, 6)[number % 3])
        await self.cluster.start_broker()

    async def kill(self, number: int) -> None:
        """The broker's process ends without a word."""
        await self.cluster.kill_broker()
        await asyncio.sleep((0, 0.5, 6)[number % 3])
        await self.cluster.start_broker()

    async def leave(self, number: int) -> None:
        """A group has no member any more."""
        await self.members.leave(GROUPS[number % len(GROUPS)])

    async def join(self, number: int) -> None:
        """It has one again."""
        await self.members.join(GROUPS[number % len(GROUPS)])

    async def _send(self, sent: Sent) -> None:
        await self.producer.send(Message(sent.topic, str(sent.number).encode()))
        sent.is_acknowledged = True

    # The books

    async def _balance(self) -> list[str]:
        await self.members.leave_all()
        found = self.books.problems(await self.counted())
        await self.members.join_all()
        end = asyncio.get_running_loop().time() + DRAIN_SECONDS
        while True:
            await asyncio.sleep(1)
            counted, left = await self.counted(), {group: self.books.open(group) for group in GROUPS}
            if counted.is_drained and not any(left.values()):
                return found
            if asyncio.get_running_loop().time() > end:
                break
        for group, numbers in left.items():
            if numbers:
                found.append(f"group {group} never got {self.books.told(numbers)}")
        return [*found, f"nothing moves any more, and the broker counts {counted}"]

    async def counted(self) -> Counted:
        """What the broker says now."""
        lag = {}
        for group in GROUPS:
            try:
                progress = await self.admin.group_progress(group)
            except BrokerError:
                continue
            lag |= {(group, row.queue.topic, row.queue.queue_id): row.lag for row in progress}
        await self._unknown(lag)
        figures = self._figures()
        dead = {status.group: status.messages for status in await self.admin.dead_letter_groups()}
        return Counted(
            lag,
            delayed=figures["sparrow_delayed_messages"],
            timed=figures["sparrow_timer_messages"] + figures["rocketmq_timer_enqueue_lag"],
            halves=figures["sparrow_open_transactions"],
            dead=dead,
        )

    async def _unknown(self, lag: dict[tuple[str, str, int], int]) -> None:
        """A group that committed nothing in a topic has no lag there. All its messages wait for it."""
        known = {(group, topic) for group, topic, _ in lag}
        for topic in self._queues:
            for row in await self.admin.topic_status(topic):
                for group in GROUPS:
                    if (group, topic) not in known:
                        lag[group, topic, row.queue.queue_id] = row.messages

    def _figures(self) -> dict[str, int]:
        """Sums of the broker's metrics."""
        into = Exposition(1000)
        assert self.cluster.broker is not None
        for _ in self.cluster.broker.operated.collect(into):
            pass
        return {
            family.name: sum(int(value) for _, value in family.points)  # type: ignore[arg-type]
            for family in into.families
            if family.kind != "histogram"
        }


STEPS: dict[str, Callable[[Walk, int], Awaitable[None]]] = {
    step.__name__: step
    for step in (
        Walk.create,
        Walk.delete,
        Walk.send,
        Walk.wait,
        Walk.stop,
        Walk.kill,
        Walk.leave,
        Walk.join,
    )
}
WEIGHTS = {"send": 6, "create": 3, "wait": 3}
"""How often steps are taken; the others count once."""


def steps_of(seed: int) -> list[Step]:
    """The steps of a seed."""
    rng = random.Random(seed)
    names = list(STEPS)
    weights = [WEIGHTS.get(name, 1) for name in names]
    chosen = rng.choices(names, weights, k=rng.randint(4, STEPS_MAX))
    return [("create", rng.randrange(60)), *((name, rng.randrange(60)) for name in chosen)]


def run_steps(steps: list[Step], root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What does not balance after some steps, in an empty world."""
    shutil.rmtree(root, ignore_errors=True)
    with simulated(monkeypatch) as clients, asyncio.Runner(loop_factory=NetworkLoop) as runner:
        return runner.run(_walk(steps, root, clients))


async def _walk(steps: list[Step], root: Path, clients: MovedClock) -> list[str]:
    return await Walk(Cluster(root, clients, **SETTINGS)).run(steps)


def failure(seed: int, root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the walk of a seed shows, with the fewest of its steps that fail; nothing if it succeeds."""
    steps, at = steps_of(seed), 0
    found = run_steps(steps, root, monkeypatch)
    while found and at < len(steps):
        fewer = steps[:at] + steps[at + 1 :]
        if again := run_steps(fewer, root, monkeypatch):
            steps, found = fewer, again
        else:
            at += 1
    return "\n  ".join([f"seed {seed}, which the steps {steps} show:", *found]) if found else ""


def main(arguments: list[str]) -> int:
    """Run walks; each that fails is told with the fewest steps that fail."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args(arguments)
    failed, began = 0, time.process_time()
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as monkeypatch:
        root = Path(directory) / "walk"
        for seed in range(given.seed, given.seed + given.rounds):
            if text := failure(seed, root, monkeypatch):
                failed += 1
                print(text, flush=True)
    print(f"{given.rounds} walks, {failed} failed, {time.process_time() - began:.1f} s of the processor")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
