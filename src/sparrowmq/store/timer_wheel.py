"""`timerwheel`: a slot for every second, each with a chain of units of the timer log (broker:8.2).

    offset  size  field of a slot
         0     8  its time in seconds
         8     8  position of its first unit
        16     8  position of its last unit
        24     4  messages, deletion markers taken off
        28     4  unused

The slot of a time is its second modulo the number of slots. A slot that names another second is empty.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sparrowmq.core.errors import StoreCorruptError
from sparrowmq.store import disk

SLOT: Final = struct.Struct(">qqqii")
SLOT_BYTES: Final = SLOT.size
SLOTS: Final = 2 * 7 * 86_400
PRECISION_MS: Final = 1000
WHEEL_BYTES: Final = SLOTS * SLOT_BYTES
SPAN_MS: Final = SLOTS * PRECISION_MS
"""How much time the wheel holds: two weeks."""

_BLOCK: Final = 2048
_ZEROS: Final = bytes(_BLOCK * SLOT_BYTES)


class Slot(NamedTuple):
    """Chain and count of one second."""

    first: int
    last: int
    messages: int


class TimerWheel:
    """The slots, read and written by position.

    Through a mapping a full disk would kill the process: a file system in memory needs room even to read a
    slot that was never written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def load(self) -> bool:
        """Open the file, made when there is none; whether it was there. Raises the `StoreError` family."""
        try:
            found = self.path.exists()
            if not found:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                disk.create(self.path, WHEEL_BYTES)
            size = self.path.stat().st_size
            if size != WHEEL_BYTES:
                raise StoreCorruptError(
                    f"{self.path} has {size} bytes instead of {WHEEL_BYTES}; restore it, or remove it to "
                    "plan the waiting messages anew"
                )
            self._fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as error:
            raise disk.store_error("cannot open", self.path, error) from error
        return found

    def get(self, time_ms: int) -> Slot | None:
        """The slot of a time, or None when it is empty. Raises `StoreError`."""
        second = time_ms // PRECISION_MS
        time, first, last, count, _ = SLOT.unpack(self._read(second % SLOTS, 1))
        return Slot(first, last, count) if time == second and second else None

    def put(self, time_ms: int, slot: Slot) -> None:
        """Write a slot; raises `StoreError`."""
        second = time_ms // PRECISION_MS
        try:
            disk.write_at(self._fd, SLOT.pack(second, *slot, 0), second % SLOTS * SLOT_BYTES)
        except OSError as error:
            raise disk.store_error("cannot write to", self.path, error) from error

    def next_slot(self, start_ms: int, end_ms: int) -> int | None:
        """The first time from `start_ms` to `end_ms` (both included) whose slot is not empty.

        Raises `StoreError`.
        """
        second, end = start_ms // PRECISION_MS, end_ms // PRECISION_MS
        while second <= end:
            at = second % SLOTS
            count = min(_BLOCK, SLOTS - at, end - second + 1)
            block = self._read(at, count)
            if block != _ZEROS[: len(block)]:
                for index, fields in enumerate(SLOT.iter_unpack(block)):
                    if fields[0] == second + index and fields[0]:
                        return (second + index) * PRECISION_MS
            second += count
        return None

    def slots(self) -> Iterator[tuple[int, Slot]]:
        """All slots that were ever used and not since, by place in the file: time in ms, slot.

        Raises `StoreError`.
        """
        for low, high in disk.data_extents(self._fd, 0, WHEEL_BYTES):
            for at in range(low // SLOT_BYTES, -(-high // SLOT_BYTES), _BLOCK):
                block = self._read(at, min(_BLOCK, -(-high // SLOT_BYTES) - at))
                for time, first, last, count, _ in SLOT.iter_unpack(block):
                    if time:
                        yield time * PRECISION_MS, Slot(first, last, count)

    def _read(self, at: int, count: int) -> bytes:
        try:
            return os.pread(self._fd, count * SLOT_BYTES, at * SLOT_BYTES)
        except OSError as error:
            raise disk.store_error("cannot read", self.path, error) from error

    def clear(self) -> None:
        """Empty every slot; raises `StoreError`."""
        try:
            disk.clear_data(self.path, 0, WHEEL_BYTES)
        except OSError as error:
            raise disk.store_error("cannot clear", self.path, error) from error

    def sync(self) -> None:
        """Force the slots to disk; raises OSError. Any thread."""
        disk.datasync(self._fd)

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
