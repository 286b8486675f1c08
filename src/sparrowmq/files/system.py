"""The file system calls of the operating system, which a simulated disk can replace.

`sparrowmq.files.disk` is the only caller. A method raises what the system raises, OSError.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path


class System:
    """The operating system's calls, under their system names."""

    def open(self, path: Path, flags: int, mode: int = 0o644) -> int:
        """A descriptor that is closed when another program is executed."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        """Give a descriptor back."""
        os.close(fd)

    def pread(self, fd: int, length: int, position: int) -> bytes:
        """Up to `length` bytes from `position` on; fewer at the end of the file."""
        return os.pread(fd, length, position)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        """Write some of `data`; returns how many bytes."""
        return os.pwrite(fd, data, position)

    def ftruncate(self, fd: int, size: int) -> None:
        """Truncate or extend a file."""
        os.ftruncate(fd, size)

    @property
    def can_reserve(self) -> bool:
        """Whether `posix_fallocate` is available."""
        return hasattr(os, "posix_fallocate")

    def posix_fallocate(self, fd: int, start: int, length: int) -> None:
        """Allocate blocks for a range of a file; its content is unchanged."""
        os.posix_fallocate(fd, start, length)

    def lseek(self, fd: int, position: int, whence: int) -> int:
        """Used for `SEEK_DATA` and `SEEK_HOLE` only."""
        return os.lseek(fd, position, whence)

    def fsync(self, fd: int) -> None:
        """Force a file's or a directory's content to disk."""
        os.fsync(fd)

    def fdatasync(self, fd: int) -> None:
        """Like `fsync`, but where the system allows it, without metadata that reading does not need."""
        getattr(os, "fdatasync", os.fsync)(fd)

    def mmap(self, fd: int, size: int, *, writable: bool) -> mmap.mmap:
        """The first `size` bytes of a file as memory that all processes share."""
        return mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)

    def lockf(self, fd: int) -> None:
        """Take the POSIX record lock of the first byte, without waiting."""
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)

    def lockf_shared(self, fd: int) -> None:
        """Take the POSIX record lock of the first byte for reading, without waiting; `close` releases it."""
        fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 0)

    def stat(self, path: Path) -> os.stat_result:
        """The metadata of a file."""
        return path.stat()

    def fstat(self, fd: int) -> os.stat_result:
        """The metadata of an open file."""
        return os.fstat(fd)

    def scandir(self, path: Path) -> list[tuple[str, bool, bool]]:
        """A directory's entries, unordered: name, is a directory, is a file. Follows links."""
        with os.scandir(path) as entries:
            return [(entry.name, entry.is_dir(), entry.is_file()) for entry in entries]

    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        """Create one directory."""
        path.mkdir(mode)

    def chmod(self, path: Path, mode: int) -> None:
        """Set the permissions of a file or directory."""
        path.chmod(mode)

    def rmdir(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def unlink(self, path: Path) -> None:
        """Remove a file's name."""
        path.unlink()

    def replace(self, old: Path, new: Path) -> None:
        """Rename a file; a file with the new name is replaced atomically."""
        old.replace(new)

    def statvfs(self, path: Path) -> os.statvfs_result:
        """Usage of the file system."""
        return os.statvfs(path)
