"""The proxy's gate for turns: what it costs a call that need not wait, and what it gives others when brokers
answer many calls at once.

The work behind the gate is a loop of additions, as long as it takes to make a message. A turn's length is the
processor time of the loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from benchmarks.options import Options
from benchmarks.peers import OURS
from benchmarks.report import Floor, Report
from sparrowmq.proxy.server import MESSAGES_OF_TURN
from sparrowmq.transport.slices import TurnGate

CALLS: Final = 100_000
"""Calls of one client, one after the other."""
CLIENTS: Final = 64
MESSAGES: Final = 32
"""Messages of each client's answer."""
ADDITIONS: Final = 3200
"""Some 45 µs: one message."""

COST: Final = "one client: the gate, a message"
LONGEST: Final = f"{CLIENTS} answers of {MESSAGES} messages at once: longest turn of the loop"
WITHOUT: Final = f"{LONGEST}, without the gate"
ALL: Final = f"{CLIENTS} answers of {MESSAGES} messages at once: processor time of all"

FLOORS: Final[list[Floor]] = []


async def alone(calls: int) -> float:
    """Microseconds of the gate for a message of the only client."""
    gate = TurnGate(MESSAGES_OF_TURN)
    began = time.thread_time()
    for at in range(calls):
        await gate.passed(1)
        if at % MESSAGES == 0:
            await asyncio.sleep(0)  # the answer is sent
    with_gate = time.thread_time() - began
    began = time.thread_time()
    for at in range(calls):
        if at % MESSAGES == 0:
            await asyncio.sleep(0)
    return (with_gate - (time.thread_time() - began)) / calls * 1e6


class Turns:
    """The longest turn of the running loop, in seconds of its thread's processor time."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._began = time.thread_time()
        self._ended = False

    def start(self) -> None:
        """Look once in each turn until `end`."""
        now = time.thread_time()
        self.longest, self._began = max(self.longest, now - self._began), now
        if not self._ended:
            asyncio.get_running_loop().call_soon(self.start)

    def end(self) -> float:
        """Stop looking; returns the longest turn."""
        self._ended = True
        return self.longest


async def crowd(gate: TurnGate | None) -> tuple[float, float]:
    """Milliseconds of the longest turn and of all turns while all clients get their messages."""

    async def answer() -> None:
        for _ in range(MESSAGES):
            if gate is not None:
                await gate.passed(1)
            sum(range(ADDITIONS))
        await asyncio.sleep(0)

    turns, began = Turns(), time.thread_time()
    turns.start()
    await asyncio.gather(*(answer() for _ in range(CLIENTS)))
    return turns.end() * 1e3, (time.thread_time() - began) * 1e3


def main(options: Options, report: Report) -> None:
    """Ours alone: the gate is a part of our proxy."""
    for _ in range(options.rounds):
        report.add(COST, "µs", OURS, asyncio.run(alone(CALLS)))
        longest, whole = asyncio.run(crowd(TurnGate(MESSAGES_OF_TURN)))
        report.add(LONGEST, "ms", OURS, longest)
        report.add(ALL, "ms", OURS, whole)
        longest, whole = asyncio.run(crowd(None))
        report.add(WITHOUT, "ms", OURS, longest)
        report.add(f"{ALL}, without the gate", "ms", OURS, whole)
