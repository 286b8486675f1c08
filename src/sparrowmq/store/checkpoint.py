"""`checkpoint`: up to which store times log and queues are known to be on disk (broker:1.2)."""

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
MARGIN_MS: Final = 3000
"""Part of the format: times this close to the end are not trusted."""

_FIELDS: Final = struct.Struct(">qqqqqq")


@dataclass(slots=True)
class Checkpoint:
    """The fields in file order: times are epoch ms, the last three are physical offsets.

    `physic` and `logics` are the store times of the newest records known on disk in log and queues, and
    `logics_physical` is where the latter starts. The others are kept as they were found.
    """

    physic: int = 0
    logics: int = 0
    index: int = 0
    master_flushed: int = 0
    confirm: int = 0
    logics_physical: int = 0

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """The file's content; zeros, which only make recovery start earlier, when it is missing or short.

        Raises `StoreError` when it cannot be read.
        """
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

    def save(self, path: Path, *, sync: bool = False) -> None:
        """Write the file, 4096 bytes; with `sync` force it to disk. Raises OSError."""
        data = _FIELDS.pack(
            self.physic, self.logics, self.index, self.master_flushed, self.confirm, self.logics_physical
        )
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            disk.write_at(fd, data, 0)
            os.ftruncate(fd, FILE_BYTES)
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    @property
    def safe_timestamp(self) -> int:
        """Records stored up to this time, epoch ms, are in log and queues for sure; 0 knows nothing."""
        return max(0, min(self.physic, self.logics) - MARGIN_MS)
