from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from tests.protocol.archives import CLEAN_4, CLEAN_5, unpacked
from tests.support import about

from sparrowmq.core.errors import StoreCorruptError, StoreError, StoreFullError
from sparrowmq.store.tables.config_file import ConfigFile


def test_empty_table_is_an_empty_object(tmp_path: Path) -> None:
    assert ConfigFile(tmp_path / "config" / "topics.json").load() == {}


def test_saved_text_equals_the_references(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "config" / "consumerOffset.json")
    file.save({"offsetTable": {"T@g": {0: 12, 1: 7}}, "empty": {}})
    assert file.path.read_text() == (
        '{\n\t"offsetTable":{\n\t\t"T@g":{\n\t\t\t0:12,\n\t\t\t1:7\n\t\t}\n\t},\n\t"empty":{}\n}'
    )
    assert file.load() == {"offsetTable": {"T@g": {"0": 12, "1": 7}}, "empty": {}}


@pytest.mark.parametrize("name", [CLEAN_5, CLEAN_4])
def test_every_real_file_loads(name: str) -> None:
    files = list((unpacked(name) / "config").glob("*.json"))
    assert len(files) >= 5
    for path in files:
        assert ConfigFile(path).load()


def test_previous_version_is_kept(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "a.json")
    file.save({"n": 1})
    file.save({"n": 2})
    assert file.load() == {"n": 2}
    assert ConfigFile(file.backup).load() == {"n": 1}


def test_byte_order_mark_of_an_editor_is_accepted(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "a.json")
    file.backup.write_bytes(b'{"n":1}')
    file.path.write_bytes(b'\xef\xbb\xbf{"n":2}')
    assert file.load() == {"n": 2}


@pytest.mark.parametrize("content", [None, b"", b" \n", b'{"n":', b"[1]", b"\xff"])
def test_backup_replaces_a_missing_empty_or_broken_file(content: bytes | None, tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "a.json")
    file.backup.write_bytes(b'{"n":1}')
    if content is not None:
        file.path.write_bytes(content)
    assert file.load() == {"n": 1}


@pytest.mark.parametrize(("content", "told"), [(b"{", "a.json: JSON "), (b"", "a.json is empty; ")])
def test_broken_or_empty_main_file_is_reported(
    content: bytes, told: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ConfigFile(tmp_path / "a.json")
    file.path.write_bytes(content)
    file.backup.write_bytes(b"{}")
    assert file.load() == {}
    assert told in caplog.text
    assert "the backup is used instead" in caplog.text


@pytest.mark.parametrize("backup", [None, b"{", b""])
def test_two_unreadable_versions_prevent_the_start(backup: bytes | None, tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "a.json")
    file.path.write_bytes(b'{"n":')
    if backup is not None:
        file.backup.write_bytes(backup)
    with pytest.raises(StoreCorruptError, check=about(what="content", value=file.path)):
        file.load()


def test_unreadable_file_is_a_store_error(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "a.json")
    file.path.mkdir()
    with pytest.raises(StoreError, check=about(what="read", value=file.path)):
        file.load()


def test_full_disk_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ConfigFile(tmp_path / "a.json")
    file.save({"n": 1})

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        with pytest.raises(StoreFullError, check=about(what="write", value=file.path)):
            file.save({"n": 2})
    assert file.load() == {"n": 1}


@pytest.mark.parametrize("stop_after", [0, 1])
def test_crash_between_the_renames_loses_only_unsaved_changes(
    stop_after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ConfigFile(tmp_path / "a.json")
    file.save({"n": 1})
    file.save({"n": 2})
    real, calls = Path.replace, []

    def crash(self: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) > stop_after:
            raise KeyboardInterrupt
        return real(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", crash)
        with pytest.raises(KeyboardInterrupt):
            file.save({"n": 3})
    assert ConfigFile(file.path).load() == {"n": 2}


@pytest.mark.parametrize("backup", [None, b""])
def test_empty_file_without_a_backup_is_reported(
    backup: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ConfigFile(tmp_path / "a.json")
    assert file.load() == {} and not caplog.records, "a new store has no file"
    file.path.write_bytes(b"")
    if backup is not None:
        file.backup.write_bytes(backup)
    assert file.load() == {}
    assert f"{file.path} is empty and has no backup" in caplog.text
