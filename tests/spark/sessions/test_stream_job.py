"""The job under deploy/, as `spark-submit` runs it, on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as dataset
import pytest
from tests.repository.test_deploy import DEPLOY
from tests.spark.spark_home import quick_environment

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

SECONDS = 280


@pytest.mark.spark
@pytest.mark.timeout(300)
def test_every_message_is_written_once(tmp_path: Path) -> None:
    job = DEPLOY / "jobs" / "stream_to_parquet.py"
    out = tmp_path / "out"
    environ = {**os.environ, **quick_environment(), "PYSPARK_PYTHON": sys.executable}
    with LocalCluster() as cluster:
        cluster.create_topic("Orders", queues=2)
        with mq.Producer("orders", namesrv=cluster.namesrv) as producer:
            producer.send_batch([mq.Message("Orders", b"%d" % number) for number in range(50)])
        command = [cluster.namesrv, "Orders", str(out), str(tmp_path / "checkpoint"), "--once"]
        done = subprocess.run(
            [sys.executable, job, *command],
            env=environ,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-4000:]
    table = dataset.dataset(out, format="parquet").to_table(["body"])
    assert sorted(int(body) for body in table["body"].to_pylist()) == list(range(50))
