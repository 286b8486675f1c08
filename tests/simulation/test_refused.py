"""What an fsync refused, while the system still shows it, is on disk once the next start shows it to others.

The system calls it written, so no later fsync writes it; it is gone when memory runs short or with the power.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.disk import Content, Fault, File, SimulatedDisk
from tests.simulation.histories import histories, write
from tests.store.rig import START_MS, ManualClock, bodies_of, fill, open_store, opened

from sparrowmq.core.errors import StoreError
from sparrowmq.files import disk
from sparrowmq.files.system import System
from sparrowmq.store.timers.timer_log import NONE, Unit
from sparrowmq.store.timers.timers import Timers

SLOT_MS = START_MS + 5000


def after_each_crash(simulated: SimulatedDisk, scratch: Path) -> Iterator[Path]:
    """A directory with what the disk holds, for each way to lose power now, or what the disk refused."""
    seen, at = set(), simulated.mark("end")
    for history in histories(simulated.moments, at, thorough=False):
        if history.name not in seen:
            seen.add(history.name)
            write(history.state, scratch)
            with disk.use(System()):
                yield scratch
            shutil.rmtree(scratch)


class RefusingDisk(SimulatedDisk):
    """Refuses one operation whose name begins with `refuse`."""

    refuse = ""

    def _step(self, what: str, path: Path | str, writing: tuple[File, Content] | None = None) -> bool:
        if self.refuse and f"{what} {path}".startswith(self.refuse):
            self.fault, self.refuse = Fault(self.count, "EIO"), ""
        return super()._step(what, path, writing)


@pytest.fixture
def simulated(tmp_path: Path) -> Iterator[RefusingDisk]:
    (tmp_path / "disk").mkdir()
    made = RefusingDisk(tmp_path / "disk")
    with disk.use(made):
        yield made
    made.end()


@pytest.mark.crash
@pytest.mark.parametrize("safe_point", [True, False])
@pytest.mark.parametrize("end", ["close", "abandon"])
def test_messages_that_a_start_shows_are_on_disk(
    end: str, safe_point: bool, simulated: RefusingDisk, tmp_path: Path
) -> None:
    store = open_store(simulated.root)
    bodies = fill(store, store.queue("T", 0), 5)
    if safe_point:
        store.flush_queues(safe_point=True)
    bodies += fill(store, store.queue("T", 0), 60)
    simulated.refuse = "fdatasync commitlog"
    with pytest.raises(StoreError, match="Input/output error"):
        store.flush()
    if end == "close":
        with pytest.raises(StoreError, match="not closed cleanly"):
            store.close()
    store.abandon()
    again = open_store(simulated.root)
    assert bodies_of(again, "T") == bodies
    for root in after_each_crash(simulated, tmp_path / "crashed"):
        with opened(root) as found:
            assert bodies_of(found, "T") == bodies
    again.abandon()


@pytest.mark.crash
@pytest.mark.parametrize("refused", ["fdatasync timerlog", "fdatasync timerwheel"])
def test_timers_that_a_start_shows_are_on_disk(refused: str, simulated: RefusingDisk, tmp_path: Path) -> None:
    timers = opened_timers(simulated.root)
    plan(timers, 1)
    save(timers)
    disk.sync_directory(simulated.root)  # as the store does; without its log, timers are planned anew
    plan(timers, 2, 3)
    simulated.refuse = refused
    with pytest.raises(StoreError, match="Input/output error"):
        save(timers)
    with pytest.raises(StoreError, match="not closed cleanly"):
        timers.close()
    again = opened_timers(simulated.root)
    assert planned(again) == [1, 2, 3]
    for root in after_each_crash(simulated, tmp_path / "crashed"):
        found = opened_timers(root)
        assert planned(found) == [1, 2, 3]
        found.abandon()
    again.abandon()


def opened_timers(root: Path) -> Timers:
    return Timers.open(root, 4096, ManualClock())


def plan(timers: Timers, *numbers: int) -> None:
    for number in numbers:
        timers.add(SLOT_MS, Unit(NONE, 1, START_MS, SLOT_MS - START_MS, number, 400, 0))
    timers.commit()


def save(timers: Timers) -> None:
    check = timers.unsaved()
    assert check is not None
    timers.write(check)


def planned(timers: Timers) -> list[int]:
    """The messages of the slot, oldest first."""
    found: list[int] = []
    slot = timers.slot(SLOT_MS)
    position = NONE if slot is None else slot.last
    while position != NONE:
        unit = timers.log.read(position)
        assert unit is not None
        found.insert(0, unit.physical_offset)
        position = unit.previous
    return found
