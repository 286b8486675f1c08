"""Timer log, wheel and checkpoint agree after every kind of end."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_5, KILLED_5, unpacked
from tests.store.rig import START_MS, ManualClock
from tests.support import about

from sparrowmq.core.errors import StoreError, StoreFullError
from sparrowmq.files import disk
from sparrowmq.store.timers.timer_log import NONE, UNIT_BYTES, Unit
from sparrowmq.store.timers.timer_wheel import SPAN_MS, Slot
from sparrowmq.store.timers.timers import Timers, is_marker, is_roll

FILE_BYTES = 4096


def opened(root: Path) -> Timers:
    return Timers.open(root, FILE_BYTES, ManualClock())


def unit(number: int, *, slot: int = START_MS + 5000, magic: int = 1) -> Unit:
    return Unit(NONE, magic, START_MS, slot - START_MS, number, 400, 0)


def chain(timers: Timers, slot_ms: int) -> list[int]:
    """Physical offsets of a slot's messages, oldest first."""
    slot = timers.slot(slot_ms)
    found: list[int] = []
    position = NONE if slot is None else slot.last
    while position != NONE:
        unit = timers.log.read(position)
        assert unit is not None and unit.slot == slot_ms
        found.append(unit.physical_offset)
        position = unit.previous
    return found[::-1]


def fill(timers: Timers, *numbers: int, slot: int = START_MS + 5000) -> None:
    for number in numbers:
        timers.add(slot, unit(number, slot=slot))
    timers.commit()
    timers.queue_offset += len(numbers)


def saved(timers: Timers) -> None:
    check = timers.unsaved()
    assert check is not None
    timers.write(check)


def test_units_of_a_slot_are_chained_and_counted(tmp_path: Path) -> None:
    timers = opened(tmp_path)
    fill(timers, 1, 2)
    fill(timers, 3)
    fill(timers, 9, slot=START_MS + 9000)
    timers.add(START_MS + 5000, unit(4, magic=5))
    assert timers.slot(START_MS + 5000) == Slot(0, 4 * UNIT_BYTES, 2)
    timers.commit()
    assert chain(timers, START_MS + 5000) == [1, 2, 3, 4]
    assert chain(timers, START_MS + 9000) == [9]
    timers.close()


def test_clean_stop_leaves_everything_in_place(tmp_path: Path) -> None:
    timers = opened(tmp_path)
    fill(timers, 1, 2)
    timers.read_time += 2000
    timers.close()
    timers.close()
    again = opened(tmp_path)
    assert chain(again, START_MS + 5000) == [1, 2]
    assert (again.read_time, again.queue_offset, again.replay_until) == (START_MS + 2000, 2, 0)
    fill(again, 3)
    assert chain(again, START_MS + 5000) == [1, 2, 3]
    again.close()


def test_units_after_the_checkpoint_count_after_a_kill(tmp_path: Path) -> None:
    timers = opened(tmp_path)
    fill(timers, 1)
    saved(timers)
    fill(timers, 2, 3)
    timers.abandon()
    again = opened(tmp_path)
    assert chain(again, START_MS + 5000) == [1, 2, 3]
    assert again.queue_offset == 1  # the caller finds the rest by the last unit
    assert again.log.last_unit() == unit(3)._replace(previous=UNIT_BYTES)
    again.close()


def test_wheel_without_the_last_units_gets_them(tmp_path: Path) -> None:
    timers = opened(tmp_path)
    fill(timers, 1)
    saved(timers)
    wheel = (tmp_path / "timerwheel").read_bytes()
    fill(timers, 2)
    fill(timers, 7, slot=START_MS + 8000)
    timers.abandon()
    (tmp_path / "timerwheel").write_bytes(wheel)
    again = opened(tmp_path)
    assert chain(again, START_MS + 5000) == [1, 2] and chain(again, START_MS + 8000) == [7]
    again.close()


def test_timer_wheel_ahead_of_the_log_is_rebuilt(tmp_path: Path) -> None:
    timers = opened(tmp_path)
    fill(timers, 1, 2)
    saved(timers)
    log = (tmp_path / "timerlog" / ("0" * 20)).read_bytes()
    fill(timers, 3)
    fill(timers, 4, slot=START_MS + 9000)
    timers.abandon()
    (tmp_path / "timerlog" / ("0" * 20)).write_bytes(log)
    again = opened(tmp_path)
    assert chain(again, START_MS + 5000) == [1, 2] and again.slot(START_MS + 9000) is None
    again.close()


def test_lost_timer_wheel_is_rebuilt_from_the_log(tmp_path: Path) -> None:
    timers = opened(tmp_path)
    fill(timers, 1, 2)
    fill(timers, 8, slot=START_MS - 5000)  # worked off already
    timers.close()
    (tmp_path / "timerwheel").unlink()
    again = opened(tmp_path)
    assert chain(again, START_MS + 5000) == [1, 2] and again.slot(START_MS - 5000) is None
    again.close()


def test_timer_topic_is_scheduled_again_after_the_log_was_lost(tmp_path: Path) -> None:
    timers = opened(tmp_path)
    fill(timers, 1, 2)
    timers.close()
    shutil.rmtree(tmp_path / "timerlog")
    again = opened(tmp_path)
    assert (again.queue_offset, again.replay_until) == (0, 2)
    assert again.slot(START_MS + 5000) is None
    again.close()


def test_without_a_checkpoint_the_first_unit_gives_the_start(tmp_path: Path) -> None:
    timers = opened(tmp_path)
    fill(timers, 1)
    fill(timers, 2, slot=START_MS - 7000)
    timers.close()
    (tmp_path / "config" / "timercheck").unlink()
    again = opened(tmp_path)
    assert again.read_time == START_MS - 7000
    assert chain(again, START_MS + 5000) == [1]
    again.close()


def test_new_directory_begins_now(tmp_path: Path) -> None:
    clock = ManualClock()
    clock.ms += 123
    timers = Timers.open(tmp_path, FILE_BYTES, clock)
    assert timers.read_time == START_MS
    assert timers.has_room_for(START_MS + SPAN_MS - 1000) and not timers.has_room_for(START_MS + SPAN_MS)
    timers.close()


@pytest.mark.proves("broker:8.2", "broker:1.4")
@pytest.mark.parametrize("name", [CLEAN_5, KILLED_5])
def test_real_brokers_timers_are_unchanged_after_opening_and_closing(name: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    source = unpacked(name)
    for part in ("timerlog", "config"):
        shutil.copytree(source / part, root / part)
    shutil.copy2(source / "timerwheel", root / "timerwheel")
    timers = opened(root)
    assert timers.queue_offset == 63 and timers.log.position == 3276
    assert timers.unsaved() is None
    waiting = [time for time, _ in timers.wheel.slots() if time >= timers.read_time]
    assert waiting and all(chain(timers, time) for time in waiting)
    timers.close()
    for path in ("timerwheel", "timerlog/" + "0" * 20, "config/timercheck"):
        assert (root / path).read_bytes() == (source / path).read_bytes()


def test_units_refused_by_a_full_disk_are_not_reported_as_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timers = opened(tmp_path)
    timers.add(START_MS + 5000, unit(1))

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_at", full)
        with pytest.raises(StoreFullError):
            timers.commit()
        assert timers.unsaved() is None
        with pytest.raises(StoreFullError, check=about(what="close")):
            timers.close()
    again = opened(tmp_path)
    fill(again, 1)
    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_at", full)
        with pytest.raises(StoreError, check=about(what="write the timers in")):
            saved(again)
    saved(again)
    assert again.unsaved() is None
    again.close()


@pytest.mark.parametrize(
    ("magic", "roll", "marker"), [(1, False, False), (3, True, False), (5, False, True), (7, True, False)]
)
def test_magic_numbers_are_the_references(magic: int, roll: bool, marker: bool) -> None:
    assert (is_roll(magic), is_marker(magic)) == (roll, marker)


def test_wheel_of_the_wrong_size_keeps_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "timerwheel").write_bytes(b"x")
    with pytest.raises(StoreError):
        opened(tmp_path)


def test_failed_flush_is_not_trusted_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timers = opened(tmp_path)
    fill(timers, 1)
    saved(timers)
    fill(timers, 2)

    def broken(_: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(disk, "sync_file", broken)
        with pytest.raises(StoreError, check=about(what="write the timers in")):
            saved(timers)
    with pytest.raises(StoreError, check=about(what="write the timers in")):
        saved(timers)
    with pytest.raises(StoreError, check=about(what="close")):
        timers.close()
    path = tmp_path / "timerlog" / ("0" * 20)  # what never reached the disk is gone with the power
    path.write_bytes(path.read_bytes()[:UNIT_BYTES].ljust(FILE_BYTES, b"\0"))
    again = opened(tmp_path)
    assert chain(again, START_MS + 5000) == [1]
    assert again.queue_offset == 1, "the second is planned again"
    again.close()
