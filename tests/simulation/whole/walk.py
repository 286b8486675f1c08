"""Random walks through what users and operators do to a cluster, with the books kept beside it.

A walk is a list of steps, each the name of an act and a number. So a list can be made shorter and run again.
`python -m tests.simulation.whole.walk --seed 7` runs one walk, and `--rounds` says how many.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from tests.simulation.whole.acts import ACTS, Acts
from tests.simulation.whole.counts import counted
from tests.simulation.whole.members import BROADCAST, GROUPS, INVISIBLE_SECONDS
from tests.simulation.whole.network import NetworkLoop
from tests.simulation.whole.world import Cluster, MovedClock, simulated

from sparrowmq.core.errors import SparrowError

Step = tuple[str, int]
STEPS_MAX: Final = 16
DRAIN_SECONDS: Final = 240
"""Virtual time after which nothing may be left."""
SETTINGS: Final = {
    "auto_create_topic_enable": False,
    "clean_resource_interval": 1000,
    "message_delay_level": "1s 2s 3s 4s 5s",
    "revive_queue_num": 1,
    "transaction_check_interval": 2000,
    "transaction_time_out": 2000,
}
WEIGHTS: Final = {"send": 6, "create": 3, "wait": 3, "send_to_queue": 2, "delay": 2, "time": 2, "transact": 2}
"""How often acts are chosen; the others count once."""
EVERYDAY: Final = ("create", "delete", "send", "wait", "stop", "kill", "leave", "join")
"""Acts of each walk."""
KINDS: Final = (
    ("force",),
    ("send_to_queue",),
    ("delay",),
    ("time",),
    ("transact",),
    ("limit_retries",),
    ("shrink", "delay", "transact"),
    ("reset_to_first",),
    ("reset_to_last",),
    ("subscribe",),
    ("empty",),
    ("change_delays",),
    ("resend", "limit_retries"),
    ("set_broker_clock", "delay", "time"),
    ("set_client_clock", "delay", "time"),
    ("send_big", "change_size", "delay"),
    ("send_big", "change_size", "time", "transact"),
    ("pause",),
    ("pause", "empty"),
    ("expire", "send_big", "send_to_queue"),
)
"""Acts that walks of one kind take, too."""


def steps_of(seed: int, acts: Iterable[str] = ()) -> list[Step]:
    """The steps of a seed."""
    rng = random.Random(seed)
    names = list(acts or ACTS)
    weights = [WEIGHTS.get(name, 1) for name in names]
    chosen = rng.choices(names, weights, k=rng.randint(4, STEPS_MAX))
    return [("create", rng.randrange(60)), *((name, rng.randrange(60)) for name in chosen)]


def run_steps(steps: list[Step], root: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What does not balance after some steps, in an empty world."""
    shutil.rmtree(root, ignore_errors=True)
    with simulated(monkeypatch) as clients, asyncio.Runner(loop_factory=NetworkLoop) as runner:
        return runner.run(_walk(steps, root, clients))


async def _walk(steps: list[Step], root: Path, clients: MovedClock) -> list[str]:
    acts = Acts(Cluster(root, clients, **SETTINGS))
    await acts.start()
    for name, number in steps:
        with suppress(SparrowError):
            await ACTS[name](acts, number)
    found = await _balance(acts)
    await acts.close()
    return found


async def _balance(acts: Acts) -> list[str]:
    """What does not balance when all members have left, or does not end when they are back."""
    books, members, loop = acts.books, acts.members, asyncio.get_running_loop()
    await members.leave_all()
    members.sort_out()
    # A broker that was restarted does not count what POP had handed out before.
    await asyncio.sleep(2 * INVISIBLE_SECONDS)
    found = books.problems(await counted(acts), but=[BROADCAST])
    acts.cluster.clock.ahead_ms = acts.latest_ms  # what was stored with a later time is due soon
    await members.join_all()
    end, pause = loop.time() + DRAIN_SECONDS, 1.0
    while True:
        await asyncio.sleep(pause)
        pause *= 1.3
        counts = await counted(acts)
        left = {group: set(books.open(group)) - counts.dead.get(group, set()) for group in GROUPS}
        if counts.is_drained and not any(left.values()):
            return found + books.problems(counts, but=[BROADCAST])
        if loop.time() > end:
            break
    for group, numbers in left.items():
        if numbers:
            found.append(f"group {group} never got {books.told(sorted(numbers))}")
    return [*found, f"nothing moves any more, and the broker counts {counts}"]


def failure(seed: int, root: Path, monkeypatch: pytest.MonkeyPatch, acts: Iterable[str] = ()) -> str:
    """What the walk of a seed shows, with the fewest of its steps that fail; nothing if it succeeds."""
    steps, at = steps_of(seed, acts), 0
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
    parser.add_argument("--acts", nargs="*", default=[], help="only these")
    given = parser.parse_args(arguments)
    failed, began = 0, time.process_time()
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as monkeypatch:
        for seed in range(given.seed, given.seed + given.rounds):
            if text := failure(seed, Path(directory) / "walk", monkeypatch, given.acts):
                failed += 1
                print(text, flush=True)
    print(f"{given.rounds} walks, {failed} failed, {time.process_time() - began:.1f} s of the processor")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
