"""Configuration files: JSON as RocketMQ writes it, with the previous version beside it (broker:1.4)."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

from sparrowmq.core.errors import JavaJsonError, StoreCorruptError
from sparrowmq.protocol import java_json
from sparrowmq.store import disk

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
        """The stored object; that of the backup when the file is missing, empty or broken; {} without both.

        Integer keys arrive as text. Raises `StoreCorruptError` when something is there but neither file can
        be understood, `StoreError` when one cannot be read.
        """
        problems = []
        for path in (self.path, self.backup):
            try:
                data = path.read_bytes()
                if not data.strip():
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
            for problem in problems:
                log.warning("%s; the backup is used instead", problem)
            return value
        if problems:
            raise StoreCorruptError(
                f"{'; '.join(problems)}; put a good copy in its place, or remove it to begin anew"
            )
        return {}

    def save(self, value: dict[str, Any]) -> None:
        """Replace the file, durably; the version before becomes the backup.

        A crash leaves at least one of the two whole. Raises `StoreError`.
        """
        self.write(java_json.dumps_pretty(value))

    def write(self, data: bytes) -> None:
        """The same for what is JSON already."""
        with self._saving:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                disk.replace(self.path, data, self.backup, mode=self._mode)
            except OSError as error:
                raise disk.store_error("cannot write", self.path, error) from error
