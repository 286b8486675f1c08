"""Common functions for the directories of pipelines: their locations, one writer at a time, atomic files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from sparrowmq.core.errors import SettingsError

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""A single letter is a Windows drive."""


def is_uri(location: str | Path) -> bool:
    """Whether it names a file system that is not mounted; `file:` is a path."""
    scheme = _SCHEME.match(str(location))
    return scheme is not None and scheme[1].lower() != "file"


def directory(text: str | Path, what: str) -> Path:
    """The path in `text`. Raises `SettingsError` on file systems that are not mounted."""
    if is_uri(text):
        raise SettingsError(
            f"{what} {text}: it needs a mounted file system with atomic renames; give a path, not a URI "
            f"with {str(text).partition(':')[0]}:",
            what=what,
            value=text,
        )
    return Path(urlsplit(str(text)).path if _SCHEME.match(str(text)) else text).absolute()


def named(location: str | Path) -> str:
    """The canonical name of a location: paths are absolute."""
    return str(location).rstrip("/") if is_uri(location) else str(directory(location, ""))


def spark_path(path: Path) -> str:
    """A path for Spark, independent of its default file system."""
    return f"file:{path}"


@contextmanager
def locked(root: Path, what: str, error: type[SettingsError]) -> Iterator[None]:
    """Create the directory if needed and lock out other writers. Raises `error`."""
    import fcntl  # not on Windows, which can read archives

    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as caught:
        raise error(f"{what} {root} cannot be made: {caught.strerror}", what=what, value=root) from caught
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
            text = f"{what} {root} is being written by process {owner}; stop that one first"
            raise error(text, what="process", value=owner) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(lock)


def replace_file(path: Path, text: str) -> None:
    """Replace the content of a file by `text`, atomically and durably."""
    draft = path.with_name(f"{path.name}.new")
    draft.write_text(text)
    sync(draft)
    draft.rename(path)
    sync(path.parent)


def sync_tree(root: Path) -> None:
    """Flush files and directories to disk."""
    for path in (*root.rglob("*"), root):
        sync(path)


def sync(path: Path) -> None:
    """Flush one file or directory to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
