"""Damaging a closed or abandoned store on disk, byte by byte."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.store.rig import LOG_BYTES


def write_log(root: Path, position: int, data: bytes, *, file_bytes: int = LOG_BYTES) -> None:
    """Overwrite bytes of the commit log, within one file."""
    base = position - position % file_bytes
    with (root / "commitlog" / f"{base:020d}").open("r+b") as file:
        file.seek(position - base)
        file.write(data)


def read_log(root: Path, position: int, length: int, *, file_bytes: int = LOG_BYTES) -> bytes:
    """Bytes of the commit log, within one file."""
    base = position - position % file_bytes
    with (root / "commitlog" / f"{base:020d}").open("rb") as file:
        file.seek(position - base)
        return file.read(length)


def flip(root: Path, position: int, *, file_bytes: int = LOG_BYTES) -> None:
    """Invert all bits of one byte of the commit log."""
    old = read_log(root, position, 1, file_bytes=file_bytes)
    write_log(root, position, bytes([old[0] ^ 0xFF]), file_bytes=file_bytes)


def crashed(root: Path) -> None:
    """Make a cleanly closed store look as if its process had died."""
    (root / "abort").write_bytes(b"1")


def forget_safe_point(root: Path) -> None:
    """Remove our own notes, which a directory of another broker does not have."""
    (root / "safe-point.json").unlink(missing_ok=True)


def forget_progress(root: Path) -> None:
    """Remove the checkpoint as well: everything is read at the next start after a crash."""
    forget_safe_point(root)
    (root / "checkpoint").unlink(missing_ok=True)


def copy(source: Path, target: Path) -> Path:
    """A copy of a store directory."""
    shutil.copytree(source, target)
    return target
