"""A mirror's directory.

state.json   where queues go, how far they are mirrored, what stands where (`mirror_state`)
checkpoint/  Spark's
lock         held by the one process that mirrors
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sparrowmq.spark.offsets import Span
from sparrowmq.spark.pipelines import checkpoints, homes
from sparrowmq.spark.pipelines.mirror_state import MirrorError, MirrorState

STATE: Final = "state.json"


class MirrorHome:
    """One mirror on disk."""

    def __init__(self, root: str | Path) -> None:
        """Raises `SettingsError` for what is no path of a mounted file system."""
        self.root = homes.directory(root, "mirror")
        self.checkpoint = self.root / "checkpoint"

    def __repr__(self) -> str:
        return f"<MirrorHome {self.root}>"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory if need be and keeps other processes out. Raises `MirrorError`."""
        with homes.locked(self.root, "mirror", MirrorError):
            yield

    def load(self, source: str, target: str) -> MirrorState:
        """What the mirror knows; an empty state at first. Raises `MirrorError` for another mirror's."""
        path = self.root / STATE
        try:
            text = path.read_text()
        except FileNotFoundError:
            return MirrorState(source=source, target=target)
        except OSError as error:
            raise MirrorError(f"{path} cannot be read: {error.strerror}; restore it from a copy") from error
        state = MirrorState.from_text(text, path)
        if (state.source, state.target) != (source, target):
            raise MirrorError(
                f"{self.root} mirrors {state.source} to {state.target}, not {source} to {target}: give each "
                "mirror a directory of its own"
            )
        return state

    def save(self, state: MirrorState) -> None:
        """Keep a state, on disk when this returns. Raises `MirrorError`."""
        try:
            homes.replace_file(self.root / STATE, state.to_text())
        except OSError as error:
            raise MirrorError(f"{self.root / STATE} cannot be written: {error.strerror}") from error

    @property
    def begun(self) -> bool:
        """Whether Spark has a checkpoint to go on from."""
        return (self.checkpoint / "offsets").is_dir()

    def query_id(self) -> str:
        """The id of the streaming query that the checkpoint belongs to."""
        return checkpoints.query_id(self.checkpoint)

    def batch_spans(self, batch: int) -> list[Span]:
        """What a micro-batch reads. Raises `MirrorError`."""
        try:
            return checkpoints.batch_spans(self.checkpoint, batch)
        except ValueError as error:
            raise MirrorError(
                f"{error}: remove {self.checkpoint}, the mirror goes on where its state ends; the batch it "
                "was in may be sent twice then"
            ) from error
