from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.doubles import FakeClock
from tests.store.rig import opened, small

from sparrowmq.files import disk
from sparrowmq.store.base import disk_space
from sparrowmq.store.base.disk_space import DiskUsage
from sparrowmq.store.message_store import MessageStore


@pytest.mark.parametrize(
    ("percent", "was_full", "full"),
    [(90, False, False), (91, False, True), (90, True, True), (89, True, False), (100, True, True)],
)
def test_disk_is_full_above_the_limit_until_one_percent_below(
    percent: int,
    was_full: bool,
    full: bool,
) -> None:
    text = disk_space.full_text(Path("/s"), percent, 90, was_full)
    assert (text is not None) is full


def test_text_names_disk_value_limit_and_next_step() -> None:
    text = disk_space.full_text(Path("/s"), 97, 90, False)
    assert text == (
        "the disk of /s is 97 % full and diskSpaceWarningLevelRatio is 90; "
        "free space there, or raise the setting"
    )


def test_fullest_disk_counts() -> None:
    disks = {Path(name): DiskUsage(percent, 100, 1) for name, percent in (("/a", 10), ("/b", 30), ("/c", 20))}
    assert disk_space.fullest(disks) == (Path("/b"), 30)


def test_store_reports_when_it_is_full_and_when_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    percent = 10
    monkeypatch.setattr(disk, "used_percent", lambda _: percent)
    with opened(tmp_path, disk_space_warning_level_ratio=90) as store:
        assert store.full is None
        percent = 95
        store.check_disk()
        store.check_disk()
        assert store.full is not None
        assert store.used_percent() == 95
        percent = 50
        store.check_disk()
        assert store.full is None
    assert [record.levelname for record in caplog.records if "disk of" in record.message] == [
        "ERROR",
        "WARNING",
    ]


def test_disk_that_cannot_be_queried_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Path) -> int:
        raise OSError("gone")

    with opened(tmp_path) as store:
        monkeypatch.setattr(disk, "used_percent", broken)
        store.check_disk()
        store.check_disk()
        assert store.full is None
        assert (store.disks, store.used_percent()) == ({}, 0)
    assert caplog.text.count("cannot tell how full") == 1, "it is asked every second"


def test_disk_that_stopped_answering_has_no_figures(tmp_path: Path) -> None:
    """The last figures would look like current ones."""
    clock = FakeClock()
    store = MessageStore.open(small(tmp_path), clock, store_host=bytes(8))
    assert set(store.disks) == {tmp_path, tmp_path / "commitlog"}
    known = store.used_percent()
    clock.ms += 59_000
    assert store.disks
    clock.ms += 2_000
    assert store.disks == {}
    assert store.used_percent() == known, "retention and sends go on with it"
    store.check_disk()
    assert store.disks
    store.close()
