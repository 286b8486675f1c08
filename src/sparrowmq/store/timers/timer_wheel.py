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

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from sparrowmq.core.errors import StoreCorruptError
from sparrowmq.files import disk

SLOT: Final = struct.Struct(">qqqii")
SLOT_BYTES: Final = SLOT.size
SLOTS: Final = 2 * 7 * 86_400
PRECISION_MS: Final = 1000
WHEEL_BYTES: Final = SLOTS * SLOT_BYTES
SPAN_MS: Final = SLOTS * PRECISION_MS
"""Time span of the wheel: two weeks."""

_BLOCK: Final = 2048
_ZEROS: Final = bytes(_BLOCK * SLOT_BYTES)
_EMPTY: Final = bytes(SLOT_BYTES)


class Slot(NamedTuple):
    """Chain and message count of one second."""

    first: int
    last: int
    messages: int


class TimerWheel:
    """The slots, read and written by position.

    The file is not mapped, because a full disk would then kill the process: a file system in memory needs
    space even to read a slot that was never written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def load(self) -> bool:
        """Open the file, created if missing; returns whether it existed. Raises the `StoreError` family.

        An empty file, left by a crash during its creation, counts as missing.
        """
        try:
            size = disk.stat(self.path).st_size if disk.exists(self.path) else 0
            found = size > 0
            if not found:
                disk.make_directory(self.path.parent)
                disk.create(self.path, WHEEL_BYTES)
            elif size != WHEEL_BYTES:
                raise StoreCorruptError(
                    f"{self.path} has {size} bytes instead of {WHEEL_BYTES}; restore it, or remove it to "
                    "reschedule the waiting messages",
                    value=size,
                    limit=WHEEL_BYTES,
                )
            self._fd = disk.open_file(self.path)
        except OSError as error:
            raise disk.store_error("cannot open", self.path, error) from error
        return found

    def open_unchanged(self) -> int | None:
        """Open the file to read; returns its size in bytes, None when it is missing. Raises OSError."""
        if not disk.exists(self.path):
            return None
        self._fd = disk.open_to_read(self.path)
        return disk.stat(self.path).st_size

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

    def holder(self, time_ms: int) -> int:
        """The time, epoch ms, whose slot occupies the same place in the wheel; 0 when it is free.

        Raises `StoreError`.
        """
        second = time_ms // PRECISION_MS
        return int(SLOT.unpack(self._read(second % SLOTS, 1))[0]) * PRECISION_MS

    def forget(self, start_ms: int, end_ms: int) -> None:
        """Empty the slots from `start_ms` up to `end_ms`; raises `StoreError`."""
        end = end_ms // PRECISION_MS
        start = max(start_ms // PRECISION_MS, end - SLOTS)
        second = start
        while second < end:
            at = second % SLOTS
            count = min(_BLOCK, SLOTS - at, end - second)
            block = self._read(at, count)
            if block != _ZEROS[: len(block)]:
                kept = [
                    block[place : place + SLOT_BYTES]
                    if not start_ms <= fields[0] * PRECISION_MS < end_ms
                    else _EMPTY
                    for place, fields in zip(
                        range(0, len(block), SLOT_BYTES), SLOT.iter_unpack(block), strict=True
                    )
                ]
                try:
                    disk.write_at(self._fd, b"".join(kept), at * SLOT_BYTES)
                except OSError as error:
                    raise disk.store_error("cannot write to", self.path, error) from error
            second += count

    def next_slot(self, start_ms: int, end_ms: int) -> int | None:
        """The first time from `start_ms` to `end_ms` (both inclusive) whose slot is not empty.

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
        """All slots that were used and not cleared since, by place in the file: time in ms, slot.

        Raises `StoreError`.
        """
        for low, high in disk.data_extents(self._fd, 0, WHEEL_BYTES):
            for at in range(low // SLOT_BYTES, -(-high // SLOT_BYTES), _BLOCK):
                block = self._read(at, min(_BLOCK, -(-high // SLOT_BYTES) - at))
                if block == _ZEROS[: len(block)]:
                    continue
                for time, first, last, count, _ in SLOT.iter_unpack(block):
                    if time:
                        yield time * PRECISION_MS, Slot(first, last, count)

    def _read(self, at: int, count: int) -> bytes:
        try:
            return disk.read_at(self._fd, count * SLOT_BYTES, at * SLOT_BYTES)
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
            disk.close(self._fd)
            self._fd = -1
