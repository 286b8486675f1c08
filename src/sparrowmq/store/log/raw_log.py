"""The commit log as bytes, for sending it to other brokers."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from sparrowmq.protocol.record import (
    BLANK_BYTES_MIN,
    BLANK_MAGIC,
    RECORD_FIXED_BYTES,
    RECORD_MAGIC_V1,
    RECORD_MAGIC_V2,
)
from sparrowmq.store.log.commit_log import store_timestamp

if TYPE_CHECKING:
    from sparrowmq.store.log.commit_log import CommitLog

HEAD_BYTES: Final = 76
"""The part of a record with its store time, also with IPv6 hosts."""
_magic = struct.Struct(">4xI20xq").unpack_from
"""Magic and physical offset of a record."""
_prefix = struct.Struct(">iI").unpack_from
"""Size and magic."""


class LogFilePlace(NamedTuple):
    """A file of the log: its path, the position of its first byte, and the position after its last byte."""

    path: Path
    base: int
    end: int


class RawLog:
    """The written part of a log, by position. Belongs to the store's loop."""

    def __init__(self, commit_log: CommitLog) -> None:
        self._log = commit_log
        self.watchers: list[Callable[[], None]] = []
        """Called after each stored chunk."""
        self._told_confirmed: list[Callable[[], None]] = []

    @property
    def end(self) -> int:
        """The end of the written part."""
        return self._log.position

    @property
    def confirmed(self) -> int | None:
        """Consumers read up to this position; None: everything, `NOT_TOLD`: nothing yet."""
        return self._log.confirmed

    def confirm(self, position: int | None) -> None:
        """Let consumers read up to this position, see `confirmed`. It never moves back."""
        if position != self._log.confirmed:
            self._log.confirm(position)
            for told in self._told_confirmed:
                told()

    def when_confirmed(self, told: Callable[[], None]) -> None:
        """Call `told` after each change of `confirmed`."""
        self._told_confirmed.append(told)

    @property
    def start(self) -> int:
        """The beginning of the oldest file."""
        return self._log.min_position

    @property
    def last_file(self) -> int:
        """The beginning of the newest file with messages."""
        return max(self.start, self.end - self.end % self._log.files.file_bytes)

    @property
    def last_record(self) -> int:
        """Where the newest record starts; -1 if this is unknown."""
        return self._log.progress.last_record

    def watch(self, told: Callable[[], None]) -> None:
        """Call `told` after each chunk from now on. It must be quick and must not raise."""
        self.watchers.append(told)

    def unwatch(self, told: Callable[[], None]) -> None:
        """No longer call `told`."""
        self.watchers.remove(told)

    def file(self, position: int) -> LogFilePlace | None:
        """The file with this position; None when it is deleted or not created yet."""
        segment = self._log.files.at(position)
        return None if segment is None else LogFilePlace(segment.path, segment.base, segment.end)

    def piece(self, start: int, length: int) -> memoryview | None:
        """Up to `length` bytes from `start` on, within one file; None when they are missing.

        They are mapped: reading them waits for the disk if they are not cached.
        """
        segment = self._log.files.at(start)
        if segment is None:
            return None
        return self._log.slice(start, min(start + length, segment.end, self._log.position))

    def is_damaged(self, position: int, last_record: int) -> bool:
        """Whether neither a record nor the unused end of a file begins at a position, though one should: a
        file begins there, or the record that begins at `last_record` ends there."""
        segment = self._log.files.at(position)
        if segment is None or position >= self.end:
            return False
        if position != segment.base and last_record + self._size(last_record) != position:
            return False
        return not self._size(position)

    def _size(self, position: int) -> int:
        """The size of the record, or of the unused end of a file, that begins at a position; 0 for none."""
        head = self.piece(position, HEAD_BYTES)
        if head is None or len(head) < BLANK_BYTES_MIN:
            return 0
        size, magic = _prefix(head)
        if magic == BLANK_MAGIC:
            return int(size)
        if magic not in (RECORD_MAGIC_V1, RECORD_MAGIC_V2) or len(head) < HEAD_BYTES:
            return 0
        return int(size) if size >= RECORD_FIXED_BYTES and _magic(head)[1] == position else 0

    def stored_ms(self, position: int) -> int | None:
        """When the record at a position was stored, epoch ms; None when none begins there."""
        head = self.piece(position, HEAD_BYTES)
        if head is None or len(head) < HEAD_BYTES:
            return None
        magic, place = _magic(head)
        if magic not in (RECORD_MAGIC_V1, RECORD_MAGIC_V2) or place != position:
            return None
        return store_timestamp(head, 0)
