"""Files of 4096 bytes that begin with 64-bit numbers, in which RocketMQ stores its progress (broker:1.2,
1.4).
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import Final

from sparrowmq.files import disk

log = logging.getLogger("sparrowmq.store")
FILE_BYTES: Final = 4096


def load_numbers(path: Path, count: int) -> tuple[int, ...]:
    """The first `count` numbers; empty when the file is missing or too short. Raises `StoreError`."""
    fields = struct.Struct(f">{count}q")
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise disk.store_error("cannot read", path, error) from error
    if len(data) < fields.size:
        log.warning("%s has %d bytes instead of %d and is recreated", path, len(data), FILE_BYTES)
        return ()
    return fields.unpack_from(data)


def save_numbers(path: Path, *numbers: int, sync: bool = False) -> None:
    """Write the file; with `sync`, fsync it. Raises OSError."""
    save_page(path, struct.pack(f">{len(numbers)}q", *numbers), sync=sync)


def save_page(path: Path, data: bytes, *, sync: bool = False) -> None:
    """Write the beginning of the file in one call. Raises OSError."""
    fd = disk.open_file(path, make=True)
    try:
        disk.write_at(fd, data, 0)
        disk.resize(fd, FILE_BYTES)
        if sync:
            disk.sync(fd)
    finally:
        disk.close(fd)
