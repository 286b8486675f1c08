"""Numbered files on file systems that Python does not see, through a JVM of the worker's own."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.loops.event_loop import loop_thread
from sparrowmq.spark.write import hadoop
from sparrowmq.spark.write.hadoop import HadoopFolder, class_path, spark_defaults
from sparrowmq.spark.write.queue_choice import ArrowFolder, Folder, folder_at


def mounted(root: Path, name: str = "ns") -> dict[str, str]:
    """Settings under which `viewfs://ns/lake` is a directory."""
    root.mkdir(exist_ok=True)
    return {f"fs.viewfs.mounttable.{name}.link./lake": f"file:{root}"}


@pytest.mark.parametrize("kind", ["arrow", "hadoop"])
def test_folders_keep_numbered_files_whole(tmp_path: Path, kind: str) -> None:
    there = tmp_path / "there"
    folder: Folder = ArrowFolder(f"{there}/a/b")
    if kind == "hadoop":
        folder = folder_at("viewfs://ns/lake/a/b", mounted(there))
        assert isinstance(folder, HadoopFolder)
    assert folder.numbers() == folder.numbers(".json") == []
    folder.write(3, b"abc")
    folder.write(3, b"again")
    folder.write(12, bytes(range(256)))
    (there / "a" / "b" / "7").touch()
    assert (folder.numbers(".json"), folder.numbers()) == ([3, 12], [7])
    assert (folder.read(3), folder.read(12)) == (b"again", bytes(range(256)))
    assert (there / "a" / "b" / "3.json").read_bytes() == b"again", "it is that directory"
    folder.delete(12)
    assert folder.numbers(".json") == [3]
    with pytest.raises(OSError, match=r"99\.json"):
        folder.read(99)


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("nosuch://b/x", 'No FileSystem for scheme "nosuch"'),
        ("s3a://b/x", "S3AFileSystem not found"),
        ("abfss://c@a.dfs.core.windows.net/x", "SecureAzureBlobFileSystem not found"),
        ("oss://b/x", 'No FileSystem for scheme "oss"'),
        ("viewfs://other/lake", "Empty Mount table in config for viewfs://other/"),
    ],
)
def test_what_hadoop_lacks_is_told_in_one_line(location: str, why: str) -> None:
    with pytest.raises(SettingsError, check=about(what="location", value=location)) as caught:
        HadoopFolder(location, {}, ".json")
    assert why in str(caught.value) and "\n" not in str(caught.value)


def test_beside_a_session_errors_are_those_of_the_file_system(spark: SparkSession, tmp_path: Path) -> None:
    """A session has Py4J ask the session's JVM about each exception, also about those of another JVM."""
    assert spark.version
    folder = folder_at("viewfs://ns/lake/a", mounted(tmp_path / "there"))
    assert folder.numbers() == [], "FileNotFoundException is no error"
    with pytest.raises(OSError, match=r"FileNotFoundException.*99\.json"):
        folder.read(99)
    with pytest.raises(SettingsError, check=about(what="location", value="nosuch://b/x")):
        HadoopFolder("nosuch://b/x", {}, ".json")


def test_a_name_node_that_is_away_is_a_fault_of_files() -> None:
    folder = HadoopFolder("hdfs://127.0.0.1:1/x", {"ipc.client.connect.max.retries": "0"}, ".json")
    with pytest.raises(OSError, match="Connection refused"):
        folder.numbers()


def test_where_nobody_reaches_a_place_both_ways_are_named() -> None:
    with pytest.raises(SettingsError, check=about(what="location", value="nosuch://b/x")):
        folder_at("nosuch://b/x", {})


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # py4j leaves files open
def test_without_java_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(loop_thread()._kept, hadoop._Jvm, hadoop._Jvm())
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(SettingsError, check=about(what="location", value="s3a://b/x")):
        HadoopFolder("s3a://b/x", {}, ".json")


def test_classes_and_settings_are_those_of_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# comment\nspark.jars  file:/opt/a.jar,/opt/b.jar\nspark.driver.extraClassPath=/opt/c/*\n"
        "spark.hadoop.fs.viewfs.mounttable.dflt.link./lake : file:" + str(tmp_path) + "\n\nnonsense\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    monkeypatch.syspath_prepend("/files/hadoop-aws.jar")
    found = class_path()
    for part in (
        "/etc/hadoop",
        str(tmp_path),
        "/opt/a.jar",
        "/opt/b.jar",
        "/opt/c/*",
        "/files/hadoop-aws.jar",
    ):
        assert part in found
    assert found[-1].endswith("/jars/*")
    assert spark_defaults()["spark.driver.extraClassPath"] == "/opt/c/*"
    HadoopFolder("viewfs://dflt/lake/x", {}, ".json").write(1, b"1")
    assert (tmp_path / "x" / "1.json").read_bytes() == b"1"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert spark_defaults() == {}
