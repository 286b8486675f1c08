"""`config/timercheck`: how far the timer files were flushed and worked off (broker:1.4)."""

from __future__ import annotations

import logging
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sparrowmq.store import disk

log = logging.getLogger("sparrowmq.store")
FILE_BYTES: Final = 4096
_FIELDS: Final = struct.Struct(">7q")


@dataclass(frozen=True, slots=True)
class TimerCheck:
    """The fields in file order. Slots before `read_time` (epoch ms) were worked off.

    `flush_position` is the timer log's flushed end; messages of the timer topic before `queue_offset` have
    their units. A slave obeys `master_queue_offset`; a master writes its own there.
    """

    read_time: int = 0
    flush_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0

    @classmethod
    def load(cls, path: Path) -> TimerCheck:
        """The file's content; zeros when it is missing or short. Raises `StoreError`."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise disk.store_error("cannot read", path, error) from error
        if len(data) < _FIELDS.size:
            log.warning("%s has %d bytes instead of %d and is made anew", path, len(data), FILE_BYTES)
            return cls()
        return cls(*_FIELDS.unpack_from(data))

    def save(self, path: Path) -> None:
        """Write the file, 4096 bytes; raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = _FIELDS.pack(
            self.read_time,
            self.flush_position,
            self.queue_offset,
            self.master_queue_offset,
            self.state_version,
            self.version_timestamp,
            self.version_counter,
        )
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            disk.write_at(fd, data, 0)
            os.ftruncate(fd, FILE_BYTES)
        finally:
            os.close(fd)
