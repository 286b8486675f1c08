"""Processor time and memory of a running process, from `/proc`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of the process so far, in seconds (10 ms steps)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def tree_cpu_seconds(pid: int) -> float:
    """The same of a process and its children; children that have ended do not count."""
    return sum(map(cpu_seconds, (pid, *children(pid))))


def children(pid: int) -> list[int]:
    """The processes that a process has started and that still run."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(text) for one in found for text in one.read_text().split())


@dataclass(frozen=True)
class Memory:
    """Megabytes (10^6): all resident memory, and the share that no file backs."""

    resident: float
    anonymous: float

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.resident + other.resident, self.anonymous + other.anonymous)


def memory(pid: int) -> Memory:
    """What the process holds in memory now."""
    text = Path(f"/proc/{pid}/status").read_text()

    def field(name: str) -> float:
        found = re.search(rf"^{name}:\s+(\d+) kB", text, re.MULTILINE)
        if found is None:
            raise RuntimeError(f"/proc/{pid}/status has no field {name}")
        return int(found[1]) * 1024 / 1e6

    return Memory(field("VmRSS"), field("RssAnon"))
