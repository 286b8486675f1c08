"""A DAG: every ten minutes, when at least a thousand orders wait, archive them.

In the environment `SPARROW` is the command, `SPARROW_NAMESRV` the cluster, `ARCHIVE` the directory.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG
from sparrow_operators import SparrowPipeOperator, SparrowWaitingSensor

SPARROW = os.environ.get("SPARROW", "sparrow")
ARCHIVE = ["archive", "Orders", "--to", os.environ.get("ARCHIVE", "/data/archive")]

with DAG(
    "archive_orders",
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 11, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,  # one process at a time writes an archive
    default_args={"retries": 3, "retry_delay": timedelta(minutes=1)},
) as dag:
    enough = SparrowWaitingSensor(
        task_id="enough",
        pipe=ARCHIVE,
        messages=1000,
        sparrow=SPARROW,
        mode="reschedule",
        poke_interval=60,
        timeout=timedelta(hours=1),
        soft_fail=True,
    )
    archive = SparrowPipeOperator(task_id="archive", pipe=ARCHIVE, sparrow=SPARROW)
    enough >> archive
