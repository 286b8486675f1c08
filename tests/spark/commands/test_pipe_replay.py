"""`sparrow pipe replay` killed with -9 in mid-part and started again: all of it once, in order."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.support import Topics, numbered
from tests.support import until_sync

from sparrowmq.spark.pipelines.replay.replay import replay
from sparrowmq.spark.pipelines.replay.settings import ReplaySettings

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
PIPE = [sys.executable, "-m", "sparrowmq.cli.main", "pipe", "replay"]
SECONDS = 240
COUNT = 4000


def test_a_replay_is_killed_and_goes_on(
    spark: SparkSession, topics: Topics, topic: str, tmp_path: Path
) -> None:
    out, home = f"{topic}_out", tmp_path / "home"
    topics.cluster.create_topic(out, queues=4)
    topics.send(topic, COUNT)
    command = [*PIPE, topic, "--to", out, "--home", str(home), "--progress", "none"]
    command += ["--namesrv", topics.cluster.namesrv, "--keep-ids", "--to-option", "batchBytes=4096"]

    def stored() -> int:
        return sum(topics.consumer.max_offset(queue) for queue in topics.consumer.queues(out))

    log = tmp_path / "log"
    with log.open("w") as file:
        running = subprocess.Popen(
            [*command, "--rate", "800"], stdout=file, stderr=file, start_new_session=True
        )
    try:
        # The first part has 1,000 messages: this is the middle of the second.
        until_sync(lambda: running.poll() is not None or stored() > 1500, SECONDS)
        assert running.poll() is None, log.read_text()
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    killed_at = stored()
    assert 1500 < killed_at < COUNT, "killed in the middle"
    again = ReplaySettings(
        home=home,
        to=out,
        topics=(topic,),
        name_server=topics.cluster.namesrv,
        ids="keep",
        to_options={"batchBytes": "4096"},
    )
    assert 0 < replay(spark, again).rows < COUNT
    found = topics.read(out)
    assert Counter(message.body.decode() for message in found) == Counter(numbered(0, COUNT))
    assert {message.message_id for message in found} == {one.message_id for one in topics.read(topic)}
    for number in range(4):
        mine = [int(one.body[1:]) for one in found if one.queue.queue_id == number]
        assert mine == list(range(number, COUNT, 4)), f"queue {number}"
