from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sparrowmq.spark import sessions
from sparrowmq.spark.interpreter import is_local
from sparrowmq.spark.sessions import FAST, SETTINGS, builder, session, settings


def test_a_session_has_our_settings(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in SETTINGS} == SETTINGS
    assert spark.sparkContext.master == "local[2,3]"


def test_a_builder_names_application_and_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")  # no home is made for a test that starts nothing
    made = builder("an-app", "local[3]")
    assert made._options["spark.app.name"] == "an-app"
    assert made._options["spark.master"] == "local[3]"
    assert "FileSystemBased" in made._options["spark.sql.streaming.checkpointFileManagerClass"]


def test_a_session_is_the_active_one_and_knows_the_source(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    own = spark.newSession()
    own.createDataFrame([], "nothing int")  # makes it the active one
    found = session(config={"spark.sql.shuffle.partitions": "3"})
    assert found.conf.get("spark.sql.shuffle.partitions") == "3"
    assert found.conf.get("spark.sparrowmq.registered") == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The settings of the session that would start; none is active, and none starts."""
    found: dict[str, object] = {}
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", lambda made: found.update(made._options))
    monkeypatch.setattr(sessions, "register", lambda started: None)
    return found


def test_a_new_session_is_fast_and_otherwise_as_spark_makes_it(started: dict[str, object]) -> None:
    session("mine", config={"spark.ui.port": "4041"})
    manager = started.pop("spark.sql.streaming.checkpointFileManagerClass")
    assert "FileSystemBased" in str(manager)
    named = {"spark.app.name": "mine", "spark.master": "local[*]", "spark.ui.port": "4041"}
    assert started == FAST | named


def test_a_new_session_of_a_cluster_keeps_its_checkpoints_safe(started: dict[str, object]) -> None:
    session("mine", "yarn")
    assert started == FAST | {"spark.app.name": "mine", "spark.master": "yarn"}


def test_a_submitted_program_keeps_its_master_and_settings(
    started: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4711")
    session("mine")
    assert started == {"spark.app.name": "mine"}


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_one_machine(master: str) -> None:
    assert is_local(master)
    assert settings(master) == SETTINGS


@pytest.mark.parametrize(
    "master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"]
)
def test_a_cluster_finds_the_driver_and_keeps_its_checkpoints_safe(master: str) -> None:
    assert not is_local(master)
    assert set(SETTINGS) - set(settings(master)) == {"spark.driver.host", "spark.driver.bindAddress"}
    assert "spark.sql.streaming.checkpointFileManagerClass" not in builder("an-app", master)._options
