from __future__ import annotations

import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics, bodies, numbered
from tests.support import about

import sparrowmq.spark
from sparrowmq.core.errors import SettingsError
from sparrowmq.spark import source
from sparrowmq.spark.source import RocketMQSource, SparrowMQSource, ensure_registered, register


def _python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_names() -> None:
    assert RocketMQSource.name() == "rocketmq"
    assert SparrowMQSource.name() == "sparrowmq"


def test_both_names_work_after_registration(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.send(topic, 10)
    register(spark)
    for name in ("rocketmq", "sparrowmq"):
        assert bodies(spark.read.format(name).options(**topics.options(topic)).load()) == numbered(0, 10)


def test_each_session_is_registered_with_by_itself(
    spark: SparkSession, topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.send(topic, 3)
    register(spark)
    other = spark.newSession()
    assert other.conf.get("spark.sparrowmq.registered", "no") == "no"
    ensure_registered(other)
    assert other.conf.get("spark.sparrowmq.registered") == "true"
    assert bodies(other.read.format("sparrowmq").options(**topics.options(topic)).load()) == numbered(0, 3)
    again: list[SparkSession] = []
    monkeypatch.setattr(source, "register", again.append)
    ensure_registered(other)
    assert again == []


def test_workers_may_have_another_python_than_the_driver(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """What `docs/spark-cluster.md` says of the setting: planning goes without it, reading with it."""
    topics.send(topic, 3)
    mark, python = tmp_path / "was here", tmp_path / "python"
    python.write_text(f'#!/bin/sh\ntouch "{mark}"\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    session = spark.newSession()
    register(session)
    session.conf.set("spark.sql.execution.pyspark.python", str(python))
    frame = session.read.format("rocketmq").options(**topics.options(topic)).load()
    assert "body" in frame.columns
    assert not mark.exists()
    assert bodies(frame) == numbered(0, 3)
    assert mark.exists()


def test_options_are_checked_before_anything_is_read() -> None:
    with pytest.raises(SettingsError, check=about(setting="nameServer", value="x")):
        RocketMQSource({"nameServer": "x", "subscribe": "t"}).schema()
    with pytest.raises(SettingsError, match="a topic cannot be overwritten"):
        source._refuse_overwrite(True)


def test_the_module_spark_looks_for_gives_the_source() -> None:
    assert _python("import pyspark_rocketmq as m; print(m.DefaultSource.name())") == "rocketmq\n"


def test_finding_the_source_loads_no_client_and_no_arrow() -> None:
    found = _python(
        """
        import sys
        import pyspark.sql.datasource
        before = set(sys.modules)
        import pyspark_rocketmq
        print(sorted(name for name in set(sys.modules) - before if not name.startswith("sparrowmq.core")))
        """
    )
    assert found == "['pyspark_rocketmq', 'sparrowmq', 'sparrowmq.spark', 'sparrowmq.spark.source']\n"


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow", "numpy", "sparrowmq.core"])
def test_the_module_spark_looks_for_imports_whatever_is_missing(missing: str) -> None:
    assert (
        _python(f"import sys; sys.modules[{missing!r}] = None; import pyspark_rocketmq; print('fine')")
        == "fine\n"
    )


@pytest.mark.parametrize("missing", ["pyarrow", "numpy"])
def test_a_missing_package_is_told_when_the_source_is_used(missing: str) -> None:
    found = _python(
        f"""
        import sys
        from sparrowmq.spark.source import RocketMQSource
        sys.modules[{missing!r}] = None
        try:
            RocketMQSource({{"nameServer": "a:1", "subscribe": "t"}}).schema()
        except Exception as error:
            print(error)
        """
    )
    assert (
        found
        == f"the rocketmq source needs {missing}, which is not installed: pip install 'sparrowmq[spark]'\n"
    )


def test_no_room_is_called_as_a_public_name() -> None:
    """Importing a room sets it on the package, where it would hide the name."""
    rooms = {module.name for module in pkgutil.iter_modules(sparrowmq.spark.__path__)}
    assert "read" in rooms and not rooms & set(sparrowmq.spark.__all__)


def test_every_public_name_is_where_the_package_says() -> None:
    named = [name for names in sparrowmq.spark._MODULES.values() for name in names]
    assert sorted(named) == sparrowmq.spark.__all__
    assert all(getattr(sparrowmq.spark, name) for name in named)
