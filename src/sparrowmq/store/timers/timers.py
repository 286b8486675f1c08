"""The waiting timed messages on disk: keeps timer log, wheel and checkpoint consistent (broker:8.2).

The log is written before the wheel, and both are flushed before the checkpoint is updated. So a start reads
only the units after the checkpoint. It writes them and their slots again, because after a failed fsync the
system may still show data that it has dropped. A wheel that is ahead of the log, as after a power cut, is
rebuilt from the log.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparrowmq.core.errors import StoreError
from sparrowmq.files import disk
from sparrowmq.store.base.segments import MapPool
from sparrowmq.store.timers.timer_check import TimerCheck
from sparrowmq.store.timers.timer_log import MAGIC_DELETE, MAGIC_ROLL, NONE, TimerLog, Unit
from sparrowmq.store.timers.timer_wheel import PRECISION_MS, SPAN_MS, Slot, TimerWheel

if TYPE_CHECKING:
    from sparrowmq.core.clock import Clock

log = logging.getLogger("sparrowmq.store")


class Timers:
    """The timer files of one store.

    `read_time` is the first unprocessed slot, `queue_offset` the first message of the timer topic that has no
    unit yet; the code that plans and delivers advances both. `replay_until` is set when the timer log was
    lost: messages of the timer topic before it whose time had passed then were already delivered.
    """

    def __init__(self, root: Path, file_bytes: int, clock: Clock) -> None:
        self._clock = clock
        self._check_path = root / "config" / "timercheck"
        self.log = TimerLog(root / "timerlog", file_bytes, MapPool(disk.maps_limit()))
        self.wheel = TimerWheel(root / "timerwheel")
        self._check = TimerCheck()
        self._saving = threading.Lock()
        self._pending: dict[int, Slot] = {}
        self._lost: StoreError | None = None
        self.read_time = 0
        self.queue_offset = 0
        self.replay_until = 0
        self._replay_from = 0
        """What was `read_time` when the log was lost; that goes on while the messages are planned again."""
        self.waiting = 0
        """Messages in unprocessed slots, without cancelled messages."""

    @classmethod
    def open(cls, root: Path, file_bytes: int, clock: Clock) -> Timers:
        """Load and recover the timer files; they are created if missing.

        Raises the `StoreError` family.
        """
        timers = cls(root, file_bytes, clock)
        try:
            timers._load()
        except BaseException:
            timers.abandon()
            raise
        return timers

    def _load(self) -> None:
        check = self._check = TimerCheck.load(self._check_path)
        had_wheel = self.wheel.load()
        self.log.load(check.flush_position)
        self.log.rewrite(check.flush_position)
        self.read_time = check.read_time or self._first_time()
        self.queue_offset = check.queue_offset
        counted = False
        if self.log.position < check.flush_position:
            log.error("%s: the timer log is shorter than it was; rescheduling the timers", self._check_path)
            self.wheel.clear()
            self.replay_until, self.queue_offset = check.queue_offset, 0
            self._replay_from = self.read_time
        elif not had_wheel and check.flush_position:
            self._rebuild()
        else:
            self._turn_back_as_before()
            added = 0
            for position, unit in self.log.units(check.flush_position):
                self._revise(position, unit)
                added += step_of(unit) if unit.slot >= self.read_time else 0
            self.waiting = self._in_wheel()
            lacks = check.waiting is not None and self.waiting != check.waiting + added
            counted = not (lacks or self._points_too_far())
            if not counted:
                self._rebuild()
        if not counted:
            self.waiting = self._in_wheel()
        begun = self.unsaved()
        if begun is not None:
            self.write(begun)  # from now on, slots that pass while the broker is down are known to be missed

    def _in_wheel(self) -> int:
        """Messages in unprocessed slots."""
        return sum(slot.messages for time, slot in self.wheel.slots() if time >= self.read_time)

    def _turn_back_as_before(self) -> None:
        """Handle units planned for processed slots: the clock was set back since the checkpoint."""
        start = self._check.flush_position
        planned = min((unit.planned for _, unit in self.log.units(start)), default=self.read_time)
        if planned < self.read_time:
            self.turn_back(planned)

    def turn_back(self, time_ms: int) -> None:
        """The clock was set back to the slot `time_ms`: process slots from there on again.

        Their earlier content is already delivered and is not delivered again. Raises `StoreError`.
        """
        log.warning(
            "the clock was set back: it is %d s behind the timers, which start again from its time",
            (self.read_time - time_ms) // 1000,
        )
        self.wheel.forget(time_ms, self.read_time)
        self.read_time = time_ms

    def _first_time(self) -> int:
        """The first slot to process without a checkpoint: that of the first unit, or the current one."""
        now = self._clock.now_ms()
        slots = (unit.slot for _, unit in self.log.units(self.log.start))
        return min(slots, default=now - now % PRECISION_MS)

    def _revise(self, position: int, unit: Unit) -> None:
        """Make a unit the last one of its slot; a slot that already contains it is written unchanged."""
        slot = self.wheel.get(unit.slot)
        step = step_of(unit)
        if slot is None:
            slot = Slot(position, position, step)
        elif slot.last < position:
            slot = Slot(slot.first, position, slot.messages + step)
        self.wheel.put(unit.slot, slot)

    def _points_too_far(self) -> bool:
        end = self.log.position
        return any(slot.last >= end for time, slot in self.wheel.slots() if time >= self.read_time)

    def _rebuild(self) -> None:
        """Rebuild the wheel from the whole log."""
        log.warning("%s does not match the timer log and is rebuilt from it", self.wheel.path)
        self.wheel.clear()
        for position, unit in self.log.places():
            if unit is not None and unit.slot >= self.read_time:
                self._revise(position, unit)

    # Planning

    def slot(self, time_ms: int) -> Slot | None:
        """The slot of a time including units added since the last `commit`, or None when it is empty."""
        return self._pending.get(time_ms) or self.wheel.get(time_ms)

    def add(self, slot_ms: int, unit: Unit) -> int:
        """Chain a unit to its slot and set `previous`; returns the unit's position. `commit` writes it."""
        slot = self.slot(slot_ms)
        position = self.log.append(unit._replace(previous=NONE if slot is None else slot.last))
        step = step_of(unit)
        self.waiting += step
        if slot is None:
            self._pending[slot_ms] = Slot(position, position, step)
        else:
            self._pending[slot_ms] = Slot(slot.first, position, slot.messages + step)
        return position

    def chained_from(self, physical_offset: int) -> set[int]:
        """The physical offsets of the messages from there on that have a unit."""
        found: set[int] = set()
        for unit in self.log.units_back():
            if unit.physical_offset < physical_offset:
                break
            found.add(unit.physical_offset)
        return found

    def is_open(self, queue_offset: int, due_ms: int) -> bool:
        """Whether a message of the timer topic without a unit, whose time has passed, is not delivered."""
        return queue_offset >= self.replay_until or due_ms >= self._replay_from

    @property
    def check_for_slaves(self) -> TimerCheck:
        """The current checkpoint for slaves, which have no timer log. While messages are planned again, it
        is that of the beginning: a slave that becomes master plans them again, too."""
        found = replace(self.check, flush_position=max(1, self.log.position))
        if self.queue_offset >= self.replay_until:
            return found
        read_time = min(self.read_time, self._replay_from)
        return replace(
            found, read_time=read_time, queue_offset=self.replay_until, master_queue_offset=self.replay_until
        )

    def plan_from(self, queue_offset: int) -> None:
        """Set the first message of the timer topic that has no unit yet."""
        self.queue_offset = queue_offset

    def read_from(self, time_ms: int) -> None:
        """Set the first unprocessed slot; see `worked_off`."""
        self.read_time = time_ms

    def worked_off(self, time_ms: int) -> None:
        """Mark a slot as processed; call it before `read_time` passes the slot."""
        slot = self.slot(time_ms)
        self.waiting -= 0 if slot is None else slot.messages

    def commit(self) -> None:
        """Write the added units, the log first. Raises `StoreError`; a later `commit` tries again."""
        self.log.commit()
        while self._pending:
            time_ms, slot = next(iter(self._pending.items()))
            self.wheel.put(time_ms, slot)
            del self._pending[time_ms]

    def has_room_for(self, slot_ms: int) -> bool:
        """Whether the slot is near enough to fit into the wheel."""
        return slot_ms - self.read_time < SPAN_MS

    def is_taken(self, slot_ms: int) -> bool:
        """Whether another unprocessed slot occupies the place of this one in the wheel.

        That is possible only after the clock was set back by days. Raises `StoreError`.
        """
        holder = self.wheel.holder(slot_ms)
        return holder != slot_ms and holder >= self.read_time

    # Progress

    @property
    def check(self) -> TimerCheck:
        """The current checkpoint."""
        return replace(
            self._check,
            read_time=self.read_time,
            queue_offset=self.queue_offset,
            master_queue_offset=self.queue_offset,
            flush_position=self.log.position,
            waiting=self.waiting,
        )

    def unsaved(self) -> TimerCheck | None:
        """The current checkpoint to write; None when nothing changed or `commit` failed."""
        if self._pending or self.log.is_behind:
            return None
        last, check = self._check, self.check
        end = check.flush_position
        if check == last:
            return None
        if end == last.flush_position:
            return check
        now = self._clock.now_ms()
        return replace(check, version_timestamp=now, version_counter=last.version_counter + 1)

    def write(self, check: TimerCheck) -> None:
        """Force log and wheel to disk, then write the result of `unsaved`. Any thread. Raises `StoreError`.

        After a failed fsync the checkpoint does not advance: the kernel may have dropped the units, and a
        later fsync would not report it.
        """
        with self._saving:
            if self._lost is not None:
                raise self._lost
            start, end = self._check.flush_position, check.flush_position
            is_on_disk = start == end
            try:
                if not is_on_disk:
                    self.log.sync(min(start, end), end)
                    self.wheel.sync()
                    is_on_disk = True
                check.save(self._check_path)
            except OSError as error:
                failure = disk.store_error("cannot write the timers in", self._check_path.parent, error)
                if not is_on_disk and not disk.is_busy(error):
                    self._lost = failure
                raise failure from error
            self._check = check

    def close(self) -> None:
        """Write everything and close the files; raises the `StoreError` that prevented it. Idempotent."""
        try:
            self.commit()
            check = self.unsaved()
            if check is not None:
                self.write(check)
        except StoreError as error:
            raise type(error)(f"the timers were not closed cleanly: {error}", what="close") from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Release the files as a crash would."""
        self.log.close()
        self.wheel.close()


def discard(root: Path) -> None:
    """Delete log and wheel of a store that becomes a slave's. When it becomes a master again, it plans the
    messages again.

    Raises `StoreError`.
    """
    directory = root / "timerlog"
    try:
        for entry in disk.entries(directory):
            disk.unlink(entry.path, missing_ok=True)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise disk.store_error("cannot clear", directory, error) from error
    try:
        disk.unlink(root / "timerwheel", missing_ok=True)
    except OSError as error:
        raise disk.store_error("cannot delete", root / "timerwheel", error) from error


def step_of(unit: Unit) -> int:
    """By how much a unit changes the number of messages of its slot."""
    return -1 if unit.magic & MAGIC_DELETE else 1


def is_roll(magic: int) -> bool:
    """Whether the message must be planned again when its slot fires: it is due beyond the wheel's span."""
    return bool(magic & MAGIC_ROLL)


def is_marker(magic: int) -> bool:
    """Whether the unit cancels other messages of its slot."""
    return magic & (MAGIC_DELETE | MAGIC_ROLL) == MAGIC_DELETE
