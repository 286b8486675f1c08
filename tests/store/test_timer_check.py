"""The timers' checkpoint file."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_5, unpacked

from sparrowmq.core.errors import StoreError
from sparrowmq.store.timer_check import TimerCheck


@pytest.mark.proves("broker:1.4")
def test_the_checkpoint_of_a_real_broker_is_read() -> None:
    check = TimerCheck.load(unpacked(CLEAN_5) / "config" / "timercheck")
    assert check == TimerCheck(1_795_254_447_000, 3276, 63, 63, 0, 1_795_254_447_493, 105)


def test_it_is_written_as_it_was_read(tmp_path: Path) -> None:
    source = unpacked(CLEAN_5) / "config" / "timercheck"
    TimerCheck.load(source).save(tmp_path / "config" / "timercheck")
    assert (tmp_path / "config" / "timercheck").read_bytes() == source.read_bytes()


def test_a_missing_or_short_file_knows_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "timercheck"
    assert TimerCheck.load(path) == TimerCheck()
    path.write_bytes(bytes(9))
    assert TimerCheck.load(path) == TimerCheck()
    assert "9 bytes instead of 4096" in caplog.text
    with pytest.raises(StoreError):
        TimerCheck.load(tmp_path)
