"""The operating system's side of files: positioned writes, reservation, fsync, atomic replacement.

Everything that differs between platforms is here, and the one place where an `OSError` becomes one of the
store's errors.
"""

from __future__ import annotations

import errno
import os
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import StoreBusyError, StoreError, StoreFullError

MAPS_MIN: Final = 64
MAPS_MAX: Final = 16_384
"""Linux allows 65,530 mappings in a process."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OPEN_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_BUSY: Final = _OPEN_FILES | {errno.ENOMEM}
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_ZEROS: Final = bytes(64 * 1024)

datasync = getattr(os, "fdatasync", os.fsync)


def store_error(what: str, path: Path, error: OSError) -> StoreError:
    """`error` as a store error: what was tried, where, why, and what to do."""
    reason = error.strerror or str(error)
    if error.errno in _FULL:
        return StoreFullError(f"{what} {path}: {reason}; free space there or move the store to a larger disk")
    if error.errno in _READ_ONLY:
        return StoreError(f"{what} {path}: {reason}; the store needs a directory it may write to")
    if error.errno in _BUSY:
        step = "raise the limit of open files (ulimit -n)" if error.errno in _OPEN_FILES else "free memory"
        return StoreBusyError(f"{what} {path}: {reason}; {step}")
    return StoreError(f"{what} {path}: {reason}")


def is_busy(error: OSError) -> bool:
    """Whether the system lacked open files or memory: the call did nothing and may work later."""
    return error.errno in _BUSY


def maps_limit() -> int:
    """How many files one store may keep mapped: each takes a descriptor, and connections need theirs."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MAPS_MAX if soft == resource.RLIM_INFINITY else soft // 2
    return max(MAPS_MIN, min(MAPS_MAX, allowed))


def create(path: Path, size: int) -> None:
    """Make a file of `size` zero bytes that takes no space yet; a half made one is removed again."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(fd, size)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(fd)


def write_at(fd: int, data: bytes, position: int) -> None:
    """Write all of `data`, which one call may not do; raises OSError when the disk is full."""
    written = os.pwrite(fd, data, position)
    if written == len(data):
        return
    rest = memoryview(data)[written:]
    while rest:
        written = os.pwrite(fd, rest, position + len(data) - len(rest))
        if written == 0:
            raise OSError(errno.EIO, "the file takes no more bytes")
        rest = rest[written:]


def reserve(fd: int, start: int, length: int) -> None:
    """Make the disk keep blocks for a range, so that writes through a mapping cannot fail there.

    The range holds nothing yet: where the system cannot reserve, zeros are written.
    """
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, start, length)
    else:
        clear(fd, start, start + length)


def reserve_in(path: Path, start: int, length: int) -> None:
    """`reserve` in a file that is not open."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        reserve(fd, start, length)
    finally:
        os.close(fd)


def clear(fd: int, start: int, end: int) -> None:
    """Write zeros from `start` to `end`."""
    while start < end:
        chunk = _ZEROS[: min(len(_ZEROS), end - start)]
        write_at(fd, chunk, start)
        start += len(chunk)


def data_extents(fd: int, start: int, end: int) -> list[tuple[int, int]]:
    """The ranges between `start` and `end` that may hold something else than zeros."""
    extents = []
    while start < end:
        try:
            low = os.lseek(fd, start, os.SEEK_DATA)
            high = os.lseek(fd, low, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data from here on
                break
            low, high = start, end
        if low >= end:
            break
        extents.append((low, min(high, end)))
        start = high
    return extents


def clear_data(path: Path, start: int, end: int) -> int:
    """Overwrite what is not zero from `start` to `end`; how many bytes lay between first and last of it."""
    first, last = end, start
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        for low, high in data_extents(fd, start, end):
            while low < high:
                piece = os.pread(fd, min(len(_ZEROS), high - low), low)
                if not piece:
                    break
                if piece.count(0) != len(piece):
                    begin, last = low + len(piece) - len(piece.lstrip(b"\0")), low + len(piece.rstrip(b"\0"))
                    first = min(first, begin)
                    write_at(fd, _ZEROS[: last - begin], begin)
                low += len(piece)
    finally:
        os.close(fd)
    return max(0, last - first)


def sync_file(path: Path) -> None:
    """Force a file's content to disk, whoever wrote it and however."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        datasync(fd)
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Force a directory's entries to disk: made, renamed and removed files."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace(path: Path, data: bytes, backup: Path | None = None, *, mode: int = 0o644) -> None:
    """Write `data` to `path` so that a crash leaves the old content or the new.

    With `backup` the old file goes there; between the two renames only the backup exists.
    `mode` is that of the new file: secrets take 0o600.
    """
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        write_at(fd, data, 0)
        os.fsync(fd)
    except OSError:
        with suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(fd)
    if backup is not None:
        with suppress(FileNotFoundError):
            path.replace(backup)
    temporary.replace(path)
    sync_directory(path.parent)


def used_percent(path: Path) -> int:
    """How full the disk of `path` is, as `df` shows it: used of what users may use, rounded up."""
    stat = os.statvfs(path)
    used, usable = stat.f_blocks - stat.f_bfree, stat.f_bavail
    return -(-100 * used // (used + usable)) if used + usable else 0
