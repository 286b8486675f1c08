"""Files of 4096 bytes that begin with 64-bit numbers, as RocketMQ keeps its progress (broker:1.2, 1.4)."""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from typing import Final

from sparrowmq.store import disk

log = logging.getLogger("sparrowmq.store")
FILE_BYTES: Final = 4096


def load_numbers(path: Path, count: int) -> tuple[int, ...]:
    """The first `count` numbers; none when the file is missing or short. Raises `StoreError`."""
    fields = struct.Struct(f">{count}q")
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise disk.store_error("cannot read", path, error) from error
    if len(data) < fields.size:
        log.warning("%s has %d bytes instead of %d and is made anew", path, len(data), FILE_BYTES)
        return ()
    return fields.unpack_from(data)


def save_numbers(path: Path, *numbers: int, sync: bool = False) -> None:
    """Write the file; with `sync` force it to disk. Raises OSError."""
    data = struct.pack(f">{len(numbers)}q", *numbers)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        disk.write_at(fd, data, 0)
        os.ftruncate(fd, FILE_BYTES)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
