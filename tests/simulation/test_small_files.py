"""Files that are replaced as a whole: after any crash and any fault the old content is there or the new.

What was saved before stays; a save that was not refused is there. All crashes of all operations are taken.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.disk import Fault, SimulatedDisk
from tests.simulation.histories import histories, write

from sparrowmq.client.consumer.offset_store import read_offsets, write_offsets
from sparrowmq.core.errors import SparrowError
from sparrowmq.core.message import MessageQueue
from sparrowmq.files import disk
from sparrowmq.nameserver.kv import KeyValues
from sparrowmq.store.recovery.safe_point import SafePoint
from sparrowmq.store.tables.config_file import ConfigFile
from sparrowmq.store.tables.producer_state import NOTHING
from sparrowmq.store.tables.producer_state import load as load_producers
from sparrowmq.store.tables.producer_state import save as save_producers

QUEUE = MessageQueue("T", "broker-a", 0)


def _save_values(root: Path, number: int) -> None:
    table = KeyValues(root / "namesrv" / "kvConfig.json")
    table.load()
    asyncio.run(table.put("space", "key", f"{number}" * 300))


def _load_values(root: Path) -> int:
    table = KeyValues(root / "namesrv" / "kvConfig.json")
    table.load()
    return int((table.get("space", "key") or "0")[0])


def _load_config(root: Path) -> int:
    return int(ConfigFile(root / "config" / "f.json").load().get("number", 0))


FILES: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], int]]] = {
    "client offsets": (
        lambda root, number: write_offsets(root / "offsets" / "g.json", {QUEUE: number}),
        lambda root: read_offsets(root / "offsets" / "g.json")[0].get(QUEUE, 0),
    ),
    "values of a name server": (_save_values, _load_values),
    "configuration": (
        lambda root, number: ConfigFile(root / "config" / "f.json").save({"number": number, "x": "y" * 700}),
        _load_config,
    ),
    "safe point": (
        lambda root, number: SafePoint(record=number, queues={"T": {0: number}}).save(root),
        lambda root: max(0, SafePoint.load(root).record),
    ),
    "producers": (
        lambda root, number: save_producers(root, number, NOTHING),
        lambda root: load_producers(root).position or 0,
    ),
}


class Saving:
    """Saves the numbers 1 to 3 on a simulated disk, and knows what was said about each when."""

    def __init__(self, root: Path, name: str, fault: Fault | None = None) -> None:
        self.save, self.load = FILES[name]
        self.disk = SimulatedDisk(root, fault)
        self.said: list[tuple[int, int, bool]] = []
        with disk.use(self.disk):
            for number in (1, 2, 3):
                began = self.disk.mark(f"saves {number}")
                try:
                    self.save(root, number)
                except (SparrowError, OSError):
                    self.said.append((number, began, False))
                else:
                    self.said.append((number, self.disk.mark(f"saved {number}"), True))
            self.disk.mark("end")
        self.disk.end()

    def allowed(self, at: int) -> set[int]:
        """What may be read after a crash at a moment: what was saved last, or what was tried since."""
        done = [number for number, when, kept in self.said if kept and when <= at]
        last = done[-1] if done else 0
        return {last} | {number for number in (1, 2, 3) if number > last}

    def problems(self, scratch: Path, first: int = 0) -> list[str]:
        """Crashes from a moment on after which something else is read, or nothing can be."""
        found, seen = [], set()
        for at in range(first, len(self.disk.moments)):
            for history in histories(self.disk.moments, at):
                if (history.name, tuple(sorted(self.allowed(at)))) in seen:
                    continue
                seen.add((history.name, tuple(sorted(self.allowed(at)))))
                write(history.state, scratch)
                try:
                    number: Any = self.load(scratch)
                except Exception as error:
                    number = repr(error)
                shutil.rmtree(scratch)
                if number not in self.allowed(at):
                    found.append(f"{history.what} before {self.disk.moments[at].what}: {number}")
        return found


@pytest.mark.crash
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_crash_leaves_the_old_file_or_the_new_one(name: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    saving = Saving(tmp_path / "disk", name)
    assert [kept for _, _, kept in saving.said] == [True] * 3
    assert saving.problems(tmp_path / "again") == []


@pytest.mark.crash
@pytest.mark.parametrize("name", sorted(FILES))
def test_a_fault_leaves_the_old_file_or_the_new_one(name: str, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    count = Saving(tmp_path / "disk", name).disk.count
    for number, kind, stays in itertools.product(range(count), ("EIO", "ENOSPC", "short"), (False, True)):
        shutil.rmtree(tmp_path / "disk")
        (tmp_path / "disk").mkdir()
        saving = Saving(tmp_path / "disk", name, Fault(number, kind, stays))
        last = len(saving.disk.moments) - 1
        text = f"{kind} in {saving.disk.faulted}"
        assert (text, saving.problems(tmp_path / "again", last)) == (text, [])
