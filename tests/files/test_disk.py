from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import StoreBusyError, StoreError, StoreFullError
from sparrowmq.files import disk


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_no_space_is_a_full_store(number: int) -> None:
    error = disk.store_error("cannot write", Path("/x/y"), OSError(number, "No space"))
    assert type(error) is StoreFullError
    assert str(error) == "cannot write /x/y: No space; free space there or move the store to a larger disk"
    assert error.retryable


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.EROFS, "may write to"),
        (errno.EACCES, "may write to"),
        (errno.EIO, ""),
    ],
)
def test_other_errors_say_what_to_do(number: int, hint: str) -> None:
    error = disk.store_error("cannot write", Path("/x/y"), OSError(number, "reason"))
    assert type(error) is StoreError
    assert "/x/y: reason" in str(error)
    assert hint in str(error)
    assert not error.retryable


@pytest.mark.parametrize(
    ("number", "hint"),
    [(errno.EMFILE, "ulimit -n"), (errno.ENFILE, "ulimit -n"), (errno.ENOMEM, "free memory")],
)
def test_a_system_without_files_or_memory_is_only_busy(number: int, hint: str) -> None:
    cause = OSError(number, "reason")
    error = disk.store_error("cannot write", Path("/x/y"), cause)
    assert type(error) is StoreBusyError
    assert hint in str(error)
    assert error.retryable
    assert disk.is_busy(cause)
    assert not disk.is_busy(OSError(errno.EIO, "reason"))


@pytest.mark.parametrize(
    ("soft", "expected"),
    [(20, disk.MAPS_MIN), (1024, 512), (10**6, disk.MAPS_MAX), (resource.RLIM_INFINITY, disk.MAPS_MAX)],
)
def test_maps_leave_descriptors_for_connections(
    soft: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert disk.maps_limit() == expected


def test_created_files_have_their_size_and_no_content(tmp_path: Path) -> None:
    disk.create(tmp_path / "f", 10_000_000)
    assert (tmp_path / "f").stat().st_size == 10_000_000
    assert (tmp_path / "f").stat().st_blocks == 0


def test_half_created_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "ftruncate", full)
    with pytest.raises(OSError, check=about(errno=errno.ENOSPC)):
        disk.create(tmp_path / "f", 100)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", [1, 3, 100])
def test_short_writes_are_continued(step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data)[:step], at))
    path = tmp_path / "f"
    disk.create(path, 50)
    fd = os.open(path, os.O_RDWR)
    disk.write_at(fd, b"0123456789", 7)
    os.close(fd)
    assert path.read_bytes() == bytes(7) + b"0123456789" + bytes(33)


def test_a_write_that_gets_nowhere_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, check=about(errno=errno.EIO)):
        disk.write_at(1, b"x", 0)


def test_reserved_blocks_are_really_there(tmp_path: Path) -> None:
    path = tmp_path / "f"
    disk.create(path, 1 << 20)
    disk.reserve_in(path, 4096, 65536)
    stat = path.stat()
    assert stat.st_size == 1 << 20
    assert stat.st_blocks * 512 >= 65536


def test_without_fallocate_zeros_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "posix_fallocate")
    path = tmp_path / "f"
    path.write_bytes(b"x" * 300_000)
    disk.reserve_in(path, 100_000, 150_000)
    assert path.read_bytes() == b"x" * 100_000 + bytes(150_000) + b"x" * 50_000


def test_clear_data_zeroes_and_tells_the_length(tmp_path: Path) -> None:
    path = tmp_path / "f"
    disk.create(path, 1 << 20)
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"kept")
        file.seek(200_000)
        file.write(b"stale")
        file.seek(700_000)
        file.write(b"end")
    assert disk.clear_data(path, 104, 1 << 20) == 700_003 - 200_000
    assert path.read_bytes().strip(b"\0") == b"kept"
    assert disk.clear_data(path, 104, 1 << 20) == 0


def test_clear_data_without_knowledge_of_holes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: int) -> int:
        raise OSError(errno.EINVAL, "whence")

    path = tmp_path / "f"
    path.write_bytes(b"abc" + bytes(100) + b"de")
    monkeypatch.setattr(os, "lseek", unknown)
    assert disk.clear_data(path, 3, 105) == 2
    assert path.read_bytes() == b"abc" + bytes(102)


def test_replace_leaves_the_old_content_in_the_backup(tmp_path: Path) -> None:
    path, backup = tmp_path / "f", tmp_path / "f.bak"
    disk.replace(path, b"one", backup)
    assert not backup.exists()
    disk.replace(path, b"two", backup)
    assert (path.read_bytes(), backup.read_bytes()) == (b"two", b"one")
    assert sorted(tmp_path.iterdir()) == [path, backup]


def test_failed_replace_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f"
    disk.replace(path, b"one")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(OSError, check=about(errno=errno.ENOSPC)):
        disk.replace(path, b"two")
    assert path.read_bytes() == b"one"
    assert list(tmp_path.iterdir()) == [path]


def test_used_percent_is_rounded_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stat:
        f_blocks, f_bfree, f_bavail = 1000, 500, 400

    monkeypatch.setattr(os, "statvfs", lambda _: Stat)
    assert disk.used_percent(tmp_path) == 56  # 500 of 900, as df counts
    Stat.f_blocks = Stat.f_bfree = Stat.f_bavail = 0
    assert disk.used_percent(tmp_path) == 0


@pytest.mark.parametrize("kind", ["pipe", "device", "sparse"])
def test_what_has_no_end_is_not_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "checkpoint"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.touch()
        os.truncate(path, disk.READ_BYTES_MAX + 1)
    with pytest.raises(OSError, check=about(errno=errno.EINVAL, filename=str(path))):
        disk.read(path)


def test_a_directory_that_cannot_be_made_is_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: object, path: Path, mode: int = 0o777) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    monkeypatch.setattr("sparrowmq.files.system.System.mkdir", refuse)  # as /proc does
    with pytest.raises(FileNotFoundError):
        disk.make_directory(tmp_path / "store")
