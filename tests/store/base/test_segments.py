from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError, StoreError
from sparrowmq.files import disk
from sparrowmq.store.base.segments import MapPool, SegmentSequence


def sequence(directory: Path, *, pool: MapPool | None = None, writable: bool = False) -> SegmentSequence:
    pool = MapPool(10) if pool is None else pool
    return SegmentSequence(directory, 100, pool, setting="fileSize", writable=writable)


def make(directory: Path, *bases: int, size: int = 100) -> None:
    directory.mkdir(exist_ok=True)
    for base in bases:
        (directory / f"{base:020d}").write_bytes(bytes(size))


def test_missing_directory_is_an_empty_sequence(tmp_path: Path) -> None:
    files = sequence(tmp_path / "none")
    files.load()
    assert (len(files), files.start, files.end) == (0, 0, 0)
    assert files.at(0) is None


def test_files_are_found_in_order(tmp_path: Path) -> None:
    make(tmp_path, 300, 200, 400)
    (tmp_path / "a directory").mkdir()
    files = sequence(tmp_path)
    files.load()
    assert [segment.base for segment in files] == [200, 300, 400]
    assert (files.start, files.end) == (200, 500)
    segment = files.at(399)
    assert segment is not None
    assert (segment.base, segment.end) == (300, 400)
    assert files.at(199) is None
    assert files.at(500) is None


def test_last_files_of_length_zero_are_deleted(tmp_path: Path) -> None:
    make(tmp_path, 0)
    make(tmp_path, 100, 200, size=0)
    files = sequence(tmp_path)
    files.load()
    assert [path.name for path in tmp_path.iterdir()] == ["0" * 20]


def test_file_truncated_by_a_power_failure_is_extended_again(tmp_path: Path) -> None:
    make(tmp_path, 0, 200)
    make(tmp_path, 100, size=0)
    files = sequence(tmp_path)
    files.load()
    assert [segment.base for segment in files] == [0, 100, 200]
    assert (tmp_path / f"{100:020d}").read_bytes() == bytes(100)


def test_files_after_a_missing_one_are_removed_if_they_can_be_rebuilt(tmp_path: Path) -> None:
    make(tmp_path, 0, 200, 300)
    files = sequence(tmp_path)
    files.load(mend=True)
    assert [segment.base for segment in files] == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["0" * 20]


@pytest.mark.parametrize("size", [99, 101])
def test_wrong_length_names_file_sizes_and_setting(size: int, tmp_path: Path) -> None:
    make(tmp_path, 0, size=size)
    make(tmp_path, 100)
    with pytest.raises(StoreCorruptError) as caught:
        sequence(tmp_path).load()
    text = str(caught.value)
    assert str(tmp_path / ("0" * 20)) in text
    assert f"has {size} bytes, but fileSize is 100" in text


@pytest.mark.parametrize("name", ["00000000000000000050", "notes.txt", "-0000000000000000100", "²"])
def test_foreign_names_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(bytes(100))
    with pytest.raises(StoreCorruptError, check=about(what="name", value=tmp_path / name)):
        sequence(tmp_path).load()


def test_missing_file_is_named(tmp_path: Path) -> None:
    make(tmp_path, 0, 200)
    with pytest.raises(StoreCorruptError, check=about(what="missing", value=100)):
        sequence(tmp_path).load()


def test_unreadable_directory_is_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "scandir", refused)
    with pytest.raises(StoreError, check=about(what="read", value=tmp_path)):
        sequence(tmp_path).load()


def test_created_files_are_complete_and_stay(tmp_path: Path) -> None:
    files = sequence(tmp_path / "a" / "b")
    first = files.make(250)
    assert (first.base, first.path.stat().st_size) == (200, 100)
    assert files.make(299) is first
    assert files.make(300).base == 300
    again = sequence(tmp_path / "a" / "b")
    again.load()
    assert [segment.base for segment in again] == [200, 300]


def test_positioned_writes_are_visible_through_the_map(tmp_path: Path) -> None:
    segment = sequence(tmp_path).make(0)
    view = segment.view()
    os.pwrite(segment.open(), b"hello", 10)
    assert bytes(view[10:15]) == b"hello"
    segment.close()
    assert segment.fd == -1


def test_slices_outlive_the_mapping(tmp_path: Path) -> None:
    pool = MapPool(10)
    segment = sequence(tmp_path, pool=pool).make(0)
    os.pwrite(segment.open(), b"hello", 0)
    part = segment.view()[:5]
    segment.close()
    assert len(pool) == 0
    assert bytes(part) == b"hello"


def test_pool_unmaps_the_least_recently_mapped(tmp_path: Path) -> None:
    pool = MapPool(2)
    files = sequence(tmp_path, pool=pool, writable=True)
    told = []
    segments = [files.make(base) for base in (0, 100, 200)]
    for segment in segments:
        segment.map(lambda base=segment.base: told.append(base))
    assert len(pool) == 3
    pool.trim()
    assert (len(pool), told) == (2, [0])
    assert "not mapped" in repr(segments[0])
    segments[0].map()[0:1] = b"x"
    pool.trim()
    assert told == [0, 100]
    files.close()
    assert len(pool) == 0


def test_mapping_errors_are_store_errors(tmp_path: Path) -> None:
    segment = sequence(tmp_path).make(0)
    segment.path.unlink()
    with pytest.raises(StoreError, check=about(what="map", value=segment.path)):
        segment.map()


def test_remove_from_deletes_the_end(tmp_path: Path) -> None:
    files = sequence(tmp_path)
    for base in (0, 100, 200):
        files.make(base)
    removed = files.remove_from(100)
    assert [path.name[-3:] for path in removed] == ["200", "100"]
    assert files.end == 100
    assert len(list(tmp_path.iterdir())) == 1
    files.remove()
    assert not tmp_path.exists()


def test_errors_of_deletion_are_store_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = sequence(tmp_path)
    files.make(0)

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(StoreError, check=about(what="delete")):
        files.remove_from(0)


def test_clear_zeroes_within_a_file(tmp_path: Path) -> None:
    files = sequence(tmp_path)
    segment = files.make(100)
    os.pwrite(segment.open(), b"x" * 100, 0)
    assert files.clear(130, 150) == 20
    assert segment.path.read_bytes() == b"x" * 30 + bytes(20) + b"x" * 50
    assert files.clear(150, 150) == 0
    assert files.clear(900, 910) == 0
    files.close()
    segment.path.unlink()
    with pytest.raises(StoreError, check=about(what="clear the end of", value=segment.path)):
        files.clear(100, 110)


def test_rewritten_bytes_are_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, 0, 100, 200)
    for number in range(3):
        (tmp_path / f"{number * 100:020d}").write_bytes(bytes(range(number, number + 100)))
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    files, written, real = sequence(tmp_path), [], disk.write_at
    files.load()

    def write(fd: int, data: bytes, position: int) -> None:
        written.append((position, len(data)))
        real(fd, data, position)

    monkeypatch.setattr(disk, "write_at", write)
    monkeypatch.setattr("sparrowmq.store.base.segments._REWRITE_BYTES", 40)
    files.rewrite(150, 210)
    assert written == [(50, 40), (90, 10), (0, 10)]
    files.rewrite(210, 210)
    files.rewrite(290, 1000)
    assert written[3:] == [(90, 10)]
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    monkeypatch.setattr(disk, "write_at", lambda *_: os.pwrite(-1, b"", 0))
    with pytest.raises(StoreError, check=about(what="write anew")):
        files.rewrite(0, 10)
    files.close()
