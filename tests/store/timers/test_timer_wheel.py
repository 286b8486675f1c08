"""The timer wheel: a slot per second in the reference's file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_5, unpacked
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError, StoreError, StoreFullError
from sparrowmq.files import disk
from sparrowmq.store.timers.timer_wheel import SLOT, SPAN_MS, WHEEL_BYTES, Slot, TimerWheel

NOW = 1_795_254_350_000


@pytest.fixture
def wheel(tmp_path: Path) -> Iterator[TimerWheel]:
    made = TimerWheel(tmp_path / "timerwheel")
    assert made.load() is False
    yield made
    made.close()


@pytest.mark.proves("broker:8.2")
def test_slot_is_where_the_reference_looks_for_it(tmp_path: Path, wheel: TimerWheel) -> None:
    wheel.put(NOW, Slot(52, 2912, 17))
    assert wheel.get(NOW) == Slot(52, 2912, 17)
    wheel.sync()
    data = (tmp_path / "timerwheel").read_bytes()
    assert len(data) == WHEEL_BYTES == 1_209_600 * 32
    assert SLOT.unpack_from(data, 1_795_254_350 % 1_209_600 * 32) == (1_795_254_350, 52, 2912, 17, 0)


def test_slot_of_another_round_is_empty(wheel: TimerWheel) -> None:
    wheel.put(NOW, Slot(0, 0, 1))
    assert wheel.get(NOW + SPAN_MS) is None and wheel.get(NOW + 1000) is None
    wheel.put(NOW + SPAN_MS, Slot(9, 9, 1))
    assert wheel.get(NOW) is None


def test_empty_file_takes_little_space(tmp_path: Path, wheel: TimerWheel) -> None:
    assert (tmp_path / "timerwheel").stat().st_blocks * 512 < 100_000


@pytest.mark.parametrize("ahead", [0, 1, 2047, 2048, 100_000, 700_000])
def test_next_slot_is_found_across_empty_time_and_the_end(wheel: TimerWheel, ahead: int) -> None:
    wheel.put(NOW - 1000, Slot(0, 0, 1))
    wheel.put(NOW + ahead * 1000, Slot(0, 0, 1))
    assert wheel.next_slot(NOW, NOW + ahead * 1000) == NOW + ahead * 1000
    assert wheel.next_slot(NOW, NOW + ahead * 1000 - 1000) is None
    assert wheel.next_slot(NOW + ahead * 1000 + 1000, NOW + SPAN_MS - 2000) is None


def test_slots_can_be_listed_and_cleared(wheel: TimerWheel) -> None:
    wheel.put(NOW, Slot(1, 2, 3))
    wheel.put(NOW + 500_000_000, Slot(4, 5, 6))
    assert dict(wheel.slots()) == {NOW: Slot(1, 2, 3), NOW + 500_000_000: Slot(4, 5, 6)}
    wheel.clear()
    assert list(wheel.slots()) == [] and wheel.get(NOW) is None


def test_stored_slots_survive_a_restart(tmp_path: Path) -> None:
    for expected in (None, Slot(7, 7, 1)):
        wheel = TimerWheel(tmp_path / "timerwheel")
        assert wheel.load() is (expected is not None)
        assert wheel.get(NOW) == expected
        wheel.put(NOW, Slot(7, 7, 1))
        wheel.close()
        wheel.close()


def test_file_of_another_size_is_refused(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(bytes(100))
    wheel = TimerWheel(tmp_path / "timerwheel")
    with pytest.raises(StoreCorruptError, check=about(value=100, limit=38707200)):
        wheel.load()
    with pytest.raises(StoreError):
        TimerWheel(tmp_path / "timerwheel" / "below").load()


def test_wheel_of_a_real_broker_is_read(tmp_path: Path) -> None:
    source = unpacked(CLEAN_5) / "timerwheel"
    wheel = TimerWheel(source)
    assert wheel.load() is True
    assert wheel.get(1_795_257_949_000) == Slot(260, 3016, 9)
    assert len(list(wheel.slots())) > 5
    wheel.close()


def test_disk_error_is_an_error(wheel: TimerWheel, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "write_at", full)
    monkeypatch.setattr(disk, "clear_data", full)
    with pytest.raises(StoreFullError, check=about(value=wheel.path)):
        wheel.put(NOW, Slot(0, 0, 1))
    with pytest.raises(StoreFullError, check=about(value=wheel.path)):
        wheel.clear()


def test_empty_file_is_created_again(tmp_path: Path) -> None:
    """A crash between creating the file and setting its size leaves it empty."""
    (tmp_path / "timerwheel").touch()
    wheel = TimerWheel(tmp_path / "timerwheel")
    assert wheel.load() is False
    wheel.put(NOW, Slot(1, 2, 3))
    assert wheel.get(NOW) == Slot(1, 2, 3)
    wheel.close()


@pytest.mark.parametrize("back", [1, 2047, 2048, 5000, 1_209_599, 1_209_600, 3_000_000])
def test_only_slots_of_the_given_time_are_cleared(wheel: TimerWheel, back: int) -> None:
    low, high = NOW - back * 1000, NOW
    inside = {high - 1000, max(low, high - SPAN_MS + 5000)}
    outside = {high}
    if back < 1_209_000:
        outside.add(low - 1000)
    if back == 5000:
        outside.add(low + 7000 + SPAN_MS)  # its place lies within, its time does not
    for time in inside | outside:
        wheel.put(time, Slot(1, 2, 3))
    wheel.forget(low, high)
    assert {time for time, _ in wheel.slots()} == outside
    assert wheel.holder(high) == high and wheel.holder(high - 1000) == 0
