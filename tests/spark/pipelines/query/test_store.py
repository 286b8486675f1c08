"""A store directory as a table: what would be read, and what is."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.protocol.archives import CLEAN_5, ledger, unpacked
from tests.support import about

from sparrowmq.core.errors import SettingsError
from sparrowmq.spark.pipelines.query.store import StoreSettings, dry_run_store, plan_store, store

STORE = unpacked(CLEAN_5)
RECORDS = 3626


def test_a_plan_tells_files_tasks_and_about_how_much() -> None:
    plan = plan_store(StoreSettings(directory=STORE))
    (step,) = plan.steps
    assert (step.action, step.what) == ("read", str(STORE / "commitlog"))
    assert step.details == {
        "files": "3 of 3",
        "tasks": 3,
        "CRC of bodies": "compared",
        "damaged records": "an error",
    }
    assert plan.rows is not None and abs(plan.rows - RECORDS) < RECORDS / 2
    assert str(plan).startswith(f"store: 1 step, about {plan.rows:,} messages\n")


def test_a_plan_of_some_of_it() -> None:
    some = StoreSettings(
        directory=STORE,
        topics=("FxPlainA", "FxGone"),
        skip_damaged=True,
        options={"checkCrc": "false", "maxPartitions": "2"},
    )
    plan = plan_store(some)
    assert plan.rows is None, "which topic a record is of is not known before"
    details = plan.steps[0].details
    assert (details["topics"], details["tasks"]) == ("FxPlainA, FxGone", 2)
    assert (details["CRC of bodies"], details["damaged records"]) == (
        "not compared",
        "left out, with a warning",
    )
    nothing = plan_store(StoreSettings(directory=STORE, until=1))
    assert (nothing.steps[0].details["files"], nothing.rows) == ("0 of 3", 0)


def test_wrong_settings(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, check=about(setting="store")):
        plan_store(StoreSettings(directory=tmp_path))
    with pytest.raises(SettingsError, check=about(setting="since", value=5)):
        StoreSettings(directory=tmp_path, since=5, until=5)
    with pytest.raises(SettingsError, check=about(setting="checkCrcs")):
        plan_store(StoreSettings(directory=STORE, options={"checkCrcs": "true"}))


def test_the_messages_of_topics_and_times(spark: SparkSession) -> None:
    seen = [line for line in ledger(CLEAN_5, "seen") if line["topic"] == "FxPlainB"]
    plain = StoreSettings(directory=STORE, topics=("FxPlainB",))
    assert dry_run_store(spark, plain) == len(seen)
    times = sorted(
        row["at"] for row in store(spark, plain).selectExpr("unix_millis(store_timestamp) AS at").collect()
    )
    middle = times[len(times) // 2]
    early = StoreSettings(directory=STORE, topics=("FxPlainB",), until=middle)
    late = StoreSettings(directory=STORE, topics=("FxPlainB",), since=middle)
    assert store(spark, early, "topic string").count() == sum(time < middle for time in times) > 0
    assert store(spark, late, "topic string").count() == sum(time >= middle for time in times) > 0
