"""The timer log: units in the reference's layout, over several files, read back after a torn end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_5, KILLED_5, unpacked
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError, StoreFullError
from sparrowmq.files import disk
from sparrowmq.store.base.segments import MapPool
from sparrowmq.store.timers.timer_log import BLANK, BLANK_MAGIC, NONE, UNIT, UNIT_BYTES, TimerLog, Unit

FILE_BYTES = 4096
PER_FILE = 78


def opened(root: Path, start: int = 0, file_bytes: int = FILE_BYTES) -> TimerLog:
    log = TimerLog(root / "timerlog", file_bytes, MapPool(64))
    log.load(start)
    return log


def unit(number: int, previous: int = NONE) -> Unit:
    return Unit(previous, 1, 1_000_000, 1000, number, 400, -7)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[TimerLog]:
    made = opened(tmp_path)
    yield made
    made.close()


def test_empty_log_has_no_units(log: TimerLog) -> None:
    assert (log.position, log.last_unit(), list(log.units(0)), log.read(0)) == (0, None, [], None)


@pytest.mark.proves("broker:8.2")
def test_units_have_the_references_layout(tmp_path: Path, log: TimerLog) -> None:
    assert log.append(Unit(-1, 5, 1_795_254_349_000, 3_600_000, 2_358_474, 372, 1_217_058_163)) == 0
    assert log.is_behind
    log.commit()
    data = (tmp_path / "timerlog" / ("0" * 20)).read_bytes()
    assert len(data) == FILE_BYTES and not log.is_behind
    assert data[:52] == UNIT.pack(52, -1, 5, 1_795_254_349_000, 3_600_000, 2_358_474, 372, 1_217_058_163, 0)
    assert data[52:].count(0) == FILE_BYTES - 52


@pytest.mark.proves("broker:8.2")
def test_file_ends_with_a_blank_and_the_next_continues(tmp_path: Path, log: TimerLog) -> None:
    places = [log.append(unit(number)) for number in range(PER_FILE + 2)]
    log.commit()
    assert places[PER_FILE - 1] == (PER_FILE - 1) * UNIT_BYTES
    assert places[PER_FILE:] == [FILE_BYTES, FILE_BYTES + UNIT_BYTES]
    first = (tmp_path / "timerlog" / ("0" * 20)).read_bytes()
    end = PER_FILE * UNIT_BYTES
    assert BLANK.unpack_from(first, end) == (FILE_BYTES - end, 0, BLANK_MAGIC)
    assert [found.physical_offset for _, found in log.units(0)] == list(range(PER_FILE + 2))
    assert log.last_unit() == unit(PER_FILE + 1)


@pytest.mark.parametrize("start", [0, 52, FILE_BYTES])
def test_end_is_found_again_wherever_the_search_begins(tmp_path: Path, start: int) -> None:
    log = opened(tmp_path)
    for number in range(PER_FILE + 2):
        log.append(unit(number))
        log.commit()
    end = log.position
    log.close()
    again = opened(tmp_path, start)
    assert again.position == end
    assert again.append(unit(99)) == end
    again.commit()
    assert again.read(end) == unit(99)
    again.close()


def test_torn_unit_ends_the_log_and_is_cleared(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(3):
        log.append(unit(number))
    log.commit()
    log.close()
    path = tmp_path / "timerlog" / ("0" * 20)
    data = bytearray(path.read_bytes())
    data[2 * UNIT_BYTES : 2 * UNIT_BYTES + 4] = bytes(4)
    path.write_bytes(data)
    again = opened(tmp_path)
    assert again.position == 2 * UNIT_BYTES
    again.close()
    assert path.read_bytes()[2 * UNIT_BYTES :].count(0) == FILE_BYTES - 2 * UNIT_BYTES


@pytest.mark.parametrize("position", [-1, 1, 53, FILE_BYTES - 20, 10 * FILE_BYTES])
def test_place_without_a_unit_gives_none(log: TimerLog, position: int) -> None:
    log.append(unit(1))
    log.commit()
    assert log.read(position) is None


def test_position_beyond_the_files_begins_at_the_start(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(unit(1))
    log.commit()
    log.close()
    again = opened(tmp_path, 5 * FILE_BYTES)
    assert again.position == UNIT_BYTES
    again.close()


@pytest.mark.parametrize("name", [CLEAN_5, KILLED_5])
def test_log_of_a_real_broker_is_read(name: str, tmp_path: Path) -> None:
    log = TimerLog(unpacked(name) / "timerlog", FILE_BYTES, MapPool(64))
    log.load(3276)
    units = [found for _, found in log.units(0)]
    log.close()
    assert log.position == 3276 and len(units) == 63
    assert {found.magic for found in units} == {1, 3, 5, 7}
    assert all(found.slot % 1000 == 0 and found.topic_hash for found in units)


def test_other_file_size_is_refused_by_name(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.append(unit(1))
    log.commit()
    log.close()
    with pytest.raises(StoreCorruptError, check=about(what="mappedFileSizeTimerLog")):
        opened(tmp_path, file_bytes=8192)


def test_files_of_expired_messages_are_returned_for_deletion(tmp_path: Path, log: TimerLog) -> None:
    for number in range(3 * PER_FILE):
        log.append(unit(number))
    log.commit()
    assert log.drop_before(PER_FILE - 1) == []
    assert [path.name for path in log.drop_before(2 * PER_FILE)] == [f"{n * FILE_BYTES:020d}" for n in (0, 1)]
    assert log.start == 2 * FILE_BYTES and log.read(0) is None
    assert log.drop_before(10**9) == []  # the last one stays


def test_units_refused_by_a_full_disk_are_written_later(
    log: TimerLog,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(fd: int, data: bytes, position: int) -> None:
        raise OSError(28, "No space left on device")

    log.append(unit(1))
    with monkeypatch.context() as patched:
        patched.setattr(disk, "write_at", full)
        with pytest.raises(StoreFullError):
            log.commit()
    assert log.is_behind
    log.commit()
    assert log.read(0) == unit(1)
    log.sync(0, log.position)
