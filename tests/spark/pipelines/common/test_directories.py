"""Directories of pipelines: one writer at a time, files whole or as they were."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.common import directories


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    root = tmp_path / "deep" / "home"
    with (
        directories.locked(root, "thing", SettingsError),
        pytest.raises(SettingsError, check=about(what="process", value=str(os.getpid()))),
        directories.locked(root, "thing", SettingsError),
    ):
        pass
    with directories.locked(root, "thing", SettingsError):
        pass
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(SettingsError, check=about(what="thing", value=tmp_path / "file" / "x")),
        directories.locked(tmp_path / "file" / "x", "thing", SettingsError),
    ):
        pass


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "note.json"
    directories.replace_file(path, "[1]")

    def full(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(directories, "sync", full)
    with pytest.raises(OSError, check=about(args=("no space left",))):
        directories.replace_file(path, "[2]")
    assert json.loads(path.read_text()) == [1]


def test_only_mounted_file_systems(tmp_path: Path) -> None:
    assert directories.directory(f"file://{tmp_path}", "thing") == tmp_path
    assert directories.directory("x", "thing").is_absolute()
    with pytest.raises(SettingsError, check=about(what="thing", value="s3://b/k")):
        directories.directory("s3://b/k", "thing")
