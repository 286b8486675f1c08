"""One process per store: the `lock` file; and `abort`, which tells a crash from a clean stop (broker:1.3).

The lock is a POSIX record lock on the first byte, as Java takes it. Such a lock does not hold against the
same process, so a table of this process' own locks stands beside it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import StoreLockedError
from sparrowmq.store import disk

LOCK_TEXT: Final = b"lock"
_PID_DIGITS_MAX: Final = 18
_held: set[tuple[int, int]] = set()
_held_guard = threading.Lock()


class StoreLock:
    """Holds a store's directory for this process until `release`."""

    def __init__(self, fd: int, key: tuple[int, int]) -> None:
        self._fd = fd
        self._key = key

    @classmethod
    def take(cls, root: Path) -> StoreLock:
        """Lock `root`; raises `StoreLockedError` when somebody has it, `StoreError` if it is read-only."""
        path = root / "lock"
        with _held_guard:
            try:
                key = _key(path)
                if key in _held:  # looked up before opening: closing any descriptor would free the lock
                    raise _locked(root, "this process")
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except OSError as error:
                raise disk.store_error("cannot open", path, error) from error
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                disk.write_at(fd, LOCK_TEXT, 0)
                stat = os.fstat(fd)
            except OSError as error:
                os.close(fd)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    pid = read_abort(root)
                    raise _locked(root, f"process {pid}" if pid else "another process") from None
                raise disk.store_error("cannot lock", path, error) from error
            key = (stat.st_dev, stat.st_ino)
            _held.add(key)
            return cls(fd, key)

    def release(self) -> None:
        """Give the directory back; idempotent."""
        with _held_guard:
            if self._fd >= 0:
                _held.discard(self._key)
                os.close(self._fd)
                self._fd = -1


def _key(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return None
    return stat.st_dev, stat.st_ino


def _locked(root: Path, holder: str) -> StoreLockedError:
    return StoreLockedError(
        f"the store {root} is in use by {holder}; stop that broker or give this one a directory of its own"
    )


def abort_exists(root: Path) -> bool:
    """Whether the last process to open the store did not close it."""
    return (root / "abort").exists()


def read_abort(root: Path) -> int | None:
    """The process id in `abort`; None without the file, or when an old broker left it empty."""
    try:
        text = (root / "abort").read_text("ascii", "replace").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() and len(text) <= _PID_DIGITS_MAX else None


def write_abort(root: Path) -> None:
    """Say that the store is open; raises OSError."""
    disk.replace(root / "abort", str(os.getpid()).encode())


def remove_abort(root: Path) -> None:
    """Say that the store was closed as it should; raises OSError."""
    with suppress(FileNotFoundError):
        (root / "abort").unlink()
    disk.sync_directory(root)
