"""`config/timercheck`: how far the timer files were flushed and worked off (broker:1.4)."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from pathlib import Path

from sparrowmq.store.number_file import load_numbers, save_numbers


@dataclass(frozen=True, slots=True)
class TimerCheck:
    """The fields in file order. Slots before `read_time` (epoch ms) were worked off.

    `flush_position` is the timer log's flushed end; messages of the timer topic before `queue_offset` have
    their units. A slave obeys `master_queue_offset`; a master writes its own there.
    """

    read_time: int = 0
    flush_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_timestamp: int = 0
    version_counter: int = 0

    @classmethod
    def load(cls, path: Path) -> TimerCheck:
        """The file's content; zeros when it is missing or short. Raises `StoreError`."""
        return cls(*load_numbers(path, len(fields(cls))))

    def save(self, path: Path) -> None:
        """Write the file, 4096 bytes; raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        save_numbers(path, *astuple(self))
