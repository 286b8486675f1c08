from __future__ import annotations

from pathlib import Path

import pytest

from sparrowmq.core.errors import SettingsError
from sparrowmq.store.base.settings import StoreSettings


def test_defaults_are_the_references() -> None:
    settings = StoreSettings(root=Path("/s"))
    assert settings.mapped_file_size_commit_log == 1 << 30
    assert settings.consume_queue_file_bytes == 6_000_000
    assert settings.commit_log == Path("/s/commitlog")
    assert not settings.sync_flush


def test_commit_log_may_be_elsewhere() -> None:
    assert StoreSettings(root=Path("/s"), commit_log_path=Path("/log")).commit_log == Path("/log")


@pytest.mark.parametrize(("given", "used"), [(20, 20), (21, 40), (2000, 2000), (2001, 2020)])
def test_queue_files_hold_whole_entries(given: int, used: int) -> None:
    assert (
        StoreSettings(root=Path("/s"), mapped_file_size_consume_queue=given).consume_queue_file_bytes == used
    )


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("mapped_file_size_commit_log", 4095, "mappedFileSizeCommitLog=4095: must be from 4096"),
        ("mapped_file_size_commit_log", 1 << 31, "mappedFileSizeCommitLog=2147483648"),
        ("mapped_file_size_consume_queue", 19, "mappedFileSizeConsumeQueue=19"),
        ("max_message_size", 0, "maxMessageSize=0"),
        ("max_filter_message_size", 19, "maxFilterMessageSize=19"),
        ("disk_space_warning_level_ratio", 101, "diskSpaceWarningLevelRatio=101: must be from 1 to 100"),
        ("flush_disk_type", "SOMETIMES", "flushDiskType=SOMETIMES"),
    ],
)
def test_values_out_of_range_are_named(name: str, value: object, text: str) -> None:
    with pytest.raises(SettingsError) as caught:
        StoreSettings(root=Path("/s"), **{name: value})
    assert str(caught.value).startswith(text)
