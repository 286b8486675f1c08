from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from sparrowmq.spark.session import SETTINGS, builder, is_local, settings


def test_a_session_has_our_settings(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in SETTINGS} == SETTINGS
    assert spark.sparkContext.master == "local[2,3]"


def test_a_builder_names_application_and_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")  # no home is made for a test that starts nothing
    made = builder("an-app", "local[3]")
    assert made._options["spark.app.name"] == "an-app"
    assert made._options["spark.master"] == "local[3]"
    assert "FileSystemBased" in made._options["spark.sql.streaming.checkpointFileManagerClass"]


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
