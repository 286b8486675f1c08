"""`sparrow pipe mirror` as a user runs it: planned, followed, killed in the middle, run again, audited."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics, numbered
from tests.support import until_sync
from typer.testing import CliRunner

from sparrowmq.cli.main import app
from sparrowmq.spark import MirrorSettings, mirror
from sparrowmq.testing import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
SECONDS = 240
COUNT = 3000


@pytest.fixture
def target() -> Iterator[Topics]:
    with LocalCluster() as cluster, Topics(cluster) as made:
        yield made


def test_killed_in_the_middle_each_message_is_there_once_and_in_order(
    spark: SparkSession, topics: Topics, target: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, COUNT)
    home, out, err = tmp_path / "mirror", tmp_path / "out", tmp_path / "err"
    options = [topic, "--namesrv", topics.cluster.namesrv, "--to", target.cluster.namesrv, "--dir", str(home)]
    options += ["--source", "here", "--target", "far", "--batch-rows", "400"]
    plan = CliRunner().invoke(app, ["pipe", "mirror", *options, "--plan", "--json"])
    assert plan.exit_code == 0, plan.output
    assert json.loads(plan.output)["rows"] == COUNT
    assert not home.exists()

    command = [sys.executable, "-m", "sparrowmq.cli.main", "pipe", "mirror", *options]
    command += ["--follow", "--every", "0", "--progress", "json"]
    with out.open("w") as stdout, err.open("w") as stderr:
        running = subprocess.Popen(command, stdout=stdout, stderr=stderr, start_new_session=True)

    def begun() -> bool:
        assert running.poll() is None, err.read_text()
        lines = out.read_text().splitlines()
        return bool(lines) and json.loads(lines[-1])["rows"] >= 400

    try:
        until_sync(begun, SECONDS)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    settings = MirrorSettings(
        directory=home,
        source="here",
        target="far",
        name_server=topics.cluster.namesrv,
        target_name_server=target.cluster.namesrv,
        topics=(topic,),
    )
    assert mirror(spark, settings).rows < COUNT
    found = target.read(topic)
    queues = {message.queue for message in found}
    for queue in queues:
        texts = [message.body.decode() for message in found if message.queue == queue]
        assert texts == numbered(0, COUNT)[queue.queue_id :: 4]
    assert len(found) == COUNT
