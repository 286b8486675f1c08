"""The waiting timed messages on disk: timer log, wheel and checkpoint kept in agreement (broker:8.2).

The log is written before the wheel, and both are on disk before the checkpoint says so. So a start needs to
look at no more than the units behind the checkpoint; a wheel that knows more than the log, as after a power
cut, is made anew from the log.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.core.errors import StoreError
from sparrowmq.store import disk
from sparrowmq.store.segments import MapPool
from sparrowmq.store.timer_check import TimerCheck
from sparrowmq.store.timer_log import MAGIC_DELETE, MAGIC_ROLL, NONE, TimerLog, Unit
from sparrowmq.store.timer_wheel import PRECISION_MS, SPAN_MS, Slot, TimerWheel

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock

log = logging.getLogger("sparrowmq.store")


class Timers:
    """The timer files of one store.

    `read_time` is the first slot that is not worked off, `queue_offset` the first message of the timer topic
    that has no unit yet; both are the caller's to move. `replay_until` is set when the timer log was lost:
    messages of the timer topic before it whose time has passed were delivered already.
    """

    def __init__(self, root: Path, file_bytes: int, clock: Clock) -> None:
        self._clock = clock
        self._check_path = root / "config" / "timercheck"
        self.log = TimerLog(root / "timerlog", file_bytes, MapPool(disk.maps_limit()))
        self.wheel = TimerWheel(root / "timerwheel")
        self._check = TimerCheck()
        self._saving = threading.Lock()
        self._pending: dict[int, Slot] = {}
        self.read_time = 0
        self.queue_offset = 0
        self.replay_until = 0
        self.waiting = 0
        """Messages in slots that are not worked off; those that were taken back do not count."""

    @classmethod
    def open(cls, root: Path, file_bytes: int, clock: Clock, *, clean: bool) -> Timers:
        """Load and recover the timer files; they are made when there are none.

        `clean` says that the last owner closed the store. Raises the `StoreError` family.
        """
        timers = cls(root, file_bytes, clock)
        try:
            timers._load(clean=clean)
        except BaseException:
            timers.abandon()
            raise
        return timers

    def _load(self, *, clean: bool) -> None:
        check = self._check = TimerCheck.load(self._check_path)
        had_wheel = self.wheel.load()
        self.log.load(check.flush_position)
        self.read_time = check.read_time or self._first_time()
        self.queue_offset = check.queue_offset
        if self.log.position < check.flush_position:
            log.error("%s: the timer log is shorter than it was; timers are planned anew", self._check_path)
            self.wheel.clear()
            self.replay_until, self.queue_offset = check.queue_offset, 0
        elif not had_wheel and check.flush_position:
            self._rebuild()
        else:
            for position, unit in self.log.units(check.flush_position):
                self._revise(position, unit)
            if not clean and self._points_too_far():
                self._rebuild()

        self.waiting = sum(slot.messages for time, slot in self.wheel.slots() if time >= self.read_time)
        begun = self.unsaved()
        if begun is not None:
            self.write(begun)  # from now on slots that pass while nobody runs are known to be missed

    def _first_time(self) -> int:
        """The first slot to work off when no checkpoint says: that of the first unit, else the current."""
        now = self._clock.now_ms()
        slots = (unit.slot for _, unit in self.log.units(self.log.start))
        return min(slots, default=now - now % PRECISION_MS)

    def _revise(self, position: int, unit: Unit) -> None:
        """Make a unit the last one of its slot."""
        slot = self.wheel.get(unit.slot)
        if slot is None:
            self.wheel.put(unit.slot, Slot(position, position, 1))
        elif slot.last < position:
            self.wheel.put(unit.slot, Slot(slot.first, position, slot.messages + 1))

    def _points_too_far(self) -> bool:
        end = self.log.position
        return any(slot.last >= end for time, slot in self.wheel.slots() if time >= self.read_time)

    def _rebuild(self) -> None:
        """Fill the wheel from the whole log."""
        log.warning("%s does not fit the timer log and is made anew from it", self.wheel.path)
        self.wheel.clear()
        for position, unit in self.log.units(self.log.start):
            if unit.slot >= self.read_time:
                self._revise(position, unit)

    # Planning

    def slot(self, time_ms: int) -> Slot | None:
        """The slot of a time with what was added since the last `commit`, or None when it is empty."""
        return self._pending.get(time_ms) or self.wheel.get(time_ms)

    def add(self, slot_ms: int, unit: Unit) -> int:
        """Chain a unit to its slot, filling in `previous`; its position. It is written by `commit`."""
        slot = self.slot(slot_ms)
        position = self.log.append(unit._replace(previous=NONE if slot is None else slot.last))
        step = -1 if unit.magic & MAGIC_DELETE else 1
        self.waiting += step
        if slot is None:
            self._pending[slot_ms] = Slot(position, position, step)
        else:
            self._pending[slot_ms] = Slot(slot.first, position, slot.messages + step)
        return position

    def worked_off(self, time_ms: int) -> None:
        """Nothing of a slot waits any more; to be said before `read_time` passes it."""
        slot = self.slot(time_ms)
        self.waiting -= 0 if slot is None else slot.messages

    def commit(self) -> None:
        """Write what was added, the log first. Raises `StoreError`; a later `commit` tries again."""
        self.log.commit()
        while self._pending:
            time_ms, slot = next(iter(self._pending.items()))
            self.wheel.put(time_ms, slot)
            del self._pending[time_ms]

    def has_room_for(self, slot_ms: int) -> bool:
        """Whether the slot's place in the wheel is not held by one that is still to be worked off."""
        return slot_ms - self.read_time < SPAN_MS

    # Progress

    def unsaved(self) -> TimerCheck | None:
        """The checkpoint as it would be written now; None when nothing changed or `commit` failed."""
        if self._pending or self.log.is_behind:
            return None
        last, end = self._check, self.log.position
        check = replace(
            last,
            read_time=self.read_time,
            queue_offset=self.queue_offset,
            master_queue_offset=self.queue_offset,
            flush_position=end,
        )
        if check == last:
            return None
        if end == last.flush_position:
            return check
        now = self._clock.now_ms()
        return replace(check, version_timestamp=now, version_counter=last.version_counter + 1)

    def write(self, check: TimerCheck) -> None:
        """Force log and wheel to disk, then write what `unsaved` gave. Any thread. Raises `StoreError`."""
        with self._saving:
            start, end = self._check.flush_position, check.flush_position
            try:
                if start != end:
                    self.log.sync(min(start, end), end)
                    self.wheel.sync()
                check.save(self._check_path)
            except OSError as error:
                raise disk.store_error(
                    "cannot write the timers in", self._check_path.parent, error
                ) from error
            self._check = check

    def close(self) -> None:
        """Write everything and close the files; raises the `StoreError` that kept it from it. Idempotent."""
        try:
            self.commit()
            check = self.unsaved()
            if check is not None:
                self.write(check)
        except StoreError as error:
            raise type(error)(f"the timers are not closed cleanly: {error}") from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Let go of the files as a crash would."""
        self.log.close()
        self.wheel.close()


def is_roll(magic: int) -> bool:
    """Whether the message is to be planned again when its slot fires: it is further away than the wheel."""
    return bool(magic & MAGIC_ROLL)


def is_marker(magic: int) -> bool:
    """Whether the unit takes other messages of its slot back."""
    return magic & (MAGIC_DELETE | MAGIC_ROLL) == MAGIC_DELETE
