"""`sparrow sql` prints times in the zone of its conditions and casts, whatever the zone of the machine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from tests.spark.support import Topics

from sparrowmq.cli.pipes.shared import Shared
from sparrowmq.cli.pipes.sql import Console
from sparrowmq.spark.pipelines.query.sql import SqlSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> Iterator[None]:
    """The zone of this machine."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()
    spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.parametrize(("zone", "offset"), [("Asia/Kathmandu", "+05:45"), ("UTC", "+00:00")])
def test_a_printed_time_is_a_condition(
    tokyo: None,
    spark: SparkSession,
    topics: Topics,
    topic: str,
    capsys: pytest.CaptureFixture[str],
    zone: str,
    offset: str,
) -> None:
    topics.send(topic, 1)
    console = Console(spark, SqlSettings(name_server=topics.cluster.namesrv), 10, Shared(as_json=True))

    def asked(query: str) -> dict[str, str]:
        capsys.readouterr()
        console.query(query)
        found: dict[str, str] = json.loads(capsys.readouterr().out)
        return found

    asked(f"set time zone '{zone}'")
    found = asked(f"select store_timestamp as t, cast(store_timestamp as string) as s from {topic}")
    assert found["t"].endswith(offset)
    assert found["t"].startswith(found["s"])
    for text in found.values():
        same = asked(f"select count(*) as n from {topic} where store_timestamp = '{text}'")
        assert same == {"n": 1}
