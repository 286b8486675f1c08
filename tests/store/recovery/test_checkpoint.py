from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_4, CLEAN_5, KILLED_5, unpacked
from tests.support import about

from sparrowmq.core.errors import StoreError
from sparrowmq.files import disk
from sparrowmq.store.base.number_file import FILE_BYTES
from sparrowmq.store.recovery.checkpoint import Checkpoint


def test_missing_file_contains_nothing(tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(tmp_path / "checkpoint")
    assert checkpoint == Checkpoint()
    assert checkpoint.safe_timestamp == 0


def test_fields_are_where_the_reference_has_them(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    Checkpoint(1, 2, 3, 4, 5, 6).save(path, sync=True)
    data = path.read_bytes()
    assert len(data) == FILE_BYTES
    assert data == b"".join(n.to_bytes(8, "big") for n in range(1, 7)) + bytes(FILE_BYTES - 48)
    assert Checkpoint.load(path) == Checkpoint(1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize("name", [CLEAN_5, KILLED_5, CLEAN_4])
def test_real_files_are_kept_byte_for_byte(name: str, tmp_path: Path) -> None:
    source = unpacked(name) / "checkpoint"
    Checkpoint.load(source).save(tmp_path / "checkpoint")
    assert (tmp_path / "checkpoint").read_bytes() == source.read_bytes()


def test_short_file_is_recreated_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"\1" * 47)
    assert Checkpoint.load(path) == Checkpoint()
    assert "47 bytes instead of 4096" in caplog.text


def test_saving_replaces_a_longer_file(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"\1" * 5000)
    Checkpoint(7).save(path)
    assert path.stat().st_size == FILE_BYTES
    assert Checkpoint.load(path).physic == 7


@pytest.mark.parametrize(
    ("physic", "logics", "safe"),
    [(10_000, 9_000, 6_000), (9_000, 10_000, 6_000), (10_000, 0, 0), (2999, 9999, 0)],
)
def test_safe_time_is_three_seconds_before_the_older(physic: int, logics: int, safe: int) -> None:
    assert Checkpoint(physic, logics).safe_timestamp == safe


def test_unreadable_file_is_a_store_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(disk, "read", refused)
    with pytest.raises(StoreError, check=about(what="read", value=tmp_path / "checkpoint")):
        Checkpoint.load(tmp_path / "checkpoint")
