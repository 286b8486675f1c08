"""A mirror's directory.

state.json   where queues go, how far they are mirrored, what stands where (`state`)
checkpoint/  Spark's
lock         held by the one process that mirrors
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparrowmq.spark.pipelines.common import directories
from sparrowmq.spark.pipelines.common.checkpoints import QueryCheckpoint
from sparrowmq.spark.pipelines.common.files import LocalFiles
from sparrowmq.spark.pipelines.mirror.state import MirrorError, MirrorState

STATE: Final = "state.json"


class MirrorDirectory:
    """One mirror on disk."""

    def __init__(self, root: str | Path) -> None:
        """Raises `SettingsError` for a location that is not on a mounted file system."""
        self.root = directories.directory(root, "mirror")
        self.checkpoint = QueryCheckpoint(
            LocalFiles(self.root / "checkpoint"),
            MirrorError,
            "without it the mirror continues where its state ends, and the current batch may be sent twice",
        )

    def __repr__(self) -> str:
        return f"<MirrorDirectory {self.root}>"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the directory if needed and lock out other processes. Raises `MirrorError`."""
        with directories.locked(self.root, "mirror", MirrorError):
            yield

    def load(self, source: str, target: str) -> MirrorState:
        """The mirror's state; empty at first. Raises `MirrorError` for the state of another mirror."""
        path = self.root / STATE
        try:
            text = path.read_text()
        except FileNotFoundError:
            return MirrorState(source=source, target=target)
        except OSError as error:
            raise MirrorError(
                f"{path} cannot be read: {error.strerror}; restore it from a copy", value=path
            ) from error
        state = MirrorState.from_text(text, path)
        if (state.source, state.target) != (source, target):
            raise MirrorError(
                f"{self.root} mirrors {state.source} to {state.target}, not {source} to {target}: use a "
                f"separate directory for each mirror",
                "directory",
                self.root,
            )
        return state

    def save(self, state: MirrorState) -> None:
        """Write a state durably. Raises `MirrorError`."""
        try:
            directories.replace_file(self.root / STATE, state.to_text())
        except OSError as error:
            path = self.root / STATE
            raise MirrorError(
                f"{path} cannot be written: {error.strerror}", what="write", value=path
            ) from error
