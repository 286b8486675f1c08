"""Files of a commit log, intact and damaged: every intact record is returned, everything else is reported."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.columnar.records import record
from tests.protocol.archives import CLEAN_4, CLEAN_5, KILLED_5, commit_log, ledger

from sparrowmq.columnar.log_file import LogBytes, chunks, first_records, first_timestamp

RECORDS = {CLEAN_5: 3626, KILLED_5: 3749, CLEAN_4: 3486}
BASE = 5_000_000


def told(start: int, end: int, why: str) -> None:
    raise AssertionError(f"{start} to {end}: {why}")


def positions(file: LogBytes, damage: list[tuple[int, int]] | None = None, **more: int | bool) -> list[int]:
    """Physical offsets of all records; damage goes to the list, or fails."""
    options = {"rows_max": 100, "bytes_max": 10**6, "check_crc": True, **more}
    note = told if damage is None else lambda start, end, why: damage.append((start, end))
    found: list[int] = []
    for chunk in chunks(file, damaged=note, **options):  # type: ignore[arg-type]
        found += chunk.places.heads["physical_offset"].tolist()
    return found


def log(count: int = 20, *, blank: bool = True, body: bytes = b"body") -> tuple[bytes, list[int]]:
    """A file of records at their places, with the blank at its end; and the places."""
    data, places = b"", []
    for number in range(count):
        places.append(BASE + len(data))
        data += record(number, body, physical_offset=BASE + len(data))
    if blank:
        data += (64).to_bytes(4, "big") + 0xCBD43194.to_bytes(4, "big") + bytes(56)
    return data, places


@pytest.mark.parametrize("name", RECORDS)
def test_files_of_real_brokers_are_read_whole(name: str) -> None:
    files = commit_log(name)
    found: list[int] = []
    last = max(base for base, data in files if any(data[:8]))
    for base, data in files:
        found += positions(LogBytes(data, base, base >= last))
    assert len(found) == RECORDS[name]
    assert {line["offset"] for line in ledger(name, "seen")} <= set(found)


def test_chunks_keep_their_limits() -> None:
    data, places = log()
    size = places[1] - places[0]
    file = LogBytes(data, BASE, True)
    options = {"check_crc": True, "damaged": told}
    by_rows = list(chunks(file, rows_max=7, bytes_max=10**6, **options))  # type: ignore[arg-type]
    assert [len(chunk.places) for chunk in by_rows] == [7, 7, 6]
    by_size = list(chunks(file, rows_max=100, bytes_max=3 * size, **options))  # type: ignore[arg-type]
    assert {len(chunk.buffer) for chunk in by_size} <= {3 * size, 2 * size}
    assert positions(file, bytes_max=1) == places


@pytest.mark.parametrize("at", [0, 4, 8, 20, 30, 87, 88, 92])
def test_a_damaged_record_is_told_and_the_next_ones_are_read(at: int) -> None:
    data, places = log()
    wrong = bytearray(data)
    wrong[places[5] - BASE + at] ^= 0xFF
    damage: list[tuple[int, int]] = []
    found = positions(LogBytes(bytes(wrong), BASE, True), damage)
    if at in (20, 30) and not damage:  # a number that no check covers
        assert at == 20 and found == places
    else:
        assert damage == [(places[5], places[6])]
        assert found == places[:5] + places[6:]


def test_zeros_in_the_middle() -> None:
    data, places = log()
    low, high = places[3] - BASE, places[9] - BASE
    wrong = data[:low] + bytes(high - low) + data[high:]
    damage: list[tuple[int, int]] = []
    assert positions(LogBytes(wrong, BASE, False), damage) == places[:3] + places[9:]
    assert damage == [(places[3], places[9])]


def test_without_the_check_bodies_may_be_anything() -> None:
    data, places = log()
    wrong = bytearray(data)
    wrong[places[5] - BASE + 88] ^= 0xFF
    assert positions(LogBytes(bytes(wrong), BASE, True), check_crc=False) == places


def test_where_the_log_ends() -> None:
    data, places = log(blank=False)
    for tail in (b"", bytes(500), data[:50], b"\xff" * 90, data[:-1]):
        damage: list[tuple[int, int]] = []
        assert positions(LogBytes(data + tail, BASE, True)) == places
        assert positions(LogBytes(data + tail, BASE, False), damage) == places
        assert damage == ([(BASE + len(data), BASE + len(data + tail))] if tail else [])


def test_a_file_that_was_moved_holds_nothing() -> None:
    data, _ = log()
    damage: list[tuple[int, int]] = []
    assert positions(LogBytes(data, BASE + 1, False), damage) == []
    assert damage == [(BASE + 1, BASE + 1 + len(data))]


def test_the_time_of_a_file() -> None:
    data, _ = log()
    assert first_timestamp(LogBytes(data, BASE, True)) is not None
    for other in (b"", bytes(200), data[1:]):
        assert first_timestamp(LogBytes(other, BASE, True)) is None


@given(st.integers(0, 3000), st.binary(min_size=1, max_size=40), st.booleans())
def test_damage_never_adds_moves_or_hides_good_records(at: int, noise: bytes, is_last: bool) -> None:
    data, places = log()
    at = min(at, len(data) - 1)
    wrong = (data[:at] + noise + data[at + len(noise) :])[: len(data)]
    damage: list[tuple[int, int]] = []
    found = positions(LogBytes(wrong, BASE, is_last), damage)
    ends = [*places[1:], places[-1] + (places[1] - places[0])]
    untouched = [
        place
        for place, end in zip(places, ends, strict=True)
        if end <= BASE + at or place >= BASE + at + len(noise)
    ]
    assert set(untouched) <= set(found) <= set(places)
    assert found == sorted(found)
    assert all(not _inside(place, damage) for place in found)


def _inside(place: int, damage: Iterable[tuple[int, int]]) -> bool:
    return any(low <= place < high for low, high in damage)


def test_how_long_the_first_records_are() -> None:
    data, places = log(20)
    size = places[1] - places[0]
    file = LogBytes(data, BASE, True)
    assert first_records(file, 3) == (3 * size, 3)
    assert first_records(file, 1000) == (len(data) - 64, 20), "the blank is no record"
    assert first_records(LogBytes(bytes(1000), BASE, True), 5) == (0, 0)
