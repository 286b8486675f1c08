from __future__ import annotations

from pyspark.sql import SparkSession

from sparrowmq.spark.session import SETTINGS, builder


def test_a_session_has_our_settings(spark: SparkSession) -> None:
    assert {name: spark.conf.get(name) for name in SETTINGS} == SETTINGS
    assert spark.sparkContext.master == "local[2,3]"


def test_a_builder_names_application_and_master() -> None:
    made = builder("an-app", "local[3]")
    assert made._options["spark.app.name"] == "an-app"
    assert made._options["spark.master"] == "local[3]"
