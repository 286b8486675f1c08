"""Configuration files: JSON as RocketMQ writes it, with the previous version beside it (broker:1.4)."""

from __future__ import annotations

import logging
import threading
from codecs import BOM_UTF8
from pathlib import Path
from typing import Any

from sparrowmq.core.errors import JavaJsonError, StoreCorruptError
from sparrowmq.files import disk
from sparrowmq.protocol import java_json

log = logging.getLogger("sparrowmq.store")


class ConfigFile:
    """One file of `config/` and its `.bak`. Saving may happen in any thread; `mode` is 0o600 for secrets."""

    def __init__(self, path: Path, *, mode: int = 0o644) -> None:
        self._mode = mode
        self.path = path
        self.backup = path.with_name(path.name + ".bak")
        self._saving = threading.Lock()

    def __repr__(self) -> str:
        return f"<ConfigFile {self.path}>"

    def load(self) -> dict[str, Any]:
        """The stored object; the backup's when the file is missing, empty or broken; {} without either.

        Integer keys are returned as text. Raises `StoreCorruptError` when data exists but neither file can be
        parsed, `StoreError` when one cannot be read.
        """
        if not self._mode & 0o077:
            self._keep_private()
        problems, empty = [], []
        for path in (self.path, self.backup):
            try:
                data = disk.read(path).removeprefix(BOM_UTF8)  # an editor may have written one
                if not data.strip():
                    empty.append(f"{path} is empty")
                    continue
                value = java_json.loads(data)
                if not isinstance(value, dict):
                    raise JavaJsonError(f"an object was expected, not {type(value).__name__}")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk.store_error("cannot read", path, error) from error
            except JavaJsonError as error:
                problems.append(f"{path}: {error}")
                continue
            for problem in (*empty, *problems):
                log.warning("%s; the backup is used instead", problem)
            return value
        if problems:
            raise StoreCorruptError(
                f"{'; '.join(problems)}; replace it with a good copy, or remove it to start empty",
                what="content",
                value=self.path,
            )
        if empty:
            log.warning(
                "%s is empty and has no backup: what it held is lost, and a new one begins", self.path
            )
        return {}

    def _keep_private(self) -> None:
        for path in (self.path, self.backup):
            try:
                if disk.restrict(path):
                    log.warning(
                        "%s was open to other users of this machine; its permissions are now restricted",
                        path,
                    )
            except OSError as error:
                raise disk.store_error("cannot close to other users", path, error) from error

    def save(self, value: dict[str, Any]) -> None:
        """Replace the file durably; the previous version becomes the backup.

        After a crash, at least one of the two is intact. Raises `StoreError`.
        """
        self.write(java_json.dumps_pretty(value))

    def write(self, data: bytes) -> None:
        """Like `save`, for data that is already JSON."""
        with self._saving:
            try:
                disk.make_directory(self.path.parent)
                disk.replace(self.path, data, self.backup, mode=self._mode)
            except OSError as error:
                raise disk.store_error("cannot write", self.path, error) from error
