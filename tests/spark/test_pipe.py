"""`sparrow pipe` as a user runs it: followed by its JSON and its metrics, and stopped."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pyarrow.dataset as dataset
import pytest
from tests.spark.support import Topics
from tests.support import until_sync

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
PIPE = [sys.executable, "-m", "sparrowmq.cli.main", "pipe"]
SECONDS = 240


def test_an_archive_is_followed_and_stopped(topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.send(topic, 10)
    out, err = tmp_path / "out", tmp_path / "err"
    command = [
        *PIPE,
        "archive",
        topic,
        "--to",
        str(tmp_path / "archive"),
        "--namesrv",
        topics.cluster.namesrv,
    ]
    command += ["--follow", "--every", "0.5", "--progress", "json", "--metrics", "127.0.0.1:0"]
    with out.open("w") as stdout, err.open("w") as stderr:
        running = subprocess.Popen(command, stdout=stdout, stderr=stderr, start_new_session=True)

    def rows() -> int:
        assert running.poll() is None, err.read_text()
        lines = out.read_text().splitlines()
        return int(json.loads(lines[-1])["rows"]) if lines else 0

    try:
        until_sync(lambda: rows() == 10, SECONDS)
        topics.send(topic, 5, first=10)
        until_sync(lambda: rows() == 15, SECONDS)
        port = re.search(r"metrics at port (\d+)", err.read_text())
        assert port is not None
        with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics", timeout=10) as answer:
            assert b'sparrow_pipe_rows{pipeline="archive"} 15.0' in answer.read()
        os.killpg(running.pid, signal.SIGINT)  # what a terminal does at Ctrl-C
        assert running.wait(SECONDS) == 0, err.read_text()
    finally:
        running.kill()
        running.wait()
    files = dataset.dataset(tmp_path / "archive" / "data", format="parquet", partitioning="hive")
    assert files.to_table(["body"]).num_rows == 15
    assert err.read_text().splitlines() == [f"metrics at port {port[1]}, path /metrics"]
