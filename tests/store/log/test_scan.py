"""Scanning the log: ends, blanks, and finding records after damage."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.store.damage import flip, read_log, write_log
from tests.store.rig import LOG_BYTES, START_MS, opened, put

from sparrowmq.store.base.segments import MapPool, SegmentSequence
from sparrowmq.store.log.commit_log import LogEnd
from sparrowmq.store.log.scan import Scanned, scan

SIZES = [10, 300, 1, 1700, 700, 50, 900, 20, 2900, 20, 500, 3, 600, 7, 250]


def make(root: Path, bodies: list[bytes] | None = None) -> list[tuple[int, int]]:
    """A log of records; returns where each starts and its size."""
    with opened(root) as store:
        queue = store.queue("T", 0)
        places = []
        for number, body in enumerate(bodies or [bytes([65 + n]) * size for n, size in enumerate(SIZES)]):
            place = put(store, queue, body, now_ms=START_MS + number)[1]
            places.append((place, store.position - place))
        return places


def walk(root: Path, start: int = 0) -> tuple[list[tuple[int, int]], Scanned]:
    files = SegmentSequence(root / "commitlog", LOG_BYTES, MapPool(10), setting="x", writable=False)
    files.load()
    seen: list[tuple[int, int]] = []
    found = scan(files, LogEnd(start, -1, 0), lambda view, at, place, size: seen.append((place, size)))
    files.close()
    return seen, found


def test_all_records_and_the_end_are_found(tmp_path: Path) -> None:
    places = make(tmp_path)
    seen, found = walk(tmp_path)
    assert seen == places
    last, size = places[-1]
    assert found == Scanned(LogEnd(last + size, last, START_MS + len(SIZES) - 1), len(SIZES), [])
    assert places[-1][0] > 2 * LOG_BYTES


@pytest.mark.parametrize("index", [0, 1, 5, -1])
def test_scan_may_begin_at_any_record(index: int, tmp_path: Path) -> None:
    places = make(tmp_path)
    seen, found = walk(tmp_path, places[index][0])
    assert seen == places[index:]
    assert found.damaged == []


def test_log_that_ends_with_a_blank_ends_with_its_file(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, store.queue("T", 0), b"x")
        store.reserve(LOG_BYTES - 10)
        store.commit_chunk()
        assert store.position == LOG_BYTES
    assert walk(tmp_path)[1].progress.position == LOG_BYTES
    with opened(tmp_path) as store:
        assert put(store, store.queue("T", 0), b"y")[1] in (93, LOG_BYTES)


def test_missing_and_empty_files_are_scanned(tmp_path: Path) -> None:
    assert walk(tmp_path)[1] == Scanned(LogEnd(0, -1, 0))
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(LOG_BYTES))
    assert walk(tmp_path)[1] == Scanned(LogEnd(0, -1, 0))


@pytest.mark.parametrize("victim", range(len(SIZES)))
@pytest.mark.parametrize("at", [0, 3, 4, 7, 8, 28, 84, 88, -1], ids=str)
def test_one_damaged_record_only_loses_itself(victim: int, at: int, tmp_path: Path) -> None:
    places = make(tmp_path)
    place, size = places[victim]
    flip(tmp_path, place + at if at >= 0 else place + size - 1 - 3)
    seen, found = walk(tmp_path)
    assert seen == places[:victim] + places[victim + 1 :]
    if victim == len(SIZES) - 1:
        assert found.progress.position == place
        assert found.damaged == []
    else:
        following = places[victim + 1][0]
        assert found.damaged == [(place, following)]
        assert found.progress.position == sum(places[-1])


def test_destroyed_file_in_the_middle_only_loses_its_records(tmp_path: Path) -> None:
    places = make(tmp_path)
    noise = random.Random(3).randbytes(LOG_BYTES)
    write_log(tmp_path, LOG_BYTES, noise)
    seen, found = walk(tmp_path)
    assert seen == [place for place in places if not LOG_BYTES <= place[0] < 2 * LOG_BYTES]
    assert found.damaged == [(LOG_BYTES, 2 * LOG_BYTES)]


def test_missing_blank_is_skipped(tmp_path: Path) -> None:
    places = make(tmp_path)
    end = max(place + size for place, size in places if place < LOG_BYTES)
    write_log(tmp_path, end, bytes(8))
    seen, found = walk(tmp_path)
    assert seen == places
    assert found.damaged == [(end, LOG_BYTES)]


def test_nothing_after_a_torn_record_means_the_end(tmp_path: Path) -> None:
    places = make(tmp_path)
    place, size = places[-1]
    for cut in range(size):
        kept = read_log(tmp_path, place, size)
        write_log(tmp_path, place + cut, bytes(size - cut))
        torn = read_log(tmp_path, place, size) != kept
        seen, found = walk(tmp_path)
        assert seen == (places[:-1] if torn else places)
        assert found.progress.position == (place if torn else place + size)
        assert found.damaged == []
        write_log(tmp_path, place, kept)


def test_records_inside_bodies_are_ignored(tmp_path: Path) -> None:
    with opened(tmp_path / "inner") as store:
        inner = store.read_record(put(store, store.queue("T", 0), b"inner")[1])
    assert inner is not None
    places = make(tmp_path / "outer", [b"a", inner, inner + b"tail", b"b"])
    flip(tmp_path / "outer", places[1][0])
    seen, found = walk(tmp_path / "outer")
    assert seen == [places[0], *places[2:]]
    assert found.damaged == [(places[1][0], places[2][0])]


def test_older_records_after_the_end_are_leftovers(tmp_path: Path) -> None:
    """A log that was truncated and continued may still contain complete records from before."""
    places = make(tmp_path)
    last, size = places[-1]
    leftover = read_log(tmp_path, last, size)
    write_log(tmp_path, last, bytes(size))
    with opened(tmp_path) as store:
        place = put(store, store.queue("T", 0), b"newer", now_ms=START_MS + 1000)[1]
        end = store.position
    assert place == last
    write_log(tmp_path, last + 200, leftover)
    seen, found = walk(tmp_path)
    assert seen == [*places[:-1], (place, end - place)]
    assert (found.progress.position, found.damaged) == (end, [])


def test_complete_leftover_at_its_own_place_needs_a_newer_time(tmp_path: Path) -> None:
    places = make(tmp_path)
    last, size = places[-1]
    leftover = read_log(tmp_path, last, size)
    before, before_size = places[-2]
    write_log(tmp_path, before, bytes(before_size + size))
    with opened(tmp_path) as store:  # a shorter record takes the place of the last but one
        place = put(store, store.queue("T", 0), b"", now_ms=START_MS + 1000)[1]
        end = store.position
    assert place == before
    assert end < last
    write_log(tmp_path, last, leftover)
    seen, found = walk(tmp_path)
    assert seen == [*places[:-2], (place, end - place)]
    assert (found.progress.position, found.damaged) == (end, [])
