"""One process per store: the `lock` file; and `abort`, which distinguishes a crash from a clean stop
(broker:1.3).

The lock is a POSIX record lock on the first byte, as Java takes it. Such a lock does not exclude the same
process, so a table of this process's own locks supplements it.
"""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Final

from sparrowmq.core.errors import StoreError, StoreLockedError
from sparrowmq.files import disk

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
        """Lock `root`; raises `StoreLockedError` if it is already locked, `StoreError` if it is read-only."""
        path = root / "lock"
        with _held_guard:
            try:
                key = _key(path)
                if key in _held:  # checked before opening: closing any descriptor would release the lock
                    raise _locked(root, "this process")
                fd = disk.open_file(path, make=True)
            except OSError as error:
                raise disk.store_error("cannot open", path, error) from error
            try:
                disk.lock(fd)
                disk.write_at(fd, LOCK_TEXT, 0)
                key = disk.identity(fd)
            except OSError as error:
                disk.close(fd)
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    pid = read_abort(root)
                    raise _locked(root, f"process {pid}" if pid else "another process") from None
                raise disk.store_error("cannot lock", path, error) from error
            _held.add(key)
            return cls(fd, key)

    def release(self) -> None:
        """Release the directory; idempotent."""
        with _held_guard:
            if self._fd >= 0:
                _held.discard(self._key)
                disk.close(self._fd)
                self._fd = -1


def in_use(root: Path) -> bool:
    """Whether a process has the store open. Changes nothing; raises OSError."""
    path = root / "lock"
    with _held_guard:
        key = _key(path)
        if key is None or key in _held:  # not opened if it is ours: closing it would release the lock
            return key is not None
        fd = disk.open_to_read(path)
        try:
            return disk.is_locked(fd)
        finally:
            disk.close(fd)


def _key(path: Path) -> tuple[int, int] | None:
    try:
        found = disk.stat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _locked(root: Path, holder: str) -> StoreLockedError:
    return StoreLockedError(
        f"the store {root} is in use by {holder}; stop that broker or use another directory",
        what=holder,
        value=root,
    )


def abort_exists(root: Path) -> bool:
    """Whether the last process that opened the store failed to close it."""
    return disk.exists(root / "abort")


def read_abort(root: Path) -> int | None:
    """The process id in `abort`; None if the file is missing or an old broker left it empty."""
    try:
        text = disk.read(root / "abort").decode("ascii", "replace").strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() and len(text) <= _PID_DIGITS_MAX else None


def write_abort(root: Path) -> None:
    """Mark the store as open; raises OSError."""
    disk.replace(root / "abort", str(os.getpid()).encode())


def remove_abort(root: Path) -> None:
    """Mark the store as cleanly closed; raises OSError."""
    disk.unlink(root / "abort", missing_ok=True)
    disk.sync_directory(root)


def refuse_foreign(root: Path) -> None:
    """Raise `StoreError` for directories of RocketMQ's other storage engines (broker:17-50)."""
    for entry in disk.entries(root):
        if entry.name.startswith("dledger-"):
            raise StoreError(
                f"{entry.path} is the log of a DLedger broker, which is laid out differently; "
                "use another store",
                what="DLedger",
                value=entry.path,
            )
