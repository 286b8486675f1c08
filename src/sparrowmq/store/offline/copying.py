"""Copies files piece by piece, with holes and checksums, and forces them to disk."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from zlib import crc32

from sparrowmq.core.errors import StoreCorruptError
from sparrowmq.files import disk

PIECE_BYTES: Final = 4 * 1024 * 1024
TAIL_BYTES: Final = 64 * 1024
"""How much of the end of an earlier copy is compared before it is continued."""


def checksum(path: Path, used: int) -> int:
    """The CRC-32 of a file's first bytes. Raises OSError, and `StoreCorruptError` if it is shorter."""
    fd = disk.open_to_read(path)
    try:
        crc = at = 0
        while at < used:
            piece = disk.read_at(fd, min(PIECE_BYTES, used - at), at)
            if not piece:
                raise StoreCorruptError(f"{path} has {at} bytes, and {used} are needed")
            crc, at = crc32(piece, crc), at + len(piece)
        return crc
    finally:
        disk.close(fd)


def copy_bytes(
    source: Path, target: Path, *, size: int, used: int, mode: int, start: int = 0, crc: int = 0
) -> int:
    """Copy the bytes from `start` to `used`; returns the CRC-32 of all `used` bytes. `crc` is that of the
    bytes before `start`. Pieces of zeros become holes. The target gets `size` bytes and is forced to disk.

    Raises OSError, and `StoreCorruptError` if the source is shorter.
    """
    reading = disk.open_to_read(source)
    try:
        writing = disk.open_file(target, make=True, mode=mode)
        try:
            if start == 0:
                disk.resize(writing, 0)
            disk.resize(writing, size)
            at = start
            while at < used:
                piece = disk.read_at(reading, min(PIECE_BYTES, used - at), at)
                if not piece:
                    raise StoreCorruptError(f"{source} has {at} bytes, and {used} are needed")
                if start or piece.count(0) != len(piece):
                    disk.write_at(writing, piece, at)
                crc, at = crc32(piece, crc), at + len(piece)
            disk.sync(writing)
        finally:
            disk.close(writing)
    finally:
        disk.close(reading)
    return crc


def is_continued(source: Path, copy: Path, used: int) -> bool:
    """Whether the last of the first `used` bytes are the same in both files, so that the copy can be
    continued.
    """
    length = min(TAIL_BYTES, used)
    return _read(source, length, used - length) == _read(copy, length, used - length)


def _read(path: Path, length: int, at: int) -> bytes:
    fd = disk.open_to_read(path)
    try:
        return disk.read_at(fd, length, at)
    finally:
        disk.close(fd)
