"""All file operations of store, servers and clients; no other module accesses files.

It uses `System`, the operating system's calls. Tests can replace it with a simulated disk (`use`) to observe
all operations and to make them fail. This module also contains the differences between platforms, and the
only conversion of an `OSError` to one of the store's errors. Functions raise OSError unless they say
otherwise.
"""

from __future__ import annotations

import errno
import mmap
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_IMODE, S_ISBLK, S_ISCHR, S_ISDIR, S_ISFIFO, S_ISSOCK
from typing import Final, NamedTuple

from sparrowmq.core.errors import StoreBusyError, StoreError, StoreFullError
from sparrowmq.files.system import System

MAPS_MIN: Final = 64
MAPS_MAX: Final = 16_384
"""Linux allows 65,530 mappings in a process."""

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_OPEN_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE})
_BUSY: Final = _OPEN_FILES | {errno.ENOMEM}
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
_OTHERS: Final = 0o077
_ZEROS: Final = bytes(64 * 1024)
_READ_BYTES: Final = 64 * 1024
READ_BYTES_MAX: Final = 2**30
"""The largest file that is read as a whole."""

_system = System()


@contextmanager
def use(system: System) -> Iterator[None]:
    """Send all operations to `system` within the block; for tests."""
    global _system
    before, _system = _system, system
    try:
        yield
    finally:
        _system = before


# Errors


def store_error(what: str, path: Path, error: OSError) -> StoreError:
    """`error` as a store error with the operation, the path, the reason and the next step."""
    kind, step = StoreError, ""
    if error.errno in _FULL:
        kind, step = StoreFullError, "; free space there or move the store to a larger disk"
    elif error.errno in _READ_ONLY:
        step = "; the store needs a directory it may write to"
    elif error.errno in _BUSY:
        kind, step = StoreBusyError, "; free memory"
        if error.errno in _OPEN_FILES:
            step = "; raise the limit of open files (ulimit -n)"
    text = f"{what} {path}: {error.strerror or error}{step}"
    return kind(text, what=what.removeprefix("cannot "), value=path)


def is_busy(error: OSError) -> bool:
    """Whether the system lacked file descriptors or memory: the call did nothing and may succeed later."""
    return error.errno in _BUSY


def maps_limit() -> int:
    """How many files one store may keep mapped: each takes a descriptor, and connections need some too."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MAPS_MAX if soft == resource.RLIM_INFINITY else soft // 2
    return max(MAPS_MIN, min(MAPS_MAX, allowed))


# Whole files and directories


def exists(path: Path) -> bool:
    """Whether the path exists."""
    try:
        _system.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def stat(path: Path) -> os.stat_result:
    """Size, times and identity of a file."""
    return _system.stat(path)


class DirectoryEntry(NamedTuple):
    """One entry of a directory."""

    name: str
    path: Path
    is_directory: bool
    is_file: bool


def entries(directory: Path) -> list[DirectoryEntry]:
    """The entries of a directory by name; links are followed."""
    found = sorted(_system.scandir(directory))
    return [
        DirectoryEntry(name, directory / name, is_directory, is_file) for name, is_directory, is_file in found
    ]


def make_directory(path: Path, *, durable: bool = True) -> None:
    """Create a directory and its parents where they are missing, and force their entries to disk.

    Without `durable`, the caller must force each entry to disk.
    """
    try:
        _system.mkdir(path)
    except FileNotFoundError:
        if exists(path.parent):  # a file system that makes no directories, such as /proc
            raise
        make_directory(path.parent, durable=durable)
        make_directory(path, durable=durable)
    except FileExistsError:
        if not S_ISDIR(_system.stat(path).st_mode):
            raise
    else:
        if durable:
            try:
                sync_directory(path.parent)
            except OSError:  # the next call would find it, and not force it to disk
                with suppress(OSError):
                    _system.rmdir(path)
                raise


def make_private_directory(path: Path) -> None:
    """Create a directory that only its owner may enter, with ordinary parents; does nothing if it exists."""
    if not exists(path.parent):
        make_directory(path.parent)
    with suppress(FileExistsError):
        _system.mkdir(path, 0o700)


def make_private(path: Path) -> None:
    """Create an empty file that only its owner may read; does nothing if it exists."""
    with suppress(FileExistsError):  # an existing file is not opened: closing it would release our locks
        _system.close(_system.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def restrict(path: Path) -> bool:
    """Remove all permissions of other users from a file or directory of ours; returns whether they had any.
    Missing paths and those of other owners stay unchanged.
    """
    try:
        found = _system.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    if not found.st_mode & _OTHERS or found.st_uid != os.geteuid():
        return False
    _system.chmod(path, S_IMODE(found.st_mode) & ~_OTHERS)
    return True


def remove_directory(path: Path) -> None:
    """Remove an empty directory."""
    _system.rmdir(path)


def unlink(path: Path, *, missing_ok: bool = False) -> None:
    """Remove a file's name; its content remains for processes that have it open or mapped."""
    try:
        _system.unlink(path)
    except FileNotFoundError:
        if not missing_ok:
            raise


def read(path: Path) -> bytes:
    """The content of a file. A pipe or device, which may have no end, is an OSError, and so is a size that no
    configuration has.
    """
    fd = _system.open(path, os.O_RDONLY | os.O_NONBLOCK)  # a pipe without a writer is opened, too
    try:
        found = _system.fstat(fd)
        if _is_endless(found.st_mode) or found.st_size > READ_BYTES_MAX:
            raise OSError(errno.EINVAL, f"not a regular file of at most {READ_BYTES_MAX} bytes", str(path))
        parts, position = [], 0
        while part := _system.pread(fd, max(_READ_BYTES, _system.fstat(fd).st_size - position), position):
            parts.append(part)
            position += len(part)
        return b"".join(parts)
    finally:
        _system.close(fd)


def _is_endless(mode: int) -> bool:
    return S_ISFIFO(mode) or S_ISCHR(mode) or S_ISBLK(mode) or S_ISSOCK(mode)


# By descriptor


def open_file(path: Path, *, make: bool = False, mode: int = 0o644) -> int:
    """A descriptor to read and write, to be closed by `close`; `make` creates a missing file, empty."""
    return _system.open(path, os.O_RDWR | (os.O_CREAT if make else 0), mode)


def open_to_read(path: Path) -> int:
    """A descriptor to read only, to be closed by `close`; works on a read-only file system too."""
    return _system.open(path, os.O_RDONLY)


def close(fd: int) -> None:
    """Close a descriptor."""
    _system.close(fd)


def identity(fd: int) -> tuple[int, int]:
    """Device and number of an open file."""
    found = _system.fstat(fd)
    return found.st_dev, found.st_ino


def lock(fd: int) -> None:
    """Take the POSIX record lock of the first byte for this process, without waiting."""
    _system.lockf(fd)


def is_locked(fd: int) -> bool:
    """Whether another process has the lock of a file's first byte. It is never taken for longer than this."""
    try:
        _system.lockf_shared(fd)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return True
        raise
    return False


def resize(fd: int, size: int) -> None:
    """Truncate or extend a file; new bytes are zeros."""
    _system.ftruncate(fd, size)


def read_at(fd: int, length: int, position: int) -> bytes:
    """Up to `length` bytes from `position` on; fewer at the end of the file."""
    return _system.pread(fd, length, position)


def datasync(fd: int) -> None:
    """Force a file's content to disk."""
    _system.fdatasync(fd)


def sync(fd: int) -> None:
    """Force a file's content and metadata to disk."""
    _system.fsync(fd)


def map_file(path: Path, size: int, *, writable: bool) -> mmap.mmap:
    """A file's first `size` bytes as shared memory. The mapping remains when the file is removed."""
    fd = _system.open(path, os.O_RDWR if writable else os.O_RDONLY)
    try:
        mapped = _system.mmap(fd, size, writable=writable)
    finally:
        _system.close(fd)
    if writable:
        # Otherwise the first write would read megabytes of zeros ahead for one entry.
        mapped.madvise(mmap.MADV_RANDOM)
    return mapped


def create(path: Path, size: int) -> None:
    """Create a sparse file of `size` zero bytes; removes it again if that fails."""
    fd = _system.open(path, os.O_RDWR | os.O_CREAT)
    try:
        _system.ftruncate(fd, size)
    except OSError:
        with suppress(OSError):
            _system.unlink(path)
        raise
    finally:
        _system.close(fd)


def write_at(fd: int, data: bytes, position: int) -> None:
    """Write all of `data`, if necessary with several calls; raises OSError when the disk is full."""
    written = _system.pwrite(fd, data, position)
    if written == len(data):
        return
    rest = memoryview(data)[written:]
    while rest:
        written = _system.pwrite(fd, rest, position + len(data) - len(rest))
        if written == 0:
            raise OSError(errno.EIO, "the file accepts no more bytes")
        rest = rest[written:]


def reserve(fd: int, start: int, length: int) -> None:
    """Reserve blocks for a range, so that writes to it through a mapping cannot fail.

    The range must not contain data: where the system cannot reserve blocks, zeros are written.
    """
    if _system.can_reserve:
        _system.posix_fallocate(fd, start, length)
    else:
        clear(fd, start, start + length)


def reserve_in(path: Path, start: int, length: int) -> None:
    """`reserve` for a file that is not open."""
    fd = _system.open(path, os.O_RDWR)
    try:
        reserve(fd, start, length)
    finally:
        _system.close(fd)


def clear(fd: int, start: int, end: int) -> None:
    """Write zeros from `start` to `end`."""
    while start < end:
        chunk = _ZEROS[: min(len(_ZEROS), end - start)]
        write_at(fd, chunk, start)
        start += len(chunk)


def data_extents(fd: int, start: int, end: int) -> list[tuple[int, int]]:
    """The ranges between `start` and `end` that may contain nonzero bytes."""
    extents = []
    while start < end:
        try:
            low = _system.lseek(fd, start, os.SEEK_DATA)
            high = _system.lseek(fd, low, os.SEEK_HOLE)
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
    """Zero the range from `start` to `end`; returns the length from its first to last nonzero byte."""
    first, last = end, start
    fd = _system.open(path, os.O_RDWR)
    try:
        for low, high in data_extents(fd, start, end):
            while low < high:
                piece = _system.pread(fd, min(len(_ZEROS), high - low), low)
                if not piece:
                    break
                if piece.count(0) != len(piece):
                    begin, last = low + len(piece) - len(piece.lstrip(b"\0")), low + len(piece.rstrip(b"\0"))
                    first = min(first, begin)
                    write_at(fd, _ZEROS[: last - begin], begin)
                low += len(piece)
    finally:
        _system.close(fd)
    return max(0, last - first)


def sync_file(path: Path) -> None:
    """Force a file's content to disk, regardless of which process wrote it."""
    fd = _system.open(path, os.O_RDWR)
    try:
        datasync(fd)
    finally:
        _system.close(fd)


def sync_directory(path: Path) -> None:
    """Force a directory's entries to disk: created, renamed and removed files."""
    fd = _system.open(path, os.O_RDONLY)
    try:
        _system.fsync(fd)
    finally:
        _system.close(fd)


def replace(path: Path, data: bytes, backup: Path | None = None, *, mode: int = 0o644) -> None:
    """Write `data` to `path` so that after a crash it has either the old content or the new.

    With `backup`, the old file is renamed to it; between the two renames only the backup exists. `mode` is
    the mode of the new file: use 0o600 for secrets.
    """
    temporary = path.with_name(path.name + ".tmp")
    fd = _system.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    try:
        write_at(fd, data, 0)
        _system.fsync(fd)
    except OSError:
        with suppress(OSError):
            _system.unlink(temporary)
        raise
    finally:
        _system.close(fd)
    if backup is not None:
        with suppress(FileNotFoundError):
            _system.replace(path, backup)
    _system.replace(temporary, path)
    sync_directory(path.parent)


def rename(path: Path, new: Path) -> None:
    """Rename a file or directory within its directory, durably; a file with the new name is replaced."""
    _system.replace(path, new)
    sync_directory(new.parent)


def used_percent(path: Path) -> int:
    """Used percentage of the disk of `path`, as `df` shows it: relative to the space for users, rounded
    up."""
    found = _system.statvfs(path)
    used, usable = found.f_blocks - found.f_bfree, found.f_bavail
    return -(-100 * used // (used + usable)) if used + usable else 0


def room(path: Path) -> tuple[int, int]:
    """Size of the disk of `path`, and how many bytes are still available to users."""
    found = _system.statvfs(path)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
