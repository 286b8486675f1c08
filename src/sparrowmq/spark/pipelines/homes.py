"""What the directories of pipelines share: where they may be, one writer at a time, whole files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from sparrowmq.core.errors import SettingsError


def directory(text: str | Path, what: str) -> Path:
    """The path that `text` names. Raises `SettingsError` on other file systems than mounted ones."""
    scheme = urlsplit(str(text)).scheme if "://" in str(text) else ""
    if scheme not in ("", "file"):
        raise SettingsError(
            f"{what} {text}: it needs a mounted file system, whose renames are one step; give a path, not a "
            f"URI with {scheme}:"
        )
    return Path(urlsplit(str(text)).path if scheme else text).absolute()


@contextmanager
def locked(root: Path, what: str, error: type[SettingsError]) -> Iterator[None]:
    """Makes the directory if need be and keeps other writers out. Raises `error`."""
    import fcntl  # not on Windows, which can read archives

    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as caught:
        raise error(f"{what} {root} cannot be made: {caught.strerror}") from caught
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            raise error(f"{what} {root} is being written by process {owner}; stop that one first") from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def replace_file(path: Path, text: str) -> None:
    """Let the file hold `text`, whole or not at all, on disk."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(text)
    sync(draft)
    draft.rename(path)
    sync(path.parent)


def sync_tree(root: Path) -> None:
    """Force files and directories to disk."""
    for path in (*root.rglob("*"), root):
        sync(path)


def sync(path: Path) -> None:
    """Force one file or directory to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
