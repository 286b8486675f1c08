from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession
from tests.spark.counted import jvm_of
from tests.spark.spark_home import ARCHIVE, compiled_spark_home

from sparrowmq.spark import home
from sparrowmq.spark.sessions import builder

_COMPILES = """
import sys
compiled = []
sys.addaudithook(
    lambda event, values: event == "compile" and "pyspark.zip" in str(values[1]) and compiled.append(1)
)
import pyspark.sql.streaming.python_streaming_source_runner as runner
print(len(compiled), runner.__file__.removesuffix("c"))
"""


def _compiles(spark_home: Path) -> tuple[int, str]:
    """How much of PySpark a worker's interpreter with that home compiles, and where it found PySpark."""
    libraries = spark_home / home.ZIP.parent
    path = os.pathsep.join(map(str, (libraries / home.ZIP.name, *libraries.glob("py4j-*.zip"))))
    done = subprocess.run(
        [sys.executable, "-c", _COMPILES],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    count, place = done.stdout.split()
    return int(count), place


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_interpreters_of_the_home_compile_nothing(cache: Path) -> None:
    made = home.quick_home(cache)
    assert made is not None
    assert _compiles(made) == (
        0,
        f"{made / home.ZIP}/pyspark/sql/streaming/python_streaming_source_runner.py",
    )
    assert _compiles(home.INSTALLED)[0] > 30, "what the home is for"
    assert (made / "jars").resolve() == home.INSTALLED / "jars"
    assert home.quick_home(cache) == made
    assert [path.name for path in cache.iterdir()] == [made.name], "no draft is left"


def test_what_pip_did_not_compile_is_compiled(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "_installed_code", lambda content, name: b"")
    made = home.quick_home(cache)
    assert made is not None
    assert _compiles(made)[0] == 0


def test_without_a_place_for_it_spark_is_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = tmp_path / "file"
    taken.touch()
    assert home.quick_home(taken) is None
    monkeypatch.setattr(home, "INSTALLED", tmp_path)
    assert home.quick_home(tmp_path / "cache") is None
    monkeypatch.delenv(home.VARIABLE, raising=False)
    home.use_quick_home()
    assert home.VARIABLE not in os.environ


def test_a_builder_uses_it_on_one_machine_unless_a_home_is_named(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv(home.VARIABLE, "/opt/spark")
    builder("an-app", "local[2]")
    assert os.environ[home.VARIABLE] == "/opt/spark"
    monkeypatch.delenv(home.VARIABLE)
    builder("an-app", "spark://host:7077")
    assert home.VARIABLE not in os.environ
    builder("an-app", "local[2]")
    assert Path(os.environ[home.VARIABLE]).parent == cache / "sparrowmq"


def test_the_program_prints_it(cache: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sparrowmq.spark.home"],
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(done.stdout.strip()).parent == cache / "sparrowmq"


def test_the_sessions_of_tests_have_their_classes_from_an_archive(spark: SparkSession) -> None:
    """Unless another process was just making it when they began."""
    archive, jvm = compiled_spark_home() / ARCHIVE, psutil.Process(jvm_of(spark))
    given = [one for one in jvm.cmdline() if one.startswith("-XX:SharedArchiveFile=")]
    assert given in ([], [f"-XX:SharedArchiveFile={archive}"])
    maps = Path(f"/proc/{jvm.pid}/maps")
    if given:
        assert archive.stat().st_size > 1 << 20
        assert not maps.exists() or str(archive) in maps.read_text()
