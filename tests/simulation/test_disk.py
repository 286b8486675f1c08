"""The simulated disk itself: what of each operation a crash keeps, tears and loses."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulation.disk import Fault, SimulatedDisk
from tests.simulation.histories import State, histories
from tests.support import about

from sparrowmq.files import disk


@pytest.fixture
def made(tmp_path: Path) -> Iterator[SimulatedDisk]:
    (tmp_path / "old").write_bytes(b"o" * 1024)
    simulated = SimulatedDisk(tmp_path)
    with disk.use(simulated):
        yield simulated
    simulated.end()


def states(made: SimulatedDisk, *, power: bool) -> list[State]:
    """What the disk may hold after a crash now."""
    at = made.mark("now")
    return [history.state for history in histories(made.moments, at) if history.power is power]


def held(state: State, name: str) -> bytes | None:
    """A file of a state, None without it."""
    content = state.get(name)
    if content is None:
        return None
    return b"".join(content.sectors.get(n, bytes(512)) for n in range(-(-content.size // 512)))[
        : content.size
    ]


def contents(made: SimulatedDisk, name: str, *, power: bool = True) -> set[bytes | None]:
    return {held(state, name) for state in states(made, power=power)}


def write(path: Path, data: bytes, at: int = 0, *, sync: bool = False) -> None:
    fd = disk.open_file(path, make=True)
    disk.write_at(fd, data, at)
    if sync:
        disk.datasync(fd)
    disk.close(fd)


def test_the_process_death_keeps_all_that_was_written(made: SimulatedDisk) -> None:
    write(made.root / "new", b"n" * 700)
    assert contents(made, "new", power=False) == {b"n" * 700}


def test_a_write_may_stop_at_each_sector_when_the_process_dies(made: SimulatedDisk) -> None:
    write(made.root / "old", b"n" * 1024)
    (at,) = [n for n, moment in enumerate(made.moments) if moment.what.startswith("pwrite")]
    found = {held(history.state, "old") for history in histories(made.moments, at) if not history.power}
    assert found == {b"o" * 1024, b"n" * 512 + b"o" * 512}


def test_a_power_cut_keeps_any_sectors_of_what_was_not_forced(made: SimulatedDisk) -> None:
    write(made.root / "old", b"n" * 1024)
    old, new = b"o" * 512, b"n" * 512
    assert contents(made, "old") == {old + old, old + new, new + old, new + new}
    write(made.root / "old", b"n" * 1024, sync=True)
    assert contents(made, "old") == {new + new}


def test_a_new_file_is_lost_with_its_entry_until_the_directory_is_forced(made: SimulatedDisk) -> None:
    write(made.root / "new", b"n" * 100, sync=True)
    assert contents(made, "new") == {None, b"n" * 100}
    disk.sync_directory(made.root)
    assert contents(made, "new") == {b"n" * 100}


def test_a_length_may_be_there_without_the_content(made: SimulatedDisk) -> None:
    write(made.root / "new", b"n" * 100)
    disk.sync_directory(made.root)
    assert contents(made, "new") == {b"", bytes(100), b"n" * 100}


def test_replacing_a_file_leaves_a_whole_one_at_every_moment(made: SimulatedDisk) -> None:
    disk.replace(made.root / "old", b"n" * 1024, made.root / "bak")
    made.mark("end")
    for at in range(len(made.moments)):
        for history in histories(made.moments, at):
            found = {held(history.state, name) for name in ("old", "bak")} - {None}
            assert found and found <= {b"o" * 1024, b"n" * 1024}, history.what
    assert contents(made, "old") == {b"n" * 1024}


def test_a_replacement_without_force_is_found_out(made: SimulatedDisk) -> None:
    write(made.root / "old.tmp", b"n" * 1024)
    made.replace(made.root / "old.tmp", made.root / "old")
    assert b"" in contents(made, "old")


def test_a_directory_and_all_in_it_are_lost_until_its_parent_is_forced(made: SimulatedDisk) -> None:
    disk.make_directory(made.root / "a" / "b", durable=False)
    write(made.root / "a" / "b" / "new", b"n", sync=True)
    disk.sync_directory(made.root / "a" / "b")
    assert contents(made, "a/b/new") == {None, b"n"}
    disk.sync_directory(made.root / "a")
    disk.sync_directory(made.root)
    assert contents(made, "a/b/new") == {b"n"}


def test_directories_are_made_for_good(made: SimulatedDisk) -> None:
    disk.make_directory(made.root / "a" / "b")
    assert all("a/b" in state for state in states(made, power=True))


def test_a_directory_that_could_not_be_made_for_good_is_made_again(tmp_path: Path) -> None:
    simulated = SimulatedDisk(tmp_path, Fault(2, "EIO"))
    with disk.use(simulated):
        with pytest.raises(OSError, check=about(errno=errno.EIO)):
            disk.make_directory(tmp_path / "a")
        assert simulated.faulted == "fsync ."
        disk.make_directory(tmp_path / "a")
        assert all("a" in state for state in states(simulated, power=True))


def test_a_removed_file_may_be_back_until_the_directory_is_forced(made: SimulatedDisk) -> None:
    disk.unlink(made.root / "old")
    assert contents(made, "old") == {None, b"o" * 1024}
    disk.sync_directory(made.root)
    assert contents(made, "old") == {None}


def test_writes_through_a_mapping_are_seen_and_forced_with_the_file(made: SimulatedDisk) -> None:
    mapped = disk.map_file(made.root / "old", 1024, writable=True)
    mapped[600:601] = b"x"
    new = b"o" * 600 + b"x" + b"o" * 423
    assert contents(made, "old") == {b"o" * 1024, new}
    disk.sync_file(made.root / "old")
    assert contents(made, "old") == {new}
    mapped.close()


@pytest.mark.parametrize("later", [False, True])
def test_what_a_failed_force_dropped_no_later_one_writes(tmp_path: Path, later: bool) -> None:
    (tmp_path / "f").write_bytes(bytes(1024))
    simulated = SimulatedDisk(tmp_path, Fault(2, "EIO"))
    with disk.use(simulated):
        fd = disk.open_file(tmp_path / "f")
        disk.write_at(fd, b"x", 0)
        with pytest.raises(OSError, check=about(errno=errno.EIO)):
            disk.datasync(fd)
        if later:
            disk.write_at(fd, b"y", 600)
        disk.datasync(fd)
        disk.close(fd)
        lost = bytes(600) + (b"y" if later else b"\0") + bytes(423)
        assert contents(simulated, "f") == {lost}
        assert contents(simulated, "f", power=False) == {b"x" + lost[1:]}


def test_what_a_failed_force_dropped_is_there_when_it_was_written_again(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(bytes(1024))
    simulated = SimulatedDisk(tmp_path, Fault(2, "EIO"))
    with disk.use(simulated):
        fd = disk.open_file(tmp_path / "f")
        disk.write_at(fd, b"x" * 600, 0)
        with pytest.raises(OSError, check=about(errno=errno.EIO)):
            disk.datasync(fd)
        disk.write_at(fd, b"x" * 100, 0)
        disk.datasync(fd)
        disk.close(fd)
        assert contents(simulated, "f") == {b"x" * 512 + bytes(512)}


@pytest.mark.parametrize("kind", ["EIO", "ENOSPC"])
@pytest.mark.parametrize("stays", [False, True])
def test_operations_fail_when_told(tmp_path: Path, kind: str, stays: bool) -> None:
    simulated = SimulatedDisk(tmp_path, Fault(1, kind, stays))
    with disk.use(simulated):
        fd = disk.open_file(tmp_path / "f", make=True)
        for expected in (True, stays):
            try:
                disk.write_at(fd, b"x", 0)
            except OSError as error:
                assert expected and error.errno == getattr(errno, kind)
            else:
                assert not expected
        disk.close(fd)


def test_a_short_write_is_short(tmp_path: Path) -> None:
    simulated = SimulatedDisk(tmp_path, Fault(1, "short"))
    with disk.use(simulated):
        fd = simulated.open(tmp_path / "f", os.O_RDWR | os.O_CREAT)
        assert simulated.pwrite(fd, b"abcd", 0) == 2
        assert simulated.pwrite(fd, b"cd", 2) == 2
        simulated.close(fd)
    assert (tmp_path / "f").read_bytes() == b"abcd"
