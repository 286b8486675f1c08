"""Small files on a directory and on one of Hadoop's file systems: the same, and made once."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.pipelines.stored_files import mounted
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.common.files import Files, HadoopFiles, LocalFiles, files_of


def _use(files: Files) -> None:
    assert (files.names(), files.names("sub"), files.read("sub/a")) == ([], [], None)
    assert files.create("sub/a", "grüße")
    assert not files.create("sub/a", "other")
    files.replace("sub/b", "1")
    files.replace("sub/b", "22")
    assert (files.names("sub"), files.read("sub/a"), files.read("sub/b")) == (["a", "b"], "grüße", "22")
    assert files.size("sub") == 9
    assert files.at("sub").names() == ["a", "b"]
    files.delete("sub/a")
    files.delete("sub/a")
    assert files.names("sub") == ["b"]
    files.delete("sub")
    assert files.names() == []


def test_files_of_a_directory(tmp_path: Path) -> None:
    files = files_of(tmp_path / "deep", "thing")
    _use(files)
    assert isinstance(files_of(f"file:{tmp_path}", "thing"), LocalFiles)
    (tmp_path / "file").write_bytes(b"\xff")
    with pytest.raises(SettingsError, check=about(what="read", value=tmp_path / "file")):
        LocalFiles(tmp_path).read("file")
    with pytest.raises(SettingsError, check=about(what="made", value=tmp_path / "file" / "a")):
        LocalFiles(tmp_path).create("file/a", "")


def test_files_of_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    uri = mounted(spark, tmp_path / "there")
    files = files_of(f"{uri}/deep/", "thing")
    assert isinstance(files, HadoopFiles)
    assert files.location == f"{uri}/deep"
    _use(files)
    assert files.create("x", "1")
    assert (tmp_path / "there" / "deep" / "x").read_text() == "1", "it is that directory"


def test_a_file_system_that_is_not_there_is_named(spark: SparkSession) -> None:
    with pytest.raises(SettingsError, check=about(value="nosuch://b/k")):
        files_of("nosuch://b/k", "thing").names()
    with pytest.raises(SettingsError, check=about(value="viewfs://unknown/x")):
        files_of("viewfs://unknown/x", "thing").names()


def test_a_uri_needs_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession._instantiatedSession", None, raising=False)
    with pytest.raises(SettingsError, check=about(value="s3a://b/k")):
        files_of("s3a://b/k", "thing").names()
