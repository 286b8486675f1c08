"""Which faults a round does, and when: made from its seed alone. Pure.

The same seed gives the same faults at the same seconds. What the servers do in between is up to them, so a
round is repeated nearly, not exactly.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

KILL: Final = "kill"
"""`kill -9`, and a new start on the same disk."""
FREEZE: Final = "freeze"
"""SIGSTOP, and SIGCONT."""
CUT: Final = "cut"
"""Bytes wait in both directions, between a part and all others; they arrive late."""
CUT_TO: Final = "cut-to"
"""The same for what the part gets: what it says arrives."""
CUT_FROM: Final = "cut-from"
"""The same for what the part says."""
SLOW: Final = "slow"
"""Everything is late by some tenths of a second."""
RESET: Final = "reset"
"""Connections end in the middle of what they carry, again and again."""

MASTER: Final = "master"
SLAVE: Final = "slave"
COORDINATOR: Final = "coordinator"
NAME_SERVER: Final = "nameserver"

OF_PROCESSES: Final = {KILL: 4, FREEZE: 3}
OF_NETWORKS: Final = {CUT: 3, CUT_TO: 1, CUT_FROM: 1, SLOW: 2, RESET: 2}
PARTS: Final = {MASTER: 6, SLAVE: 3, COORDINATOR: 2, NAME_SERVER: 1}
"""How often each comes, compared with the others."""

FIRST_SECONDS: Final = (0.5, 1.5)
PAUSE_SECONDS: Final = (0.5, 3.0)
"""Between the beginnings of two faults, so that they may overlap."""
LENGTH_SECONDS: Final = {
    KILL: (0.0, 4.0),
    FREEZE: (0.3, 6.0),
    CUT: (0.5, 6.0),
    CUT_TO: (0.5, 6.0),
    CUT_FROM: (0.5, 6.0),
    SLOW: (1.0, 5.0),
    RESET: (0.5, 4.0),
}
DELAY_SECONDS: Final = (0.05, 0.6)


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault: seconds after the begin of the faults, what, to which part, for how many seconds.

    `delay` is how late bytes are, for `slow`.
    """

    at: float
    kind: str
    part: str
    length: float
    delay: float = 0.0

    def __str__(self) -> str:
        what = f"{self.kind} {self.part}, {self.length:.1f} s"
        return f"{what}, {self.delay * 1000:.0f} ms late" if self.delay else what


def plan_faults(seed: int, seconds: float, *, with_network: bool = True) -> tuple[PlannedFault, ...]:
    """The faults of a round whose faults begin within `seconds`, in their order; at least one."""
    rng = random.Random(f"torture {seed}")
    kinds = OF_PROCESSES | (OF_NETWORKS if with_network else {})
    found: list[PlannedFault] = []
    at = rng.uniform(*FIRST_SECONDS)
    while at < seconds or not found:
        kind = _drawn(rng, kinds)
        length = rng.uniform(*LENGTH_SECONDS[kind])
        delay = rng.uniform(*DELAY_SECONDS) if kind == SLOW else 0.0
        found.append(PlannedFault(round(at, 3), kind, _drawn(rng, PARTS), round(length, 3), round(delay, 3)))
        at += rng.uniform(*PAUSE_SECONDS)
    return tuple(found)


def _drawn(rng: random.Random, weights: dict[str, int]) -> str:
    return rng.choices(tuple(weights), tuple(weights.values()))[0]
