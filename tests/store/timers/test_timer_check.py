"""The timers' checkpoint file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_5, unpacked

from sparrowmq.core.errors import StoreError
from sparrowmq.store.timers.timer_check import COPY_AT, TimerCheck


@pytest.mark.proves("broker:1.4")
def test_checkpoint_of_a_real_broker_is_read() -> None:
    check = TimerCheck.load(unpacked(CLEAN_5) / "config" / "timercheck")
    assert check == TimerCheck(1_795_254_447_000, 3276, 63, 63, 0, 1_795_254_447_493, 105)


def test_checkpoint_is_written_as_it_was_read(tmp_path: Path) -> None:
    source = unpacked(CLEAN_5) / "config" / "timercheck"
    TimerCheck.load(source).save(tmp_path / "config" / "timercheck")
    written = (tmp_path / "config" / "timercheck").read_bytes()
    assert written[:COPY_AT] == source.read_bytes()[:COPY_AT]
    assert len(written) == len(source.read_bytes())


SAVED = TimerCheck(1_795_254_447_000, 3276, 63, 63, 0, 1_795_254_447_493, 105)


@pytest.mark.parametrize("byte", range(0, 56, 3))
@pytest.mark.parametrize("bit", [0, 5, 7])
def test_damage_of_a_field_is_detected(tmp_path: Path, byte: int, bit: int) -> None:
    path = tmp_path / "timercheck"
    SAVED.save(path)
    data = bytearray(path.read_bytes())
    data[byte] ^= 1 << bit
    path.write_bytes(data)
    assert TimerCheck.load(path) == SAVED


@pytest.mark.parametrize("part", [bytes(512), b"\x17" * 512, b"\xff" * 512])
def test_damaged_sector_is_detected(tmp_path: Path, part: bytes, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "timercheck"
    for at in (0, COPY_AT):
        SAVED.save(path)
        path.write_bytes(path.read_bytes()[:at] + part + path.read_bytes()[at + 512 :])
        assert TimerCheck.load(path) == SAVED
    assert caplog.text.count("timercheck is damaged; its copy is used") == 1


def test_later_changes_by_rocketmq_count(tmp_path: Path) -> None:
    path = tmp_path / "timercheck"
    SAVED.save(path)
    later = replace(
        SAVED, read_time=SAVED.read_time + 9000, flush_position=3328, queue_offset=64, master_queue_offset=64
    )
    path.write_bytes(later.encode() + path.read_bytes()[56:])
    assert TimerCheck.load(path) == later
    later.save(path)
    assert TimerCheck.load(path) == later


def test_missing_or_short_file_contains_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "timercheck"
    assert TimerCheck.load(path) == TimerCheck()
    path.write_bytes(bytes(9))
    assert TimerCheck.load(path) == TimerCheck()
    assert "9 bytes instead of 4096" in caplog.text
    with pytest.raises(StoreError):
        TimerCheck.load(tmp_path)
