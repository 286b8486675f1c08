"""The source and the sink for a client of Spark Connect."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.spark.declarative import ROOT
from tests.spark.support import Topics, numbered

CLIENT_SECONDS = 300


@pytest.mark.proves("spark:B-12")
def test_a_client_reads_writes_and_streams(remote: str, topics: Topics, topic: str, tmp_path: Path) -> None:
    out = f"{topic}_out"
    topics.cluster.create_topic(out, queues=2)
    topics.send(topic, 20)
    arguments = (remote, topics.cluster.namesrv, topic, out, str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_child", *arguments],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=CLIENT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert "option startingoffset='earliest' is unknown" in found.pop("error")
    assert "did you mean startingOffsets?" in done.stdout
    assert found == {
        "client": "pyspark.sql.connect.session",
        "rows": 20,
        "streamed": 20,
        "sql": 12,
        "registered": 20,
    }
    assert sorted(
        (message.body.decode() for message in topics.read(out)), key=lambda text: int(text[1:])
    ) == numbered(0, 20)
