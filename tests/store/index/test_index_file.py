from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.files import disk
from sparrowmq.store.index import index_file
from sparrowmq.store.index.index_file import (
    BACK_MS,
    ENTRY,
    FIRST,
    HEADER,
    LOOK_ENTRIES,
    SLOT,
    IndexFile,
    Key,
    file_bytes,
)

SLOTS, ENTRIES = 7, 30
TIME = 1_700_000_000_000
FOREVER = 2**62


def made(root: Path, after: IndexFile | None = None, name: str = "20250101000000000") -> IndexFile:
    return IndexFile.create(root / name, SLOTS, ENTRIES, after)


def keys(count: int, first: int = 0, seed: int = 1) -> list[Key]:
    rng = random.Random(seed)
    return [(rng.randrange(20), n * 100, TIME + n * 1000) for n in range(first, first + count)]


def found(file: IndexFile, value: int, begin: int = 0, end: int = FOREVER) -> list[int]:
    return [physical for physical in file.find(value, begin, end) if physical is not None]


@pytest.mark.proves("broker:4.1", "broker:4.2")
def test_file_has_the_expected_bytes(tmp_path: Path) -> None:
    file = made(tmp_path)
    assert file.put([(9, 500, TIME), (2, 500, TIME), (9, 700, TIME + 2500)]) == 3
    file.save_header()
    data = file.path.read_bytes()
    assert len(data) == file_bytes(SLOTS, ENTRIES) == 40 + 4 * SLOTS + 20 * ENTRIES
    assert HEADER.unpack_from(data) == (TIME, TIME + 2500, 500, 700, 1, 4)
    slots = [SLOT.unpack_from(data, 40 + 4 * slot)[0] for slot in range(SLOTS)]
    assert slots == [0, 0, 3, 0, 0, 0, 0]
    at = 40 + 4 * SLOTS
    entries = [ENTRY.unpack_from(data, at + 20 * number) for number in range(4)]
    assert entries == [(0, 0, 0, 0), (9, 500, 0, 0), (2, 500, 0, 1), (9, 700, 2, 2)]
    file.unmap()


@pytest.mark.proves("broker:4.1")
def test_default_size_is_rocketmqs() -> None:
    assert file_bytes(5_000_000, 20_000_000) == 420_000_040


@pytest.mark.proves("broker:4.2", "broker:17")
def test_full_file_accepts_no_more_and_the_next_begins_with_its_end_values(tmp_path: Path) -> None:
    file = made(tmp_path)
    assert file.put(keys(50)) == ENTRIES - 1
    assert file.is_full
    assert file.put(keys(1)) == 0
    following = made(tmp_path, file, "20250101000000001")
    head, ends = following.header, file.header
    assert (head.begin_timestamp, head.end_timestamp) == (ends.end_timestamp, ends.end_timestamp)
    assert (head.begin_offset, head.end_offset, head.count) == (ends.end_offset, ends.end_offset, FIRST)
    later = ends.end_timestamp + 5000
    following.put([(1, 9000, later), (8, 9000, later)])
    assert (following.header.begin_timestamp, following.header.begin_offset) == (later, 9000)
    seconds = [ENTRY.unpack_from(following.map(), 40 + 4 * SLOTS + 20 * n)[2] for n in (1, 2)]
    assert seconds == [5, 0]  # the first is counted from the end of the file before, as in the reference
    file.unmap()
    following.unmap()


@pytest.mark.proves("broker:4.3")
def test_chains_are_followed_newest_first_within_the_time(tmp_path: Path) -> None:
    file = made(tmp_path)
    filed = keys(29)
    file.put(filed)
    for value in range(20):
        wanted = [physical for v, physical, _ in filed if v == value]
        assert found(file, value) == wanted[::-1]
    value = filed[10][0]
    times = [(physical, stored) for v, physical, stored in filed if v == value]
    for low, high in ((TIME, TIME + 10_000), (TIME + 5000, TIME + 20_000), (TIME + 90_000, FOREVER)):
        wanted = [physical for physical, stored in times if low <= stored <= high]
        assert found(file, value, low, high) == wanted[::-1]
    assert file.overlaps(0, TIME)
    assert not file.overlaps(0, TIME - 1 - BACK_MS)
    assert not file.overlaps(TIME + 28_001 + BACK_MS, FOREVER)
    file.unmap()


def test_long_chain_ends_a_query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "CHAIN_MAX", 5)
    file = made(tmp_path)
    file.put([(3, n, TIME) for n in range(20)])
    assert len(found(file, 3)) == 5
    file.unmap()


@pytest.mark.parametrize("slot", [-5, 29, 2**31 - 1])
def test_invalid_slot_is_empty(slot: int, tmp_path: Path) -> None:
    file = made(tmp_path)
    file.put(keys(5))
    SLOT.pack_into(file.map(), 40 + 4 * 6, slot)
    assert found(file, 6) == []
    file.put([(6, 900, TIME)])
    assert found(file, 6) == [900]
    file.unmap()


def test_cyclic_chain_ends(tmp_path: Path) -> None:
    file = made(tmp_path)
    file.put([(6, 100, TIME), (6, 200, TIME)])
    ENTRY.pack_into(file.map(), 40 + 4 * SLOTS + 20, 6, 100, 0, 2)
    assert found(file, 6) == [200, 100]
    file.unmap()


@pytest.mark.parametrize("kept", range(1, 25, 3))
def test_entries_are_removed(kept: int, tmp_path: Path) -> None:
    """Whatever slots and entries were written later, the file has its earlier content."""
    filed = keys(24)
    whole = made(tmp_path, name="1")
    whole.put(filed[:kept])
    whole.save_header()
    before = whole.path.read_bytes()
    head = whole.header
    ends = head.end_offset, head.end_timestamp
    whole.put(filed[kept:])
    again = IndexFile.load(whole.path, SLOTS, ENTRIES)
    assert again.cut(kept + FIRST, *ends)
    at = 40 + 4 * SLOTS + 20 * (kept + FIRST)
    assert again.path.read_bytes()[:at] == before[:at]
    for value in range(20):
        assert found(again, value) == [p for v, p, _ in filed[:kept] if v == value][::-1]
    whole.unmap()
    again.unmap()


def test_broken_chain_cannot_be_removed(tmp_path: Path) -> None:
    file = made(tmp_path)
    file.put([(3, n, TIME) for n in range(10)])
    ENTRY.pack_into(file.map(), 40 + 4 * SLOTS + 20 * 8, 0, 0, 0, 0)  # a sector that never reached the disk
    assert not file.cut(6, 4, TIME)
    SLOT.pack_into(file.map(), 40 + 4 * 3, 5000)
    assert not file.cut(6, 4, TIME)
    file.unmap()


@pytest.mark.parametrize("lost", [(0, 0, 0, 0), (SLOTS, 300, 0, 0)], ids=["never written", "of before"])
def test_invalid_entry_ends_no_chain(lost: tuple[int, ...], tmp_path: Path) -> None:
    """It looks like the first entry of slot 0's chain, which would lose all earlier entries."""
    file = made(tmp_path)
    file.put([(0, 100 * n, TIME) for n in range(10)])
    ENTRY.pack_into(file.map(), 40 + 4 * SLOTS + 20 * 8, *lost)
    assert not file.cut(6, 400, TIME)
    file.unmap()


def test_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(disk, "reserve_in", full)
    with pytest.raises(OSError, check=about(errno=errno.ENOSPC)):
        made(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_full_disk_writes_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = made(tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "reserve_in", full)
        with pytest.raises(OSError, check=about(errno=errno.ENOSPC)):
            file.put(keys(3))
        assert file.header.count == FIRST
    assert file.put(keys(3)) == 3
    assert "3 keys" in repr(file)
    file.unmap()


def test_long_chain_is_read_in_pieces(tmp_path: Path) -> None:
    """The file may be unmapped between two pieces."""
    file = IndexFile.create(tmp_path / "1", 10, 4 * LOOK_ENTRIES, None)
    file.put([(7, number * 100, TIME) for number in range(3 * LOOK_ENTRIES)])
    pieces = 0
    for physical in file.find(17, 0, FOREVER):
        assert physical is None
        pieces += 1
        file.unmap()
    assert pieces == 3 - 1
    file.unmap()
