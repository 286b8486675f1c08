"""The program that merges a topic into PostgreSQL, killed in the middle of a batch and started again."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psycopg
import pytest
from tests.databases.servers import Server
from tests.spark.merging import merged_across_a_kill
from tests.spark.spark_home import quick_environment

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_no_order_is_doubled_and_none_is_missing(postgresql: Server, tmp_path: Path) -> None:
    url = postgresql.make()
    environ = {**os.environ, **quick_environment()}
    said = merged_across_a_kill(Path(sys.executable), "spark_merge_postgresql.py", url, tmp_path, environ)
    assert said == "2000 orders"
    with psycopg.connect(url) as connection:
        counts = connection.execute(
            "SELECT broker, queue_id, count(*), min(queue_offset), max(queue_offset) FROM orders "
            "GROUP BY broker, queue_id"
        ).fetchall()
        assert sorted(counts) == [("broker-a", queue, 500, 0, 499) for queue in range(4)]
        bodies = connection.execute("SELECT count(DISTINCT body), max(body) FROM orders").fetchone()
        assert bodies == (250, "order 99")
