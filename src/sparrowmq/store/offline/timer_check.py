"""Compares timer log, timer wheel and their checkpoint with each other and with the log (broker:8.2)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from sparrowmq.core.errors import RecordError
from sparrowmq.core.hashing import java_hash
from sparrowmq.core.names import TIMER_TOPIC
from sparrowmq.files import disk
from sparrowmq.protocol.properties import find
from sparrowmq.protocol.record import decode_record
from sparrowmq.store.base.number_file import FILE_BYTES
from sparrowmq.store.offline.queue_files import first_nonzero
from sparrowmq.store.timers.timer_check import TimerCheck
from sparrowmq.store.timers.timer_log import BLANK, MAGIC_DELETE, NONE, UNIT_BYTES, TimerLog, Unit
from sparrowmq.store.timers.timer_wheel import WHEEL_BYTES, Slot, TimerWheel

if TYPE_CHECKING:
    from sparrowmq.store.offline.directory import LogScan, Progress, StoreDirectory
    from sparrowmq.store.offline.findings import Findings

LOG: Final = "timerlog"
WHEEL: Final = "timerwheel"
CHECK: Final = "timercheck"
TELL_UNITS: Final = 1024


class TimersInHand:
    """The timer files of a directory, opened for reading."""

    def __init__(self, directory: StoreDirectory, findings: Findings, scanned: LogScan) -> None:
        self._directory = directory
        self._findings = findings
        self._scanned = scanned
        self._is_settled = directory.is_settled
        root = directory.root
        self.check = TimerCheck.load(root / "config" / CHECK)
        self.log: TimerLog | None = None
        sizes = Counter(
            disk.stat(entry.path).st_size
            for entry in (disk.entries(root / LOG) if disk.exists(root / LOG) else ())
            if entry.is_file
        )
        del sizes[0]
        if sizes:
            self.log = TimerLog(root / LOG, sizes.most_common(1)[0][0], directory.pool)

    def _wrong(self, what: str, text: str) -> None:
        """Add damage; a note if the directory is in use or was not closed cleanly, because a broker repairs
        it when it starts.
        """
        (self._findings.damage if self._is_settled else self._findings.note)("timers", what, text)

    def run(self, progress: Progress) -> int:
        """Check everything; returns the number of units. Raises `StoreError` and OSError."""
        units = 0
        if self.log is not None:
            for problem in self.log.load_unchanged():
                self._findings.damage("files", "files of timers", problem)
            for position, unit in self.log.units(self.log.start):
                units += 1
                self._check_unit(position, unit)
                if not units % TELL_UNITS:
                    progress("timers", position - self.log.start, self.log.position - self.log.start)
                    self._directory.pool.trim()
            self._check_tail(self.log)
        self._check_wheel()
        self._check_progress()
        progress("timers", 1, 1)
        if self.log is not None:
            self.log.close()
        return units

    def _check_unit(self, position: int, unit: Unit) -> None:
        assert self.log is not None
        where = f"unit at {position}"
        if unit.previous != NONE and not unit.previous < position:
            self._findings.damage("timers", "units that follow a later one", where)
        elif unit.previous != NONE and unit.previous >= self.log.start:
            before = self.log.read(unit.previous)
            if before is None or before.slot != unit.slot:
                self._findings.damage("timers", "units that follow one of another slot", where)
        place, scanned = unit.physical_offset, self._scanned
        if place < scanned.start:
            return
        if place >= scanned.end:
            self._wrong("units beyond the end of the log", where)
            return
        segment = self._directory.log.at(place)
        try:
            if segment is None:
                raise RecordError("no file")
            record = decode_record(segment.view(), place - segment.base)
            topic = (find(record.properties, b"REAL_TOPIC") or b"").decode("utf-8", "replace")
            if (record.physical_offset, record.size, record.topic) != (place, unit.size, TIMER_TOPIC):
                raise RecordError("another record")
            if java_hash(topic) != unit.topic_hash:
                self._findings.damage("timers", "units with the hash of another topic", where)
        except RecordError:
            self._findings.damage("timers", "units that do not lead to their message", where)

    def _check_tail(self, log: TimerLog) -> None:
        """Check that no unit follows the first place without one."""
        for segment in log.files:
            if segment.end <= log.position:
                continue
            start = max(0, log.position - segment.base)
            if segment.size - start < UNIT_BYTES + BLANK.size:
                continue
            stray = first_nonzero(segment, start, segment.size)
            if stray is not None:
                self._wrong("bytes after the end of the timer log", f"{segment.path} byte {stray}")

    def _check_wheel(self) -> None:
        wheel = TimerWheel(self._directory.root / WHEEL)
        size = wheel.open_unchanged()
        if size is None:
            return
        try:
            if size != WHEEL_BYTES:
                text = f"{wheel.path} has {size} bytes instead of {WHEEL_BYTES}"
                self._findings.damage("timers", "wheel", text)
                return
            for time_ms, slot in wheel.slots():
                self._check_slot(time_ms, slot)
        finally:
            wheel.close()

    def _check_slot(self, time_ms: int, slot: Slot) -> None:
        """The chain of a slot that is not delivered yet; delivered ones are not checked."""
        if time_ms < self.check.read_time:
            return
        where = f"slot of {time_ms}"
        position, count, first = slot.last, 0, NONE
        while self.log is not None and position >= self.log.start:
            unit = self.log.read(position)
            if unit is None or unit.slot != time_ms:
                self._wrong("slots that do not lead to their units", where)
                return
            count += -1 if unit.magic & MAGIC_DELETE else 1
            first = position
            if unit.previous == NONE or unit.previous >= position:
                break
            position = unit.previous
        if first == NONE:
            self._wrong("slots without units", where)
        elif first != slot.first or count != slot.messages:
            self._wrong("slots with a wrong first unit or count", f"{where}: {slot}, counted {count}")

    def _check_progress(self) -> None:
        path = self._directory.root / "config" / CHECK
        if not disk.exists(path):
            return
        if disk.stat(path).st_size != FILE_BYTES:
            self._findings.damage(
                "timers", "checkpoint of the timers", f"{path} does not have {FILE_BYTES} bytes"
            )
            return
        end = 0 if self.log is None else self.log.position
        if end == 0 < self.check.flush_position:
            self._findings.note("timers", "no timer log", "the next start of a broker plans the timers again")
        elif not 0 <= self.check.flush_position <= end:
            self._wrong(
                "checkpoint of the timers",
                f"position {self.check.flush_position}, the timer log has {end} bytes",
            )
        queue = self._directory.queues.get((TIMER_TOPIC, 0))
        messages = 0 if queue is None else queue.end
        if not 0 <= self.check.queue_offset <= messages:
            self._wrong(
                "checkpoint of the timers",
                f"offset {self.check.queue_offset}, the queue has {messages} messages",
            )


def check_timers(directory: StoreDirectory, findings: Findings, scanned: LogScan, progress: Progress) -> int:
    """Check the timers of a directory, if it has any; returns the number of units.

    Raises `StoreError` and OSError.
    """
    return TimersInHand(directory, findings, scanned).run(progress)
