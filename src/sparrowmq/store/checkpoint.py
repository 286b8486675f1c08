"""`checkpoint`: up to which store times log and queues are known to be on disk (broker:1.2)."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Final

from sparrowmq.store.number_file import load_numbers, save_numbers

MARGIN_MS: Final = 3000
"""Part of the format: times this close to the end are not trusted."""


@dataclass(slots=True)
class Checkpoint:
    """The fields in file order: times are epoch ms, the last three are physical offsets.

    `physic` and `logics` are the store times of the newest records known on disk in log and queues, and
    `logics_physical` is where the latter starts. The others are kept as they were found.
    """

    physic: int = 0
    logics: int = 0
    index: int = 0
    master_flushed: int = 0
    confirm: int = 0
    logics_physical: int = 0

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        """The file's content; zeros, which only make recovery start earlier, when it is missing or short.

        Raises `StoreError` when it cannot be read.
        """
        return cls(*load_numbers(path, len(fields(cls))))

    def save(self, path: Path, *, sync: bool = False) -> None:
        """Write the file, 4096 bytes; with `sync` force it to disk. Raises OSError."""
        save_numbers(path, *astuple(self), sync=sync)

    @property
    def safe_timestamp(self) -> int:
        """Records stored up to this time, epoch ms, are in log and queues for sure; 0 knows nothing."""
        return max(0, min(self.physic, self.logics) - MARGIN_MS)
