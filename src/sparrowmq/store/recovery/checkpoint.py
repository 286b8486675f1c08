"""`checkpoint`: the store times up to which log and queues are known to be flushed (broker:1.2)."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

from sparrowmq.store.base.number_file import load_numbers, save_numbers

MARGIN_MS: Final = 3000
"""Part of the format: the last seconds before these times are not trusted."""


@dataclass(slots=True)
class Checkpoint:
    """The fields in file order: times are epoch ms, the last three are physical offsets.

    `physic` and `logics` are the store times of the newest records known on disk in log and queues, and
    `logics_physical` is where the latter starts. The other fields are preserved.
    """

    physic: int = 0
    logics: int = 0
    index: int = 0
    master_flushed: int = 0
    confirm: int = 0
    logics_physical: int = 0

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """The file's content; zeros when it is missing or too short, which only makes recovery start earlier.

        Raises `StoreError` when it cannot be read.
        """
        return cls(*load_numbers(path, len(fields(cls))))

    def save(self, path: Path, *, sync: bool = False) -> None:
        """Write the file, 4096 bytes; with `sync`, fsync it. Raises OSError."""
        save_numbers(path, *astuple(self), sync=sync)

    @property
    def safe_timestamp(self) -> int:
        """Records stored up to this time, epoch ms, are certainly in log and queues; 0 if unknown."""
        return max(0, min(self.physic, self.logics) - MARGIN_MS)
