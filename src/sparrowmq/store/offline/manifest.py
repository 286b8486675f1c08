"""The list of a backup's files. It is written last, so a backup without it is incomplete and never restored.

TARGET/manifest-00000001.json   one for each backup kept
TARGET/unfinished.json          what an interrupted backup has copied so far
TARGET/files/commitlog/…        the log, which only grows
TARGET/files/00000001/…         other files as they were in the backup with that number
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final
from zlib import crc32

from sparrowmq.core.errors import NoStoreError, StoreCorruptError
from sparrowmq.files import disk

FORMAT: Final = 1
FILES: Final = "files"
UNFINISHED: Final = "unfinished.json"
_PERMISSIONS: Final = 0o777
_NAME: Final = re.compile(r"manifest-(\d{8})\.json")


@dataclass(frozen=True, slots=True)
class BackupFile:
    """One file: its path in the store, the path of its copy, its size, the bytes used, and their CRC-32."""

    path: str
    stored: str
    size: int
    used: int
    crc: int
    mode: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """One backup. Positions are bytes in the log. Times are epoch ms; `oldest_ms` and `newest_ms` are store
    times.

    `index_slots` and `index_entries` are those of an index file, 0 if there was none. `deleted` maps each
    deleted topic to the end of the log at its deletion. `store` is the text that identifies the store, empty
    if it has none.
    """

    number: int
    created_ms: int
    source: str
    start: int
    end: int
    last_record: int
    oldest_ms: int
    newest_ms: int
    log_file_bytes: int
    queue_file_bytes: int
    index_slots: int = 0
    index_entries: int = 0
    deleted: dict[str, int] = field(default_factory=dict)
    store: str = ""
    files: tuple[BackupFile, ...] = ()

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"manifest-{self.number:08d}.json"

    def encode(self) -> bytes:
        """The content of the file, which includes its own checksum."""
        values = {"format": FORMAT, **asdict(self)}
        text = json.dumps(values, separators=(",", ":"))
        return json.dumps({"manifest": text, "crc": crc32(text.encode())}).encode()


def decode(data: bytes, path: Path) -> Manifest:
    """Decode a manifest. Raises `StoreCorruptError` when it is damaged."""
    try:
        outer = json.loads(data)
        text = outer["manifest"]
        if crc32(text.encode()) != outer["crc"]:
            raise ValueError("its checksum differs")
        values: dict[str, Any] = json.loads(text)
        if values.pop("format") != FORMAT:
            raise ValueError("a newer release wrote it")
        files = tuple(_file(one) for one in values.pop("files"))
        return Manifest(**values, files=files)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StoreCorruptError(
            f"{path} cannot be used: {error}; restore another backup with --number"
        ) from error


def _file(values: dict[str, Any]) -> BackupFile:
    """One entry. Raises `ValueError` for a path that leads out of the directory: backups are passed on."""
    found = BackupFile(**values)
    for path in (found.path, found.stored):
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts:
            raise ValueError(f"it names the file {path[:200]!r}, which is not in the directory")
    if found.mode & ~_PERMISSIONS:
        raise ValueError(f"the file {found.path[:200]!r} has the mode {found.mode:o}")
    return found


def numbers(target: Path) -> list[int]:
    """The backups in a directory, oldest first. Raises OSError."""
    found = (_NAME.fullmatch(entry.name) for entry in disk.entries(target))
    return [int(name[1]) for name in found if name is not None]


def load(target: Path, number: int) -> Manifest:
    """One backup's manifest. Raises `NoStoreError`, `StoreCorruptError` and OSError."""
    path = target / f"manifest-{number:08d}.json"
    try:
        return decode(disk.read(path), path)
    except FileNotFoundError:
        raise NoStoreError(
            f"{target} has no backup {number}; it has {numbers(target)}", what="backup", value=number
        ) from None


def save(target: Path, manifest: Manifest) -> None:
    """Write a manifest, once all its files are on disk. Raises OSError."""
    disk.replace(target / manifest.name, manifest.encode())


def load_unfinished(target: Path) -> dict[str, BackupFile]:
    """What an interrupted backup had copied, by path; empty if the record cannot be read. Raises OSError."""
    try:
        values = json.loads(disk.read(target / UNFINISHED))
        return {one["path"]: _file(one) for one in values["files"]}
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, KeyError):
        return {}


def save_unfinished(target: Path, files: list[BackupFile]) -> None:
    """Record what was copied and forced to disk. Raises OSError."""
    disk.replace(target / UNFINISHED, json.dumps({"files": [asdict(file) for file in files]}).encode())
