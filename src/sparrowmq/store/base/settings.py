"""The settings of a store: where its files are, how large they are, when it counts as full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sparrowmq.core.delay import DEFAULT_LEVELS, DelayLevels
from sparrowmq.core.errors import SettingsError

GIB: Final = 1 << 30
ENTRY_BYTES: Final = 20
COMMIT_LOG_FILE_BYTES_MIN: Final = 4096
INT_MAX: Final = 2**31 - 1
INDEX_SLOTS_MAX: Final = 100_000_000
INDEX_ENTRIES_MAX: Final = 85_000_000
"""A file of either kind at this size still fits the 2 GiB that Java can map."""
FLUSH_TYPES: Final = ("ASYNC_FLUSH", "SYNC_FLUSH")


def _always() -> None:
    """For stores whose owner may always write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings:
    """Settings of one store; names and defaults are RocketMQ's (broker:15.2), sizes are bytes.

    `commit_log_path` defaults to `root/commitlog`. The file sizes must match those the directory was created
    with; the size of a consume queue file is rounded up to whole entries of 20 bytes.
    `max_filter_message_size` bounds how many bytes of queue entries one read scans. Above
    `disk_space_warning_level_ratio` percent of the disk the store counts as full. `max_hash_slot_num` and
    `max_index_num` are the slots and entries of an index file; a directory with files of other sizes gets a
    new index. `delay_levels` determine when records of the delay topic are due. At most `producers_max` pairs
    of idempotent producer and queue are kept, each for `producer_expire_hours` after its last message. With
    `is_copy`, the store takes only the log of another store, see `LogCopy`. `may_write` is called before each
    chunk is written, and raises `StoreFencedError` when it must not be. Raises `SettingsError` for values
    outside their range.
    """

    root: Path
    commit_log_path: Path | None = None
    mapped_file_size_commit_log: int = GIB
    mapped_file_size_consume_queue: int = 6_000_000
    flush_disk_type: str = "ASYNC_FLUSH"
    max_message_size: int = 4 * 1024 * 1024
    max_filter_message_size: int = 16_000
    disk_space_warning_level_ratio: int = 90
    message_index_enable: bool = True
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    delay_levels: DelayLevels = DEFAULT_LEVELS
    producers_max: int = 50_000
    is_copy: bool = False
    producer_expire_hours: int = 168
    may_write: Callable[[], None] = field(default=_always, compare=False, repr=False)

    def __post_init__(self) -> None:
        _within("mappedFileSizeCommitLog", self.mapped_file_size_commit_log, COMMIT_LOG_FILE_BYTES_MIN)
        _within("mappedFileSizeConsumeQueue", self.mapped_file_size_consume_queue, ENTRY_BYTES)
        _within("maxMessageSize", self.max_message_size, 1)
        _within("maxFilterMessageSize", self.max_filter_message_size, ENTRY_BYTES)
        _within("diskSpaceWarningLevelRatio", self.disk_space_warning_level_ratio, 1, 100)
        _within("maxHashSlotNum", self.max_hash_slot_num, 1, INDEX_SLOTS_MAX)
        _within("maxIndexNum", self.max_index_num, 2, INDEX_ENTRIES_MAX)
        _within("maxProducerStates", self.producers_max, 1)
        _within("producerStateExpireHours", self.producer_expire_hours, 1)
        if self.flush_disk_type not in FLUSH_TYPES:
            raise SettingsError(
                f"flushDiskType={self.flush_disk_type}: must be one of {FLUSH_TYPES}",
                "flushDiskType",
                self.flush_disk_type,
            )

    @property
    def commit_log(self) -> Path:
        """Directory of the commit log."""
        return self.root / "commitlog" if self.commit_log_path is None else self.commit_log_path

    @property
    def consume_queue_file_bytes(self) -> int:
        """Size of one consume queue file: a whole number of entries."""
        return -(-self.mapped_file_size_consume_queue // ENTRY_BYTES) * ENTRY_BYTES

    @property
    def sync_flush(self) -> bool:
        """Whether messages become visible only after they are flushed to disk."""
        return self.flush_disk_type == "SYNC_FLUSH"


def _within(name: str, value: int, low: int, high: int = INT_MAX) -> None:
    if not low <= value <= high:
        raise SettingsError(f"{name}={value}: must be from {low} to {high}", name, value)
