"""The demo as a user runs it: from the command to the page, and stopped in the middle."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as dataset
import pytest
from tests.support import until_sync

import sparrowmq as mq
from sparrowmq.testing import LocalCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
DEMO = [sys.executable, "-m", "sparrowmq.cli.main", "demo", "--data"]
BALANCED = "sent = stored = in Parquet: no duplicate, no gap"


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def rows(directory: Path) -> list[int]:
    found: list[int] = dataset.dataset(directory, format="parquet").to_table(["row"])["row"].to_pylist()
    return sorted(found)


def test_every_flight_arrives_once_and_again_with_a_running_cluster_left_as_it_was(tmp_path: Path) -> None:
    """From nothing; then into the same directory, with servers that run already."""

    def demo(count: int, *more: str) -> None:
        done = subprocess.run(
            [*DEMO, str(tmp_path), "--rows", str(count), *more], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        assert BALANCED in done.stdout
        assert re.search(r"summary  batch \d+: (EWR|JFK|LGA) [\d,]+ flights", done.stdout)
        assert f"{count:,} flights in " in done.stdout
        assert rows(tmp_path / "flights.parquet") == list(range(1, count + 1))
        page = (tmp_path / "report.html").read_text()
        assert "sent = stored = in Parquet" in page
        assert page.count("<svg") == 2

    demo(1200)
    assert left(tmp_path) == ["flights.parquet", "report.html"]
    with LocalCluster() as cluster:
        demo(700, "--rate", "2000", "--keep", "--namesrv", cluster.namesrv)
        with mq.Admin(cluster.namesrv) as admin:
            names = [name.rstrip("0123456789_") for name in admin.topics.list()]
    assert sorted(names) == ["SparrowDemoFlights", "SparrowDemoSummaries"]
    (kept,) = [path for path in tmp_path.iterdir() if path.name.startswith("kept-")]
    assert left(tmp_path) == ["flights.parquet", kept.name, "report.html"]
    assert (kept / "checkpoint").is_dir()
    assert not (kept / "store").exists()


def processes_naming(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if text in line:
            found.append(line)
    return found


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*DEMO, str(tmp_path), "--rows", "100000", "--rate", "500"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert any(line.startswith("sent ") for line in iter(process.stdout.readline, ""))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to everyone in the group
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert out.splitlines()[-1] == "stopped"
    assert err == ""
    assert left(tmp_path) == []
    until_sync(lambda: not processes_naming(str(tmp_path)))


def test_a_failure_says_where_the_logs_are(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DEMO, str(tmp_path), "--rows", "10", "--namesrv", "127.0.0.1:1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("sparrow: the demo failed: ")
    assert "127.0.0.1:1" in done.stderr
    (saved,) = tmp_path.iterdir()
    assert saved.name.startswith("failed-")
    assert f"logs: {saved}" in done.stderr
